//! Where an instance is, and how to connect to it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::blocking::OneAtATime;
use super::credentials::{Credentials, CredentialsSource};
use super::tls::{self, Tls};
use crate::protocol::Cause;

/// The longest `CLIENT SETNAME`; servers bound it by memory only.
const MAX_CLIENT_NAME: usize = 200;

/// What systems take as the idle time of TCP, in seconds.
const KEEP_ALIVE_S: std::ops::RangeInclusive<u64> = 1..=32_767;

/// What to write in place of an address that cannot be read.
const FORMS: &str = "write host:port, redis://[user][:password@]host[:port][/database], rediss:// for TLS, or unix:///path; in \
                     user and password anything but letters and digits percent-encoded, or give them with Instance::credentials";

/// What is wrong with a user who has no password.
pub(crate) const USER_ALONE: &str = "it has a user and no password (a user with nopass takes any); put one into the address, \
                                     redis://user:password@host, or give Instance::credentials";

/// How to connect, beside what a URL says.
#[derive(Clone, Default)]
pub(crate) struct InstanceSettings {
    pub(crate) credentials: Option<CredentialsSource>,
    pub(crate) database: Option<u32>,
    pub(crate) tls: Option<Tls>,
    pub(crate) client_name: Option<String>,
    pub(crate) tcp: TcpSettings,
    pub(crate) fallback: Fallback,
}

/// What counts where neither a URL nor the other settings say it. Not for masters behind Sentinels.
#[derive(Clone, Default)]
pub(crate) struct Fallback {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// For URLs with TLS.
    pub(crate) tls: Option<Tls>,
}

impl Fallback {
    /// As whom to log in where a URL says so much: one with a password says all of it.
    fn credentials(&self, user: Option<&str>, password: Option<&str>) -> Result<Option<CredentialsSource>, String> {
        let (user, password) = match password {
            Some(_) => (user, password),
            None => (user.or(self.user.as_deref()), self.password.as_deref()),
        };
        let credentials = match (user, password) {
            (Some(_), None) => return Err(USER_ALONE.to_owned()),
            (None, None) => return Ok(None),
            (Some(user), Some(password)) => Credentials::new(user, password),
            (None, Some(password)) => Credentials::password(password),
        };
        Ok(Some(CredentialsSource::Fixed(credentials)))
    }
}

/// When the system gives up a connection by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct TcpSettings {
    /// After how long without a byte it checks whether the other side is there.
    pub(crate) keep_alive: Option<Duration>,
    /// How long what was sent may stay unacknowledged.
    pub(crate) user_timeout: Option<Duration>,
    pub(super) lookup: OneAtATime,
}

impl TcpSettings {
    fn check(&self) -> Result<(), String> {
        if self.keep_alive.is_some_and(|idle| !KEEP_ALIVE_S.contains(&idle.as_secs())) {
            let (least, most) = KEEP_ALIVE_S.into_inner();
            return Err(format!("keep_alive is {least} s to {most} s"));
        }
        let longest = Duration::from_millis(i32::MAX.unsigned_abs().into());
        if self.user_timeout.is_some_and(|limit| limit.as_millis() == 0 || limit > longest) {
            return Err(format!("user_timeout is 1 ms to {longest:?}"));
        }
        Ok(())
    }
}

/// A checked address: what to connect to and how, and what to call it without credentials.
#[derive(Clone)]
pub(crate) struct Address {
    endpoint: Endpoint,
    pub(super) database: i64,
    settings: InstanceSettings,
    shown: String,
}

/// What to connect to.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    /// A port of a host, and whether with TLS.
    Tcp {
        host: String,
        port: u16,
        tls: Option<Tls>,
    },
    Unix(PathBuf),
    /// The present master of a group.
    Group(SentinelGroup),
    /// A stream of a test.
    #[cfg(feature = "testing")]
    Dialed(super::stream::Dialer),
}

/// A master and its replicas, by the name that their Sentinels have for them.
#[derive(Clone, Debug)]
pub(super) struct SentinelGroup {
    pub(super) name: String,
    pub(super) sentinels: Vec<Address>,
    /// Whether to connect to the master with TLS.
    pub(super) tls: Option<Tls>,
}

impl Address {
    /// Reads a URL: `redis://[user][:password@]host[:port][/db]`, `rediss://..` for TLS,
    /// `unix:///path`. Without a scheme it is of Redis without TLS.
    ///
    /// # Errors
    /// What to write instead, without any part that may be a secret.
    pub(crate) fn new(url: &str, mut settings: InstanceSettings) -> Result<Self, String> {
        let (info, is_with_tls) = read(url)?;
        let fallback = &settings.fallback;
        let tls = settings.tls.clone().or_else(|| is_with_tls.then(|| fallback.tls.clone().unwrap_or_default()));
        let (endpoint, shown) = endpoint(&info, tls)?;
        let login = info.redis_settings();
        if settings.credentials.is_none() {
            settings.credentials = fallback.credentials(login.username(), login.password())?;
        }
        Self::of(endpoint, login.db(), settings, shown)
    }

