//! Addresses with and without the secrets that belong to them.

use std::fmt::Write;

/// As the library takes it: a bare `host:port` is of Redis without TLS.
pub(super) fn with_scheme(address: &str) -> String {
    if address.contains("://") { address.to_owned() } else { format!("redis://{address}") }
}

/// Why it would not be read as it is meant. Nothing of it is repeated, as that may be a part of a password.
pub(super) fn problem(address: &str) -> Option<&'static str> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_socket = scheme.ends_with("unix");
    let after_host = if is_socket { query } else { rest.trim_start_matches(|c| !"/?#".contains(c)) };
    let known: &[&str] = if is_socket { &["db", "user", "pass", "protocol"] } else { &["protocol"] };
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let host = if is_socket { place } else { place.split(['/', '#']).next().unwrap_or_default() };
    if host.trim().is_empty() {
        Some("it is empty; write host:port, redis://host:port, or rediss:// for TLS")
    } else if after_host.contains('@') {
        Some(
            "in user and password anything but letters and digits must be percent-encoded, or give the password by \
              REDQUORUM_PASSWORD or --password-file",
        )
    } else if query.split('&').any(|option| !option.is_empty() && !known.contains(&name(option).as_str())) {
        Some("after the ? stand options: protocol=resp2 or resp3, and for a socket db=, user= and pass=")
    } else {
        None
    }
}

/// Whether it contains a password, or what may be meant as one.
pub(super) fn has_password(address: &str) -> bool {
    let (_, rest) = address.split_once("://").unwrap_or(("", address));
    let in_query = rest.split_once('?').is_some_and(|(_, query)| query.to_lowercase().contains("pass"));
    in_query || rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
}

/// What stands before the host. A password may contain anything but `/`, so the last `@` counts.
fn login(rest: &str) -> Option<&str> {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit_once('@').map(|(login, _)| login)
}

/// Whether it names a user.
pub(super) fn has_username(address: &str) -> bool {
    let (_, rest) = address.split_once("://").unwrap_or(("", address));
    let in_query = rest.split_once('?').is_some_and(|(_, query)| query.split('&').any(|it| it.starts_with("user=")));
    in_query || login(rest).is_some_and(|login| !login.is_empty() && !login.starts_with(':'))
}

/// The address with this password, unless it has one already.
pub(super) fn with_password(address: &str, username: Option<&str>, password: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://").filter(|_| !has_password(address)) else {
        return address.to_owned();
    };
    if scheme.ends_with("unix") {
        let user = username.map(|user| format!("user={}&", encoded(user))).unwrap_or_default();
        let joint = if rest.contains('?') { '&' } else { '?' };
        return format!("{address}{joint}{user}pass={}", encoded(password));
    }
    let (user, host) = match login(rest) {
        Some(user) => (user.to_owned(), rest.get(user.len() + 1..).unwrap_or_default()),
        None => (username.map(encoded).unwrap_or_default(), rest),
    };
    format!("{scheme}://{user}:{}@{host}", encoded(password))
}

/// For a place in a URL.
fn encoded(text: &str) -> String {
    let mut safe = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            safe.push(byte.into());
        } else {
            let _ = write!(safe, "%{byte:02X}"); // writing to a text does not fail
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_seen_wherever_it_stands() {
        for address in ["redis://:s@h", "redis://u:s@h:1/2", "u:s@h", "unix:///a?pass=s", "unix:///a?db=1&pass=s"] {
            assert!(has_password(address) && problem(address).is_none(), "{address}");
        }
        for address in
            ["redis://u:s/t@h", "redis://u:s?t@h", "redis://u:s#t@h", "unix:///a?password=s", "redis://h?Pass=s"]
        {
            assert!(has_password(address) && problem(address).is_some(), "{address}");
        }
        for address in ["redis://h:6379", "redis://u@h:1", "h:1", "unix:///a?db=1", "redis://h/0?protocol=resp3"] {
            assert!(!has_password(address) && problem(address).is_none(), "{address}");
        }
        for address in ["", " ", "redis://", "redis:///0", "unix://", "unix:///a?x=1", "redis://h?db=1"] {
            assert!(problem(address).is_some(), "{address:?}");
        }
    }

    #[test]
    fn a_user_is_seen_wherever_it_stands() {
        for address in ["redis://u@h:1", "u@h", "unix:///a?user=u", "unix:///a?db=1&user=u", "redis://u:s@h"] {
            assert!(has_username(address), "{address}");
        }
        for address in ["redis://h", "h:1", "redis://:s@h", "unix:///a?db=1"] {
            assert!(!has_username(address), "{address}");
        }
    }

    #[test]
    fn a_password_is_put_where_it_belongs() {
        let with = |address| with_password(address, None, "a/@:%b");
        assert_eq!(with("redis://h:1/2"), "redis://:a%2F%40%3A%25b@h:1/2");
        assert_eq!(with("redis://u@h"), "redis://u:a%2F%40%3A%25b@h");
        assert_eq!(with("redis://u:own@h"), "redis://u:own@h");
        assert_eq!(with("unix:///x"), "unix:///x?pass=a%2F%40%3A%25b");
        assert_eq!(with_password("redis://h", Some("me"), "s"), "redis://me:s@h");
        assert_eq!(with_password("unix:///x?db=1", Some("me"), "s"), "unix:///x?db=1&user=me&pass=s");
    }
}
