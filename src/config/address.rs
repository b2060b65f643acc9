//! Addresses with and without the secrets that belong to them.

use crate::instance::redis::is_readable;

/// In place of a secret.
pub(super) const HIDDEN: &str = "***";

/// Only addresses with TLS have it.
pub(super) fn is_with_tls(address: &str) -> bool {
    ["rediss://", "valkeys://"].iter().any(|scheme| address.starts_with(scheme))
}

/// For people: no password, and nothing of an address in which it is not sure where a password ends.
pub(super) fn without_password(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or((None, address), |(scheme, rest)| (Some(scheme), rest));
    let is_in_query = rest.split_once('?').is_some_and(|(_, query)| query.to_lowercase().contains("pass"));
    // A password may contain anything but `/`, so the last `@` counts.
    let login = rest.rsplit_once('@').filter(|(login, _)| login.contains(':'));
    let shown = match login {
        None if !is_in_query && is_readable(address) => return address.to_owned(),
        None if !is_in_query => return "(not an address)".to_owned(),
        Some((login, host)) if !is_in_query && !login.contains(['/', '?']) => {
            format!("{}:{HIDDEN}@{host}", login.split(':').next().unwrap_or_default())
        }
        _ => HIDDEN.to_owned(),
    };
    scheme.map_or_else(|| shown.clone(), |scheme| format!("{scheme}://{shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_seen_wherever_it_stands_and_never_shown() {
        for (address, shown) in [
            ("redis://:secret@h", "redis://:***@h"),
            ("redis://u:secret@h:1/2", "redis://u:***@h:1/2"),
            ("u:secret@h", "u:***@h"),
            ("redis://u:sec@ret@h", "redis://u:***@h"),
            ("unix:///a?pass=secret", "unix://***"),
            ("unix:///a?db=1&pass=secret", "unix://***"),
            ("redis://u:secret/t@h", "redis://***"),
            ("redis://u:secret?t@h", "redis://***"),
            ("redis://u:secret#t@h", "redis://u:***@h"),
            ("unix:///a?password=secret", "unix://***"),
            ("redis://h?Pass=secret", "redis://***"),
            ("redis://u:secret@h/a:b@c", "redis://***"),
            ("unix:///a:secret@b", "unix://***"),
        ] {
            assert_eq!(without_password(address), shown, "{address}");
        }
        for address in ["redis://h:6379", "redis://u@h:1", "h:1", "unix:///a?db=1", "redis://h/0?protocol=resp3"] {
            assert_eq!(without_password(address), address);
        }
        for address in ["htp://secret", "h:secret", "redis://h/secret", "redis://h?db=secret", ""] {
            assert_eq!(without_password(address), "(not an address)", "{address}");
        }
    }
}
