//! Where an instance is.

use std::fmt;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

/// A checked address: what to connect to, and what to call it without credentials.
#[derive(Clone)]
pub(crate) struct Address {
    info: ConnectionInfo,
    shown: String,
}

impl Address {
    /// Reads a URL: `redis://[user][:password@]host[:port][/db]`, `rediss://..` for TLS,
    /// `unix:///path`.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| error.to_string())?;
        if !info.addr().is_supported() {
            return Err("this build cannot connect to it; for rediss:// enable a feature tls-*".to_owned());
        }
        let shown = shown(info.addr());
        // RESP3, so that pushed messages (a closed connection first of all) reach us.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        Ok(Self { info: info.set_redis_settings(settings).set_tcp_settings(tcp), shown })
    }

    /// The address without credentials. Two addresses that show the same lead to the same server
    /// process, whatever database they name.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// A client for this address.
    pub(crate) fn client(&self) -> redis::RedisResult<Client> {
        #[cfg(feature = "tls-rustls")]
        choose_cryptography();
        Client::open(self.info.clone())
    }
}

/// rustls panics at the first connection unless the process has chosen who does its cryptography:
/// ring, if the program has not.
#[cfg(feature = "tls-rustls")]
fn choose_cryptography() {
    use rustls::crypto::{CryptoProvider, ring};
    if CryptoProvider::get_default().is_none() {
        // An error means that somebody else chose meanwhile.
        let _ = ring::default_provider().install_default();
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn shown(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{}:{port}", host.to_lowercase())
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_address_has_no_credentials_and_one_form() {
        for url in ["redis://10.0.0.1", "redis://user:secret@10.0.0.1:6379/2", "redis://10.0.0.1:6379?protocol=resp2"] {
            assert_eq!(Address::parse(url).unwrap().shown(), "10.0.0.1:6379");
        }
        assert_eq!(Address::parse("redis://LOCALHOST:1").unwrap().shown(), "localhost:1");
        assert_eq!(Address::parse("unix:///tmp/x.sock").unwrap().shown(), "/tmp/x.sock");
        assert!(!format!("{:?}", Address::parse("redis://u:secret@h").unwrap()).contains("secret"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for url in
            ["", "10.0.0.1:6379", "http://10.0.0.1", "redis://", "redis://h:notaport", "redis://h:99999", "redis://h/x"]
        {
            assert!(Address::parse(url).is_err(), "{url:?}");
        }
    }
}
