//! TLS to an instance.

#[cfg(feature = "tls-rustls")]
mod rustls;
mod settings;

#[cfg(feature = "tls-rustls")]
pub(super) use rustls::{Connector, check};
pub use settings::Tls;

/// Reads what a connection to `host` is made with: certificates and keys may have been renewed since the last.
///
/// # Errors
/// What of it cannot be used, with the file that it is from, and without a word of the key.
#[cfg(feature = "tls-rustls")]
pub(super) async fn connector(tls: &Tls, host: &str) -> Result<Connector, String> {
    if !tls.reads_files() {
        return Connector::new(tls, host);
    }
    let (tls, host) = (tls.clone(), host.to_owned());
    let reading = tls.reading.0.clone();
    reading.run(move || Connector::new(&tls, &host)).await.unwrap_or_else(|error| {
        let why = if error.is_panic() { "reading its certificates panicked" } else { "the runtime has ended" };
        Err(why.to_owned())
    })
}

#[cfg(all(test, unix, feature = "tls-rustls"))]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use tokio::task::spawn_blocking;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_to_its_end_holds_one_thread_however_often_it_is_tried() {
        let path = std::env::temp_dir().join(format!("redquorum-hung-{}.pem", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build().unwrap();
        runtime.block_on(async {
            let tls = Tls::new().ca_file(&path);
            for _ in 0..3 {
                assert!(timeout(Duration::from_millis(20), connector(&tls, "localhost")).await.is_err());
            }
            let other = timeout(Duration::from_secs(5), spawn_blocking(|| 7)).await;
            assert!(matches!(other, Ok(Ok(7))), "no thread is left");
            let next = tokio::spawn(async move { connector(&tls, "localhost").await.map(drop) });
            std::fs::write(&path, "nothing").unwrap(); // ends the read that hangs
            std::fs::remove_file(&path).unwrap();
            let error = timeout(Duration::from_secs(5), next).await.unwrap().unwrap().unwrap_err();
            assert!(error.contains("cannot be read"), "{error}");
        });
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let error = check(&Tls::new().ca_file("/dev/zero"), "localhost").unwrap_err();
        assert_eq!(error, "/dev/zero is longer than 4 MiB");
    }
}

/// Whether a connection to `host` can be made with this.
///
/// # Errors
/// That a build without TLS makes none.
#[cfg(not(feature = "tls-rustls"))]
pub(super) fn check(_: &Tls, _: &str) -> Result<(), String> {
    Err("this build has no TLS; enable the feature tls-rustls of redquorum".to_owned())
}
