//! Why an instance gave no vote, in words that say what to do.

use std::fmt;

/// What stood between a request and the vote of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The client has only just begun to connect. Nothing was sent.
    Connecting,
    /// This is a child, by `fork()`, of the process that built the client. Nothing was sent.
    Forked,
    /// There is no connection; the text is the last error. Nothing was sent.
    NotConnected(String),
    /// No TLS could be agreed on with what answers at the address. Nothing was sent.
    Tls(String),
    /// The instance's certificate is not trusted, or is for another name. Nothing was sent.
    Certificate(String),
    /// The instance needs a certificate of the client, or refuses the one that it has. Nothing was sent.
    ClientCertificate(String),
    /// What this client needs for TLS cannot be used: a file with certificates or a key, which is named, or what the system trusts. Nothing was sent.
    TlsSettings(String),
    /// No Sentinel of the group names a master; the text has what each of them says. Nothing was sent.
    NoMaster(String),
    /// The provider of credentials failed. Nothing was sent.
    NoCredentials(String),
    /// The program at the address uses another protocol. Nothing was sent.
    OtherProtocol(String),
    /// The program at the address refuses `HELLO`, as no server does that can be used. Nothing was sent.
    NoHello(String),
    /// The instance needs a password, and the address has none (`NOAUTH`).
    PasswordNeeded,
    /// The instance knows no such user with such a password (`WRONGPASS`).
    PasswordRefused,
    /// The instance does not have the database that the address names.
    NoDatabase(String),
    /// The instance left several requests in a row without an answer and is only probed until it
    /// answers. Nothing was sent.
    Silent,
    /// Too many requests to the instance await an answer. Nothing was sent.
    Overloaded,
    /// Its attempt ended before its turn came, as the instance was busy. Nothing was sent.
    Withdrawn,
    /// The instance lost its scripts (`SCRIPT FLUSH`); they are being loaded. Nothing was done.
    ScriptMissing,
    /// It was not known yet whether the user may do all that a lock needs, or what its clock shows. Nothing was done.
    JustConnected,
    /// No answer within the instance timeout. The request may have been carried out.
    TimedOut,
    /// The connection broke after sending. The request may have been carried out.
    Disconnected(String),
    /// The instance is loading its data.
    Loading,
    /// The instance is busy with a long script.
    Busy,
    /// The instance is at its `maxmemory`.
    OutOfMemory,
    /// The instance is a replica.
    ReadOnly,
    /// The instance cannot write for a reason of its own (disk, replicas).
    CannotWrite(String),
    /// The connection's user may not run a command that is needed.
    NoPermission(String),
    /// The connection's user may not use a key that is needed.
    KeyForbidden(String),
    /// Admission needs the instance's `INFO`, which is denied.
    NoInfo(String),
    /// The instance is part of a Redis Cluster and does not serve the key.
    ClusterMode(String),
    /// Any other error of the instance.
    Server(String),
    /// The instance has no admission record for its process: no client that wants locks has written one yet. Nothing was sent.
    Unrecorded,
    /// What the instance has stored may be no vote: it is in quarantine, or was flushed.
    NoVote,
    /// The instance must not be used at all, or not by a client with these settings. Nothing was sent.
    NotUsable(NotUsable),
    /// An answer that no script of this library returns.
    OddReply(String),
    /// The instance's clock is more than a day behind the proposed fencing token. Nothing was done.
    ClockBehind {
        /// What it reads, in seconds since the Unix epoch.
        clock_s: u64,
        /// What the clock read that the token is from.
        token_s: u64,
    },
}

const CHECK_PORT: &str = "check its certificate, and that rediss:// leads to its TLS port";
const TRUST_IT: &str = "trust who signed it with Tls::ca, or name whom it is for with Tls::server_name";
const CHECK_GROUP: &str = "check the addresses of the sentinels, with their port, and the name of the group";
const NO_PROXY: &str =
    "name a server itself and no proxy, Redis 7.0 or later or Valkey, and have no rename-command for HELLO";
const GIVE_PASSWORD: &str = "put one into the address, redis://user:password@host, or give Instance::credentials";
const CHECK_PASSWORD: &str = "check user and password, in the address or from their provider";
const FORKED: &str = "the client was built in another process, before a fork; build one in this process";
const CHANGING: &str = "(see 'changing max_ttl' in redquorum::guide::operations)";
const GIVE_ONE: &str = "give it one that it trusts with Tls::client_certificate";