    /// The master that these Sentinels know by this name.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn behind(sentinels: Vec<Self>, name: &str, settings: InstanceSettings) -> Result<Self, String> {
        if sentinels.is_empty() || name.is_empty() {
            return Err(
                "a master behind Sentinels needs the address of one at least, and the name of its group".to_owned()
            );
        }
        if sentinels.iter().any(|sentinel| !matches!(sentinel.endpoint, Endpoint::Tcp { .. })) {
            return Err("a Sentinel is given by its own URL, redis://host:26379".to_owned());
        }
        // The master's host is not known yet; a name that is set is looked at now.
        settings.tls.as_ref().map_or(Ok(()), |tls| tls::check(tls, "localhost"))?;
        let all: Vec<&str> = sentinels.iter().map(Self::shown).collect();
        let shown = format!("{name}@{}", all.join(","));
        let group = SentinelGroup { name: name.to_owned(), tls: settings.tls.clone(), sentinels };
        Self::of(Endpoint::Group(group), 0, settings, shown)
    }

    fn of(endpoint: Endpoint, database: i64, settings: InstanceSettings, shown: String) -> Result<Self, String> {
        settings.client_name.as_deref().map_or(Ok(()), check_client_name)?;
        settings.tcp.check()?;
        let database = settings.database.map_or(database, Into::into);
        Ok(Self { endpoint, database, settings, shown })
    }

    /// The URL alone.
    #[cfg(test)]
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        Self::new(url, InstanceSettings::default())
    }

    /// An instance that a test connects to, by the name that it is shown by.
    #[cfg(feature = "testing")]
    pub(crate) fn dialed(name: &str, dialer: super::stream::Dialer) -> Self {
        let settings = InstanceSettings::default();
        Self { endpoint: Endpoint::Dialed(dialer), database: 0, settings, shown: name.to_owned() }
    }

    /// The address without credentials. Two addresses that show the same lead to the same server
    /// process, with any database.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) const fn tcp(&self) -> &TcpSettings {
        &self.settings.tcp
    }

    /// What the connection is to be called.
    pub(super) fn client_name(&self) -> Option<&str> {
        self.settings.client_name.as_deref()
    }

    /// As whom to log in now.
    ///
    /// # Errors
    /// If a provider of credentials fails.
    pub(super) async fn credentials(&self) -> Result<Option<Credentials>, Cause> {
        match &self.settings.credentials {
            Some(source) => source.get().await.map(Some),
            None => Ok(None),
        }
    }
}

fn endpoint(info: &ConnectionInfo, tls: Option<Tls>) -> Result<(Endpoint, String), String> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            tls.as_ref().map_or(Ok(()), |tls| tls::check(tls, host))?;
            // The colons of IPv6 would run into that of the port.
            let shown = if host.contains(':') { format!("[{host}]") } else { host.to_lowercase() };
            Ok((Endpoint::Tcp { host: host.clone(), port: *port, tls }, format!("{shown}:{port}")))
        }
        ConnectionAddr::Unix(_) if tls.is_some() => Err("a Unix socket takes no TLS".to_owned()),
        ConnectionAddr::Unix(path) if cfg!(unix) => Ok((Endpoint::Unix(path.clone()), path.display().to_string())),
        _ => Err("this system cannot connect to it; write redis://host:port".to_owned()),
    }
}

/// What an address says, and whether it is one with TLS.
fn read(url: &str) -> Result<(ConnectionInfo, bool), String> {
    check_form(url)?;
    let url = &*with_scheme(url);
    // TLS is this library's own affair, with any features of the redis crate.
    let with_tls = [("rediss:", "redis:"), ("valkeys:", "valkey:")]
        .into_iter()
        .find_map(|(scheme, plain)| url.strip_prefix(scheme).map(|rest| format!("{plain}{rest}")));
    if with_tls.is_some() && url.contains('#') {
        return Err("certificates are always checked; rediss:// takes no #insecure".to_owned());
    }
    let info = with_tls.as_deref().unwrap_or(url).into_connection_info().map_err(|_| what_to_write(url))?;
    Ok((info, with_tls.is_some()))
}

/// Whether it can be read, so that what may be a password in it is known.
#[cfg(feature = "config")]
pub(crate) fn is_readable(url: &str) -> bool {
    read(url).is_ok()
}

