//! As whom to log in.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::classify::clip;
use crate::protocol::Cause;

/// How long a provider may take.
const PROVIDER_LIMIT: Duration = Duration::from_secs(10);

/// A user and a password, or a password alone. Never shown.
///
/// ```
/// use redquorum::Credentials;
/// let credentials = Credentials::new("locks", "secret");
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// A user with a password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// The password of the user `default` (`requirepass`).
    #[must_use]
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }

    pub(super) fn parts(&self) -> (Option<&str>, &str) {
        (self.user.as_deref(), &self.password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

type Provided = Result<Credentials, Box<dyn Error + Send + Sync>>;

/// Where they come from.
#[derive(Clone)]
pub(crate) enum CredentialsSource {
    /// Always these.
    Fixed(Credentials),
    /// Called at each connect.
    Provider(Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Provided> + Send>> + Send + Sync>),
}

impl CredentialsSource {
    pub(crate) fn provider<F>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Provided> + Send + 'static,
    {
        Self::Provider(Arc::new(move || Box::pin(provide())))
    }

    /// Those to log in with now.
    ///
    /// # Errors
    /// The provider's own, or that it took too long.
    pub(super) async fn get(&self) -> Result<Credentials, Cause> {
        let provide = match self {
            Self::Fixed(credentials) => return Ok(credentials.clone()),
            Self::Provider(provide) => provide,
        };
        let failed = |why: &str| Err(Cause::NoCredentials(clip(why)));
        match timeout(PROVIDER_LIMIT, provide()).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(error)) => failed(&error.to_string()),
            Err(_) => failed(&format!("no answer within {PROVIDER_LIMIT:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_fails_or_hangs_has_a_cause_of_its_own() {
        let failure = async |source: CredentialsSource| source.get().await.unwrap_err().to_string();
        let failing = failure(CredentialsSource::provider(|| async { Err("the vault is sealed".into()) })).await;
        assert!(failing.contains("the vault is sealed"), "{failing}");
        let hanging = failure(CredentialsSource::provider(std::future::pending)).await;
        assert!(hanging.contains("no answer within 10s"), "{hanging}");
    }

    #[tokio::test]
    async fn a_provider_is_asked_each_time() {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let source = CredentialsSource::provider(move || {
            let times = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move { Ok(Credentials::password(times.to_string())) }
        });
        assert_eq!(source.get().await.unwrap(), Credentials::password("0"));
        assert_eq!(source.clone().get().await.unwrap(), Credentials::password("1"));
    }
}
