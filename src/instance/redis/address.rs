//! Where an instance is.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

/// A checked address: what to connect to, and what to call it without credentials.
#[derive(Clone)]
pub(crate) struct Address {
    endpoint: Endpoint,
    login: RedisConnectionInfo,
    shown: String,
}

/// What to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A port of a host, and whether with TLS.
    Tcp {
        host: String,
        port: u16,
        tls: bool,
    },
    Unix(PathBuf),
    /// Wherever a test connects it to.
    #[cfg(feature = "testing")]
    Dialed(super::dialed::Dialer),
}

impl Address {
    /// Reads a URL: `redis://[user][:password@]host[:port][/db]`, `rediss://..` for TLS,
    /// `unix:///path`.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        // TLS is this library's own affair, whatever features of the redis crate others enable.
        let with_tls = [("rediss:", "redis:"), ("valkeys:", "valkey:")]
            .into_iter()
            .find_map(|(scheme, plain)| url.strip_prefix(scheme).map(|rest| format!("{plain}{rest}")));
        if with_tls.is_some() && !cfg!(any(feature = "tls-rustls", feature = "tls-native-tls")) {
            return Err("this build cannot connect to it; for rediss:// enable a feature tls-*".to_owned());
        }
        if with_tls.is_some() && url.contains('#') {
            return Err("certificates are always checked; rediss:// takes no #insecure".to_owned());
        }
        let tls = with_tls.is_some();
        let info = with_tls.as_deref().unwrap_or(url).into_connection_info().map_err(|error| error.to_string())?;
        let (endpoint, shown) = endpoint(&info, tls)?;
        // RESP3, so that pushed messages reach us.
        let login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        Ok(Self { endpoint, login, shown })
    }

    /// An instance that a test connects to, by the name that it is shown by.
    #[cfg(feature = "testing")]
    pub(crate) fn dialed(name: &str, dialer: super::dialed::Dialer) -> Self {
        let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        Self { endpoint: Endpoint::Dialed(dialer), login, shown: name.to_owned() }
    }

    /// The address without credentials. Two addresses that show the same lead to the same server
    /// process, whatever database they name.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// As whom, and to which database, to log in.
    pub(super) const fn login(&self) -> &RedisConnectionInfo {
        &self.login
    }
}

fn endpoint(info: &ConnectionInfo, tls: bool) -> Result<(Endpoint, String), String> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let shown = format!("{}:{port}", host.to_lowercase());
            Ok((Endpoint::Tcp { host: host.clone(), port: *port, tls }, shown))
        }
        ConnectionAddr::Unix(path) if cfg!(unix) => Ok((Endpoint::Unix(path.clone()), path.display().to_string())),
        _ => Err("this build cannot connect to it".to_owned()),
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
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

    #[test]
    fn tls_needs_a_feature_of_this_library_and_checks_certificates() {
        let enabled = cfg!(any(feature = "tls-rustls", feature = "tls-native-tls"));
        for url in ["rediss://user:secret@h:7/1", "valkeys://h:7"] {
            let address = Address::parse(url);
            assert_eq!(address.is_ok(), enabled, "{url}");
            let with_tls = Endpoint::Tcp { host: "h".to_owned(), port: 7, tls: true };
            assert!(address.is_ok_and(|address| *address.endpoint() == with_tls) || !enabled, "{url}");
        }
        assert!(Address::parse("rediss://h#insecure").is_err());
    }
}