/// A bare `host` or `host:port` is of Redis without TLS.
fn with_scheme(url: &str) -> Cow<'_, str> {
    if url.contains("://") { Cow::Borrowed(url) } else { Cow::Owned(format!("redis://{url}")) }
}

/// Refuses what would not be read as it is meant.
fn check_form(url: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_socket = scheme.ends_with("unix");
    let after_host = if is_socket { query } else { rest.trim_start_matches(|c| !"/?#".contains(c)) };
    let known: &[&str] = if is_socket { &["db", "user", "pass", "protocol"] } else { &["protocol"] };
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let host = if is_socket { place } else { place.split(['/', '#']).next().unwrap_or_default() };
    if host.trim().is_empty() {
        return Err(format!("it is empty; {FORMS}"));
    }
    if !is_socket && host.ends_with(':') {
        return Err(format!("its port is missing after the colon; {FORMS}"));
    }
    if after_host.contains('@') {
        return Err(format!("it cannot be read; {FORMS}"));
    }
    if query.split('&').any(|option| !option.is_empty() && !known.contains(&name(option).as_str())) {
        return Err(
            "after the ? stand options: protocol=resp2 or resp3, and for a socket db=, user= and pass=".to_owned()
        );
    }
    Ok(())
}

/// What is wrong with an address that cannot be read. Nothing of it is repeated: that may be a part of a password.
fn what_to_write(url: &str) -> String {
    let rest = match url.split_once("://") {
        Some(("redis" | "rediss" | "valkey" | "valkeys", rest)) => rest,
        _ => return format!("its scheme is unknown; {FORMS}"),
    };
    let host = rest.rsplit('@').next().unwrap_or_default().split(['/', '?']).next().unwrap_or_default();
    if host.contains([';', ',', ' ']) {
        return "it looks like several; give each address by itself".to_owned();
    }
    let is_ipv6 = host
        .split('%')
        .next()
        .is_some_and(|ip| ip.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte)));
    if host.matches(':').count() > 1 && is_ipv6 {
        return "an IPv6 address needs brackets; write redis://[::1]:6379".to_owned();
    }
    format!("it cannot be read; {FORMS}")
}

