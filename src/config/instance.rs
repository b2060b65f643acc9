//! One instance, and how to connect to it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

#[cfg(feature = "config")]
use crate::instance::redis::Fallback;
use crate::instance::redis::{Address, Credentials, CredentialsSource, InstanceSettings, Tls};

/// One instance, and how to connect to it. A URL alone will do for most; [`Builder::instances`](crate::Builder::instances)
/// takes both.
///
/// ```no_run
/// use std::time::Duration;
/// use redquorum::{Credentials, Instance, Redlock, Tls};
/// # async fn secret_of(user: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let ca = std::fs::read("/etc/redis/ca.pem")?;
/// let instance = |host: &str| {
///     Instance::url(format!("rediss://{host}:6380"))
///         .tls(Tls::new().ca(&ca))
///         .credentials_from(|| async { Ok(Credentials::new("locks", secret_of("locks").await?)) })
///         .client_name("billing")
///         .keep_alive(Duration::from_secs(30))
/// };
/// let redlock = Redlock::builder().instances(["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(instance)).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "an instance is nothing without a client"]
pub struct Instance {
    place: Place,
    settings: InstanceSettings,
}

/// Where it is.
#[derive(Clone)]
enum Place {
    Url(String),
    /// The master of the group, as these Sentinels name it.
    Behind(Vec<Instance>, String),
}

impl Instance {
    /// By its URL: `redis://[user][:password@]host[:port][/database]`, `rediss://` for TLS (with a feature `tls-*`), `unix:///path`.
    /// Without a scheme, as `host` or `host:port`, it is Redis without TLS. It is read when the client is built.
    pub fn url(url: impl Into<String>) -> Self {
        Self { place: Place::Url(url.into()), settings: InstanceSettings::default() }
    }

    /// The master of a `group`, as these Sentinels name it. They are queried at each connect, and every quarter of
    /// [`max_ttl`](crate::Builder::max_ttl). Their addresses have a port,
    /// 26379 as a rule; they are URLs or instances too, with TLS and credentials of their own. What is set for this instance
    /// is for the master.
    ///
    /// A failover puts the instance into quarantine, as a promoted replica may lack the last locks. But clients or
    /// Sentinels that are cut off may still use the former master while others use the new one: such an instance may lead to two processes, see
    /// [`Builder::quorum`](crate::Builder::quorum) for how large the quorum must be. Independent masters without any failover need
    /// none of this.
    ///
    /// ```no_run
    /// use redquorum::{Credentials, Instance, Redlock};
    /// # fn f() -> Result<(), redquorum::BuildError> {
    /// let sentinels = ["redis://10.0.1.1:26379", "redis://10.0.1.2:26379", "redis://10.0.1.3:26379"];
    /// let group = Instance::sentinel(sentinels, "mymaster").credentials(Credentials::new("locks", "secret"));
    /// // One of the five may lead to two processes: 2 * 4 > 5 + 1.
    /// let masters = ["redis://10.0.0.2", "redis://10.0.0.3", "redis://10.0.0.4", "redis://10.0.0.5"].map(Instance::url);
    /// let redlock = Redlock::builder().instances(masters.into_iter().chain([group])).quorum(4).build()?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel<I>(sentinels: I, group: impl Into<String>) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Self>,
    {
        let sentinels = sentinels.into_iter().map(Into::into).collect();
        Self { place: Place::Behind(sentinels, group.into()), settings: InstanceSettings::default() }
    }

    /// The user and password, instead of those in the URL.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.settings.credentials = Some(CredentialsSource::Fixed(credentials));
        self
    }

    /// Gets the user and password at each connect, for passwords and tokens that change; instead of those in the URL.
    ///
    /// A connection that is open stays so when they change, as far as the server lets it. While the instance can be reached and
    /// refuses them, or the provider fails, the provider is called again after pauses, which grow up to a second. A provider
    /// has 10 s to answer. Its error is shown in the [`Cause`](crate::Cause), so it must hold no secret.
    pub fn credentials_from<F>(mut self, provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.settings.credentials = Some(CredentialsSource::provider(provide));
        self
    }

    /// The number of the database, in place of what the URL says. Default: 0.
    pub fn database(mut self, number: u32) -> Self {
        self.settings.database = Some(number);
        self
    }

    /// Connects with TLS, and with these certificates, whether or not the URL begins with `rediss://`. Needs a feature `tls-*`.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// What `CLIENT LIST` on the instance calls the connection: up to 200 printable characters without spaces. Default: nothing.
    /// Without the right to `CLIENT SETNAME` the connection has no name, and a warning says so.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.settings.client_name = Some(name.into());
        self
    }

    /// After how long without a byte TCP checks whether the connection lives, and how often it does then: 1 s to
    /// 32 767 s, in whole seconds on most systems. Default: never, as the client itself probes each connection once a second or more often.
    pub fn keep_alive(mut self, idle: Duration) -> Self {
        self.settings.tcp.keep_alive = Some(idle);
        self
    }

    /// How long what was sent may stay without an acknowledgement of TCP until the system breaks the connection. On Linux;
    /// elsewhere nothing. Default: the system's, often some fifteen minutes. The client itself gives up
    /// a connection after a few requests without an answer.
    pub fn user_timeout(mut self, limit: Duration) -> Self {
        self.settings.tcp.user_timeout = Some(limit);
        self
    }

    /// What was given, unless Sentinels know where it is.
    #[cfg(feature = "config")]
    pub(super) fn as_url(&self) -> Option<&str> {
        match &self.place {
            Place::Url(url) => Some(url),
            Place::Behind(..) => None,
        }
    }

    /// With this, as far as it does not say it itself.
    #[cfg(feature = "config")]
    pub(super) fn or(mut self, fallback: &Fallback) -> Self {
        self.settings.fallback = fallback.clone();
        self
    }

    /// What it is shown by, without a file to read.
    fn without_tls(&self) -> Self {
        let place = match &self.place {
            Place::Url(url) => Place::Url(url.clone()),
            Place::Behind(sentinels, group) => {
                Place::Behind(sentinels.iter().map(Self::without_tls).collect(), group.clone())
            }
        };
        Self { place, settings: InstanceSettings { tls: None, ..self.settings.clone() } }
    }

    pub(super) fn to_address(&self) -> Result<Address, String> {
        match &self.place {
            Place::Url(url) => Address::new(url, self.settings.clone()),
            Place::Behind(sentinels, group) => {
                let sentinels: Result<Vec<_>, _> = sentinels.iter().map(Self::to_address).collect();
                Address::behind(sentinels?, group, self.settings.clone())
            }
        }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL as it is: it may hold a password.
        let address = self.without_tls().to_address();
        f.write_str(address.as_ref().map_or("not an address", |address| address.shown()))
    }
}

macro_rules! from_url {
    ($($text:ty),*) => {$(
        impl From<$text> for Instance {
            fn from(url: $text) -> Self {
                Self::url(url)
            }
        }
    )*};
}

from_url!(String, &String, &str, &mut str, Box<str>, Cow<'_, str>);
