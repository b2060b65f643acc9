//! What an error means, and how much of a server's own words is passed on.

use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::protocol::Cause;

/// The longest piece of a server's own words that is kept.
const MAX_TEXT: usize = 200;

/// What stands in place of the rest.
const CUT: &str = " ..";

/// What comes before the words of the command in the answer to one that the server does not know.
const ECHO: &str = ", with args beginning with";

/// What an error of the server means, after any request.
pub(crate) fn server_cause(code: &str, details: &str) -> Cause {
    let text = || clip(details);
    match code {
        "LOADING" => Cause::Loading,
        "BUSY" => Cause::Busy,
        "OOM" => Cause::OutOfMemory,
        "READONLY" => Cause::ReadOnly,
        "MASTERDOWN" | "MISCONF" | "NOREPLICAS" => Cause::CannotWrite(text()),
        "NOAUTH" => Cause::PasswordNeeded,
        "WRONGPASS" => Cause::PasswordRefused,
        "NOPERM" => denied(details),
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" | "TRYAGAIN" => Cause::ClusterMode(text()),
        _ => wrapped(details).unwrap_or_else(|| Cause::Server(clip(&format!("{code} {details}")))),
    }
}

/// What the user of the connection may not do: run a command, or use a key.
fn denied(details: &str) -> Cause {
    let is_about_keys = details.contains("access") && details.contains("key");
    let text = clip(details);
    if is_about_keys { Cause::KeyForbidden(text) } else { Cause::NoPermission(text) }
}

/// Some errors have a generic code and the real one in the text, as those of commands inside a
/// script on older servers.
fn wrapped(text: &str) -> Option<Cause> {
    let says = |word: &str| text.contains(word);
    if says("used memory > 'maxmemory'") {
        Some(Cause::OutOfMemory)
    } else if says("READONLY") || says("read only replica") || says("read only slave") {
        Some(Cause::ReadOnly)
    } else if ["NOPERM", "user executing the script can't", "o permissions", "ACL failure in script"]
        .into_iter()
        .any(says)
    {
        Some(denied(text))
    } else if says("not allowed in cluster mode") {
        Some(Cause::ClusterMode(clip(text)))
    } else if says("DB index") || says("invalid DB") {
        Some(Cause::NoDatabase(clip(text)))
    } else {
        None
    }
}

/// What keeps an instance from being used, by the error that ended connecting or admission.
pub(crate) fn failed(error: &RedisError) -> Cause {
    // Several commands in one message may fail together; the first one says why.
    if let Some((_, first)) = error.clone().into_server_errors().and_then(|errors| errors.first().cloned()) {
        return server_cause(first.code(), first.details().unwrap_or_default());
    }
    let detail = || clip(error.detail().unwrap_or(error.category()));
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Cause::OtherProtocol(detail()),
        // A server's error that the client library has put into its own words.
        ErrorKind::Server(_) => wrapped(error.detail().unwrap_or_default()).unwrap_or_else(|| Cause::Server(detail())),
        ErrorKind::Io if is_about_tls(error) => about_tls(&error.to_string()),
        _ => Cause::NotConnected(clip(&error.to_string())),
    }
}

/// The TLS libraries hide in an error of the connection.
fn is_about_tls(error: &RedisError) -> bool {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let inner = std::error::Error::source(error).and_then(|error| error.downcast_ref::<Shared>());
    let io = inner.and_then(|inner| inner.downcast_ref::<io::Error>());
    let text = error.to_string();
    io.is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
        || ["ertificate", "TLS"].iter().any(|word| text.contains(word))
}

/// Which side's certificate is at fault, in the words of rustls, if any.
fn about_tls(text: &str) -> Cause {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // An alert is what the instance says of ours.
    if says(&["alert"]) && says(&["ertificate", "UnknownCA"]) {
        Cause::ClientCertificate(clip(text))
    } else if says(&["peer certificate"]) {
        Cause::Certificate(clip(text))
    } else {
        Cause::Tls(clip(text))
    }
}

/// Cuts a server's words to a length that fits into an error message, on one line. What it repeats
/// of the command is left out: that may be a whole script.
pub(crate) fn clip(text: &str) -> String {
    let own = text.split(ECHO).next().unwrap_or_default().trim();
    let line: String = own.chars().take(MAX_TEXT + 1).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= MAX_TEXT {
        return line;
    }
    // The last whole word that leaves room for the dots; one that has no end is cut.
    let room: String = line.chars().take(MAX_TEXT - CUT.len()).collect();
    let whole = room.rsplit_once(' ').map_or(&*room, |(whole, _)| whole);
    format!("{}{CUT}", whole.trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Parser;

    use super::*;

    proptest! {
        #[test]
        fn the_words_of_a_server_are_kept_short_and_on_one_line(text in any::<String>()) {
            let kept = clip(&text);
            prop_assert!(kept.chars().count() <= MAX_TEXT && !kept.chars().any(char::is_control));
        }

        #[test]
        fn the_words_of_a_server_are_cut_between_two_of_them(words in prop::collection::vec("[a-z]{1,20}", 1..60)) {
            let text = words.join(" ");
            let kept = clip(&text);
            prop_assert!(kept.len() <= MAX_TEXT);
            let whole = kept.strip_suffix(CUT);
            prop_assert_eq!(whole.is_none(), text.len() <= MAX_TEXT);
            prop_assert!(text.starts_with(whole.unwrap_or(&kept)));
            prop_assert!(whole.is_none_or(|whole| text[whole.len()..].starts_with(' ')), "{}", kept);
        }
    }

    #[test]
    fn causes_of_failed_connections_are_distinguished() {
        use std::io::{Error, ErrorKind};
        let of = |error: Error| failed(&RedisError::from(error));
        let corrupt = Error::new(ErrorKind::InvalidData, "received corrupt message of type InvalidContentType");
        assert!(matches!(of(corrupt), Cause::Tls(_)));
        let theirs = of(Error::other("invalid peer certificate: UnknownIssuer"));
        assert!(matches!(theirs, Cause::Certificate(_)), "{theirs:?}");
        for text in ["received fatal alert: CertificateRequired", "received fatal alert: UnknownCA"] {
            assert!(matches!(of(Error::new(ErrorKind::InvalidData, text)), Cause::ClientCertificate(_)), "{text}");
        }
        let io = failed(&RedisError::from(Error::from(ErrorKind::ConnectionRefused)));
        assert!(matches!(io, Cause::NotConnected(_)), "{io:?}");
        let http = Parser::new().parse_value(b"HTTP/1.1 400 Bad Request\r\n".as_slice()).unwrap_err();
        assert!(matches!(failed(&http), Cause::OtherProtocol(_)));
    }
}