fn check_client_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_CLIENT_NAME || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("a client name has 1 to {MAX_CLIENT_NAME} printable ASCII characters and no spaces"));
    }
    Ok(())
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
        for (bare, shown) in
            [("10.0.0.1:7", "10.0.0.1:7"), ("h", "h:6379"), ("[::1]", "[::1]:6379"), ("u:secret@h/2", "h:6379")]
        {
            assert_eq!(Address::parse(bare).unwrap().shown(), shown, "without a scheme");
        }
        assert_eq!(Address::parse("redis://LOCALHOST:1").unwrap().shown(), "localhost:1");
        assert_eq!(Address::parse("redis://[0:0::1]:7").unwrap().shown(), "[::1]:7");
        assert_eq!(Address::parse("unix:///tmp/x.sock").unwrap().shown(), "/tmp/x.sock");
        assert!(!format!("{:?}", Address::parse("redis://u:secret@h").unwrap()).contains("secret"));
    }

    #[test]
    fn a_url_is_completed_with_a_user_and_a_password() {
        let completed = |url: &str, user: Option<&str>| {
            let fallback = Fallback { user: user.map(str::to_owned), password: Some("a/@:%b".to_owned()), tls: None };
            let address = Address::new(url, InstanceSettings { fallback, ..InstanceSettings::default() }).unwrap();
            let Some(CredentialsSource::Fixed(credentials)) = &address.settings.credentials else { panic!("{url}") };
            (credentials.clone(), address.shown().to_owned(), address.database)
        };
        for (url, user, (of_user, password, shown, db)) in [
            ("redis://h:1/2", None, (None, "a/@:%b", "h:1", 2)),
            ("h:1", None, (None, "a/@:%b", "h:1", 0)),
            ("redis://u@h", None, (Some("u"), "a/@:%b", "h:6379", 0)),
            ("redis://u:own@h", None, (Some("u"), "own", "h:6379", 0)),
            ("unix:///x", None, (None, "a/@:%b", "/x", 0)),
            ("redis://h", Some("me"), (Some("me"), "a/@:%b", "h:6379", 0)),
            ("redis://u@h", Some("me"), (Some("u"), "a/@:%b", "h:6379", 0)),
            ("unix:///x?db=1", Some("me"), (Some("me"), "a/@:%b", "/x", 1)),
            ("unix:///x?user=u", Some("me"), (Some("u"), "a/@:%b", "/x", 0)),
        ] {
            let credentials = match of_user {
                Some(user) => Credentials::new(user, password),
                None => Credentials::password(password),
            };
            assert_eq!(completed(url, user), (credentials, shown.to_owned(), db), "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write_and_without_secrets() {
        let cases = [
            ("", "it is empty; write host:port, redis://[user]"),
            (" ", "it is empty"),
            ("redis://", "it is empty"),
            ("redis:///0", "it is empty"),
            ("/tmp/x.sock", "or unix:///path"),
            ("unix://", "it is empty"),
            ("user@10.0.0.1", "a user and no password"),
            ("redis://user@10.0.0.1", "a user and no password"),
            ("http://10.0.0.1", "its scheme is unknown; write host:port"),
            ("secret://10.0.0.1", "its scheme is unknown"),
            ("unix:///a?db=1&user=u", "a user and no password"),
            ("h:secret", "it cannot be read; write host:port"),
            ("redis://:secret@h:notaport", "percent-encoded"),
            ("redis://:se#cret@h", "percent-encoded"),
            ("redis://u:secret/t@h", "percent-encoded"),
            ("redis://u:secret?t@h", "percent-encoded"),
            ("unix:///a?password=secret", "after the ? stand options"),
            ("redis://h?Pass=secret", "after the ? stand options"),
            ("redis://h?db=1", "after the ? stand options"),
            ("redis://h:99999", "it cannot be read"),
            ("redis://h/secret", "it cannot be read"),
            ("redis://:secret@::1:6379", "write redis://[::1]:6379"),
            ("fe80::1%eth0:6379", "write redis://[::1]:6379"),
            ("a:1;b:2", "it looks like several; give each address by itself"),
            ("a:1,b:2", "it looks like several"),
            ("host:1:2", "it cannot be read; write host:port"),
            ("127.0.0.1:", "its port is missing after the colon; write host:port"),
            ("redis://u:secret@h:/1", "its port is missing after the colon; write host:port"),
        ];
        for (url, expected) in cases {
            let message = Address::parse(url).unwrap_err();
            assert!(message.contains(expected), "{url:?}: {message}");
            assert!(!message.contains("secret") && !message.contains("cret@"), "{url:?}: {message}");
        }
    }

    #[test]
    fn tls_needs_a_feature_of_this_library_and_checks_certificates() {
        let enabled = cfg!(feature = "tls-rustls");
        for url in ["rediss://user:secret@h:7/1", "valkeys://h:7"] {
            let address = Address::parse(url);
            assert_eq!(address.is_ok(), enabled, "{url}");
            let message = address.as_ref().err().cloned().unwrap_or_default();
            assert!(enabled || message.contains("tls-rustls"), "{message}");
            let has_tls = |address: Address| matches!(address.endpoint(), Endpoint::Tcp { host, port: 7, tls: Some(_) } if host == "h");
            assert!(address.is_ok_and(has_tls) || !enabled, "{url}");
        }
        assert!(Address::parse("rediss://h#insecure").is_err());
        let of_a_socket = InstanceSettings { tls: Some(Tls::new()), ..InstanceSettings::default() };
        assert!(Address::new("unix:///tmp/x.sock", of_a_socket).unwrap_err().contains("takes no TLS"));
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn errors_about_certificates_do_not_show_the_key() {
        let message =
            |tls| Address::new("rediss://h", InstanceSettings { tls: Some(tls), ..InstanceSettings::default() });
        let ca = message(Tls::new().ca("no PEM")).unwrap_err();
        assert!(ca.contains("Tls::ca"), "{ca}");
        let identity = message(Tls::new().client_certificate("no PEM", "secret")).unwrap_err();
        assert!(identity.contains("Tls::client_certificate") && !identity.contains("secret"), "{identity}");
    }

    #[test]
    fn times_that_no_system_takes_are_refused() {
        let takes = |keep_alive: Option<u64>, user_timeout: Option<u64>| {
            let keep_alive = keep_alive.map(Duration::from_millis);
            let user_timeout = user_timeout.map(Duration::from_millis);
            let tcp = TcpSettings { keep_alive, user_timeout, ..TcpSettings::default() };
            Address::new("redis://h", InstanceSettings { tcp, ..InstanceSettings::default() }).is_ok()
        };
        assert_eq!([999, 1_000, 32_767_999, 32_768_000].map(|ms| takes(Some(ms), None)), [false, true, true, false]);
        assert_eq!([0, 1, 1 << 31].map(|ms| takes(None, Some(ms))), [false, true, false]);
    }

    #[test]
    fn a_client_name_that_no_server_takes_is_refused() {
        let named = |name: &str| {
            let client_name = Some(name.to_owned());
            Address::new("redis://h", InstanceSettings { client_name, ..InstanceSettings::default() }).is_ok()
        };
        assert!(named("billing-1") && named(&"x".repeat(200)));
        assert!(!named("") && !named("a b") && !named("a\n") && !named(&"x".repeat(201)));
    }
}