impl Cause {
    /// Whether requests for other locks may meet with another answer.
    pub const fn may_be_of_one_request(&self) -> bool {
        matches!(
            self,
            Self::KeyForbidden(_) | Self::NoPermission(_) | Self::ClusterMode(_) | Self::Server(_) | Self::OddReply(_)
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => write!(f, "connecting for the first time"),
            Self::Forked => write!(f, "{FORKED}"),
            Self::NotConnected(last) => write!(f, "not connected ({last}); check that it runs and can be reached"),
            Self::Tls(error) => write!(f, "no TLS with it ({error}); {CHECK_PORT}"),
            Self::Certificate(error) => write!(f, "its certificate is not accepted ({error}); {TRUST_IT}"),
            Self::ClientCertificate(error) => write!(f, "it wants a certificate of the client ({error}); {GIVE_ONE}"),
            Self::TlsSettings(error) => write!(f, "TLS cannot be set up ({error}); it is read again at each connect"),
            Self::NoMaster(said) => write!(f, "no sentinel names its master ({said}); {CHECK_GROUP}"),
            Self::NoCredentials(error) => {
                write!(f, "the provider of its credentials failed ({error}); nothing was sent, it is asked again")
            }
            Self::OtherProtocol(words) => write!(
                f,
                "the program at the address is no Redis or Valkey ({words}); check host and port, and whether it wants TLS (rediss://)"
            ),
            Self::NoHello(words) => write!(f, "it refuses HELLO ({words}); {NO_PROXY}"),
            Self::PasswordNeeded => write!(f, "it requires a password (NOAUTH); {GIVE_PASSWORD}"),
            Self::PasswordRefused => write!(f, "it refuses the password (WRONGPASS); {CHECK_PASSWORD}"),
            Self::NoDatabase(error) => write!(f, "it refuses the database ({error}); check its number in the address"),
            Self::Silent => {
                write!(f, "silent: several requests in a row went unanswered; it is probed until it answers")
            }
            Self::Overloaded => write!(f, "too many requests to it await an answer; use fewer at once"),
            Self::Withdrawn => write!(f, "busy with earlier requests until the attempt had ended"),
            Self::ScriptMissing => write!(f, "its scripts were flushed and are being loaded again"),
            Self::JustConnected => write!(f, "it was connected only just now; try again"),
            Self::TimedOut => write!(f, "no answer within the instance timeout"),
            Self::Disconnected(error) => write!(f, "the connection broke ({error})"),
            Self::Loading => write!(f, "loading its data; it answers when that is done"),
            Self::Busy => write!(f, "busy with a long script; see SCRIPT KILL"),
            Self::OutOfMemory => write!(f, "at its maxmemory; raise it or free keys"),
            Self::ReadOnly => write!(f, "a read-only replica; locks need a master at this address"),
            Self::CannotWrite(error) => write!(f, "cannot write: {error}"),
            Self::NoPermission(error) => {
                write!(f, "permission denied: {error}; grant the commands named in redquorum::guide::operations")
            }
            Self::KeyForbidden(error) => write!(
                f,
                "permission denied: {error}; grant the keys of the locks and redquorum:*, see redquorum::guide::operations"
            ),
            Self::NoInfo(denied) => {
                write!(
                    f,
                    "permission denied: admission needs INFO and TIME ({denied}); grant them (with Admission::Off an instance that forgot locks grants them again)"
                )
            }
            Self::ClusterMode(error) => write!(f, "in cluster mode ({error}); locks need standalone masters"),
            Self::Server(error) => write!(f, "error: {error}"),
            Self::Unrecorded => {
                write!(
                    f,
                    "it has no admission record yet; the first client that wants a lock writes one, and then it waits, unless an \
                     operator runs 'redquorum admission open'"
                )
            }
            Self::NoVote => {
                write!(f, "it may have forgotten locks, and until it votes again what it stores shows no holder")
            }
            Self::NotUsable(reason) => write!(f, "not usable: {reason}"),
            Self::OddReply(reply) => write!(f, "an unexpected answer: {reply}"),
            Self::ClockBehind { clock_s, token_s } => write!(
                f,
                "its clock ({clock_s} s since 1970) is more than a day behind the one that the fencing token is from \
                 ({token_s} s); set the clocks"
            ),
        }
    }
}

/// Why an instance is not used at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotUsable {
    /// It is a replica.
    Replica,
    /// It is a Sentinel, which keeps no data.
    Sentinel,
    /// It is compatible with this version of Redis only, which is too old.
    TooOld(String),
    /// Its `INFO` lacks this field: what it is, or whether it is the same process, is not known.
    Untold(&'static str),
    /// Its record allows longer ttls than this client's quarantine, both in milliseconds: other clients may use them.
    QuarantineBelowRecord {
        /// The longest ttl that its record allows.
        recorded_ms: u64,
        /// The quarantine of this client: its `max_ttl` unless it is set to more.
        ours_ms: u64,
    },
    /// This client may use longer ttls than its record allows, both in milliseconds.
    TtlAboveRecord {
        /// The longest ttl that its record allows.
        recorded_ms: u64,
        /// The `max_ttl` of this client.
        ours_ms: u64,
    },
    /// The process is used through this other address, which connected first.
    SameProcess(String),
}

impl NotUsable {
    /// Whether it is a matter of this client's settings beside those of others: the instance is well, and may be looked at.
    pub const fn is_of_settings(&self) -> bool {
        matches!(self, Self::QuarantineBelowRecord { .. } | Self::TtlAboveRecord { .. })
    }
}

impl fmt::Display for NotUsable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica => write!(f, "it is a replica; locks need an independent master at this address"),
            Self::Sentinel => write!(f, "it is a Sentinel; locks need the address of a master itself"),
            Self::TooOld(version) => {
                write!(f, "it is compatible with Redis {version} only; locks need Redis 7.0 or later, or Valkey")
            }
            Self::Untold(field) => {
                write!(f, "its INFO has no {field:?}: a proxy, or neither Redis nor Valkey; name the server itself")
            }
            Self::QuarantineBelowRecord { recorded_ms, ours_ms } => write!(
                f,
                "its record allows ttls of {recorded_ms} ms, and this client makes instances wait for {ours_ms} ms only; give it a \
                 quarantine of {recorded_ms} ms, or, once no client uses a ttl above {ours_ms} ms, run \
                 'redquorum admission set --quarantine {ours_ms}ms' {CHANGING}"
            ),
            Self::TtlAboveRecord { recorded_ms, ours_ms } => write!(
                f,
                "its record allows ttls of {recorded_ms} ms, and this client may ask for {ours_ms} ms; give it a max_ttl of \
                 {recorded_ms} ms, or, once all clients have a quarantine of {ours_ms} ms, run \
                 'redquorum admission set --quarantine {ours_ms}ms' {CHANGING}"
            ),
            Self::SameProcess(address) => {
                write!(
                    f,
                    "it is the same server process as {address}, which has one vote; or a copy of it, which must be restarted"
                )
            }
        }
    }
}
