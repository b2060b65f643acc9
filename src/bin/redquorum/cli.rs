//! What can be said on the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::settings::duration::parse;

/// Distributed locks over independent Redis or Valkey masters.
#[derive(Debug, Parser)]
#[command(name = "redquorum", version, propagate_version = true, after_help = format!("{SOURCES}\n\n{EXIT_STATUS}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const SOURCES: &str = "\
Instances are taken from -i, else from REDQUORUM_INSTANCES (separated by spaces or commas), else from the file.
Each option that all commands have is also a variable (REDQUORUM_MAX_TTL=30s for --max-ttl) and a setting in the file
(max_ttl = '30s'). Options override variables, and variables the file. Unknown variables and settings are errors.
`redquorum config check` shows every setting and where it comes from.
Passwords are taken from REDQUORUM_PASSWORD, a file, or the addresses in REDQUORUM_INSTANCES or the file; never from -i.";

const EXIT_STATUS: &str = "\
Exit status:
    1  `check` or `admission` has found a failure; `inspect`: nothing holds the lock on a quorum; `release`: it is free;
       `elect` without a command: nobody leads
   64  wrong usage; nothing was locked
   69  no quorum of instances, or another failure that the error names
   71  the operating system refused something
   75  another client holds the lock (run -E sets another status)
   78  invalid settings, in the file, in variables or together
   79  the lock was lost while the command ran, or `--keep` or `--at-least` was not confirmed
   80  the lock was lost, and part of the command may still run
  126  the command cannot be run
  127  the command does not exist
Otherwise `run` ends as its command did: with the same status, or by the same signal.";

/// Which instances, and how to connect to them.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// An instance, such as `10.0.0.1:6379` or `redis://10.0.0.1:6379/0`; repeat it, or separate several with commas
    #[arg(short, long = "instance", value_name = "ADDRESS", value_delimiter = ',', global = true)]
    pub(crate) instances: Vec<String>,
    /// A TOML file with settings [or: REDQUORUM_CONFIG]
    #[arg(short, long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The user for the password, for addresses that name none
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) username: Option<String>,
    /// A file with the password of all instances
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// Put before every resource's name
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) namespace: Option<String>,
    /// How long a lock outlives this program if it is killed; until then it is renewed [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, global = true)]
    pub(crate) ttl: Option<Duration>,
    /// The longest ttl of any client of these instances, the same for all of them [default: 10s, or what is recorded for
    /// commands that only look]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, global = true)]
    pub(crate) max_ttl: Option<Duration>,
    /// How long instances that may have forgotten locks wait, while `max_ttl` is being changed [default: `max_ttl`]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, global = true)]
    pub(crate) quarantine: Option<Duration>,
    /// How long to wait for the answer of one instance [default: 200ms]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, global = true)]
    pub(crate) instance_timeout: Option<Duration>,
    /// How long to wait for connections to a quorum, for commands that do not wait for a lock [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, global = true)]
    pub(crate) connect_timeout: Option<Duration>,
    /// A PEM file with the CA of the instances' certificates [default: those that the system trusts]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A PEM file with the client certificate
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file with the key of the client certificate
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// The votes needed, if more than a majority
    #[arg(long, value_name = "VOTES", allow_negative_numbers = true, global = true)]
    pub(crate) quorum: Option<usize>,
    /// Let instances vote although they may have forgotten locks; must be the same for all clients
    #[arg(long, global = true)]
    pub(crate) no_admission: bool,
    /// Keep them from voting, even if a variable or the file turns admission off [the default]
    #[arg(long, global = true, overrides_with = "no_admission")]
    pub(crate) admission: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lock
    Run(RunArgs),
    /// Run a command on the one machine that leads, or show who leads
    ///
    /// With a command it campaigns, runs the command while it leads, ends the command if the lead is lost, and campaigns again until the
    /// command has ended by itself.
    Elect(ElectArgs),
    /// Show the state of each instance, and whether a quorum may vote
    Status(StatusArgs),
    /// Show who holds a lock
    Inspect(InspectArgs),
    /// List the locks
    List(ListArgs),
    /// Take a lock away from its holder
    Release(ReleaseArgs),
    /// Check an installation before it goes live
    Check(CheckArgs),
    /// Show, write or change the records that let instances vote
    #[command(subcommand)]
    Admission(AdmissionCommand),
    /// Check the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure how long locks take, and advise a ttl and a timeout
    Bench(BenchArgs),
    /// Write the completions of a shell
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Write the man page
    Man,
}

/// How it is written.
#[derive(Debug, Args)]
pub(crate) struct Form {
    /// Write JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the state of each instance, and whether a quorum may vote.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// For probes, which read the exit status: 0 if a lock could be acquired now. Write only why not, on standard error
    #[arg(short, long, conflicts_with_all = ["json", "watch"])]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    /// Repeat the output at this interval
    #[arg(long, value_name = "TIME", value_parser = parse_some, num_args = 0..=1, default_missing_value = "2s")]
    pub(crate) watch: Option<Duration>,
}

/// Show, write or change the records that let instances vote.
#[derive(Debug, Subcommand)]
pub(crate) enum AdmissionCommand {
    /// Show the record of each instance, and whether a client with these settings gets votes
    Show {
        #[command(flatten)]
        form: Form,
    },
    /// Let new servers vote at once, on your word that no lock was held on them
    ///
    /// Servers cannot show that: all of them may have been restarted empty while a lock was held. So do it by hand, once,
    /// when a cluster is set up and before its clients start, and never from a script that starts servers. Without it they
    /// wait for a quarantine, which is safe.
    Open(OpenArgs),
    /// Give the records another time: the longest ttl that instances vote for
    ///
    /// To raise it give all clients the longer quarantine, then run this with it, then give them the longer max_ttl. To lower
    /// it give all clients the shorter max_ttl, wait for the former one, and run this for one instance after the other, with
    /// -i: each waits for the former time before it votes again. Go on to the next when `admission show` says that it votes,
    /// and after half of the longest ttl. Then give the clients the shorter quarantine. All at once, no lock could be
    /// acquired while they wait, so that needs --all-at-once.
    Set(SetArgs),
}

/// Check the settings. Connects to nothing.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show each setting and where it comes from, and say what cannot be used
    Check {
        #[command(flatten)]
        form: Form,
    },
}

/// Let new servers vote at once.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// Your word: no lock was held on any of these servers within this time. It must be at least as long as --quarantine (or
    /// --max-ttl, if you give only that), the longest ttl that they will vote for
    #[arg(long, value_name = "TIME", value_parser = parse_some, required = true)]
    pub(crate) no_lock_was_held_within: Duration,
    /// Look whether it could be done, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Give the records another time.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Shorten it on several instances at once, though none of them votes until the former time is over
    #[arg(long)]
    pub(crate) all_at_once: bool,
    /// Look whether it could be done, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Check an installation before it goes live.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The lock to try, for a user who may not lock every name
    #[arg(short, long, default_value = "redquorum-check", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) resource: String,
    /// Write only what fails, on standard error. Whether a lock can be acquired now is said by `status --quiet`
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Measure how long locks take, and advise a ttl and a timeout.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// For how long to measure
    #[arg(long, value_name = "TIME", value_parser = parse_second, allow_hyphen_values = true, default_value = "60s")]
    pub(crate) time: Duration,
    /// Take no lock and write nothing: measure how long each instance takes to answer a read
    #[arg(long)]
    pub(crate) dry: bool,
    /// The beginning of the names that it locks
    #[arg(short, long, default_value = "redquorum-bench", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Show who holds a lock.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// What is locked
    pub(crate) resource: String,
    /// Write only what fails, on standard error: the exit status is 0 if a client holds it, and 1 if none does
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// List the locks.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those whose names match, as in `orders:*`
    #[arg(long = "match", id = "pattern", value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: String,
    /// Look at about so many keys of each instance
    #[arg(long, value_name = "KEYS", default_value_t = 100_000)]
    pub(crate) most: usize,
    /// Show at most so many locks
    #[arg(long, value_name = "LOCKS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Begin behind the last lock of the page before, as that page has named it
    #[arg(long, value_name = "RESOURCE", default_value = "", hide_default_value = true)]
    pub(crate) after: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Take a lock away from its holder, which may continue its work until it notices.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).args(["holder", "force"])))]
pub(crate) struct ReleaseArgs {
    /// What is locked
    pub(crate) resource: String,
    /// Only if this holder has it, as named by `run --holder`
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) holder: Option<String>,
    /// From any client, after a question
    #[arg(long)]
    pub(crate) force: bool,
    /// Without the question
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// A time in which something can be done.
fn parse_some(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time.is_zero() { Err("it must be more than nothing".to_owned()) } else { Ok(time) }
}

/// A time in which something can be measured.
fn parse_second(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time < Duration::from_secs(1) { Err("it must be 1s at least".to_owned()) } else { Ok(time) }
}

/// The command reads them one a line.
fn one_line(name: &str) -> Result<String, &'static str> {
    if name.contains('\n') { Err("it must be one line") } else { Ok(name.to_owned()) }
}

/// Run a command under a lock.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct RunArgs {
    /// What to lock; several are locked together, all or nothing
    #[arg(short, long = "resource", value_name = "RESOURCE", required = true, value_parser = one_line)]
    pub(crate) resources: Vec<String>,
    /// Read the lock: any number of commands run beside each other, and none beside one that has the lock without this
    #[arg(long, conflicts_with_all = ["keep", "at_least", "permits"])]
    pub(crate) shared: bool,
    /// Run at most so many of these commands at a time, everywhere together: the resource is a semaphore of 1 to 256 permits
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "holder")]
    pub(crate) permits: Option<u32>,
    /// The info of a candidate, for `elect`
    #[arg(skip)]
    pub(crate) info: Option<String>,
    /// Wait for the lock at most so long, and for connections [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, conflicts_with = "once")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(long = "try", id = "once")]
    pub(crate) once: bool,
    /// A name for the holder, shown to others, and for `release --holder`
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) holder: Option<String>,
    /// If the command ends with status 0, let no client have the lock for so long
    #[arg(long, value_name = "TIME", value_parser = parse_some, allow_hyphen_values = true)]
    pub(crate) keep: Option<Duration>,
    /// With --try: let no client have the lock again for so long from when this has acquired it, also if the command fails
    #[arg(long, value_name = "TIME", value_parser = parse_some, allow_hyphen_values = true, requires = "once")]
    #[arg(conflicts_with_all = ["keep", "permits"])]
    pub(crate) at_least: Option<Duration>,
    /// After so long renew the lock no more, and end the command as if it was lost
    #[arg(long, value_name = "TIME", value_parser = parse_some, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// The exit status if another client holds the lock
    #[arg(short = 'E', long, value_name = "STATUS", allow_negative_numbers = true, default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Let the command inherit REDQUORUM_PASSWORD and REDQUORUM_INSTANCES, for one that runs this program itself
    #[arg(long)]
    pub(crate) pass_environment: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Run a command on the one machine that leads, or show who leads.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct ElectArgs {
    /// The name of the election, the same for all candidates
    #[arg(value_parser = one_line)]
    pub(crate) election: String,
    /// What other clients see of this candidate, as the address at which it listens
    #[arg(long, value_name = "TEXT", requires = "command")]
    pub(crate) info: Option<String>,
    /// Campaign at most so long, connecting included; without end if not given
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, requires = "command")]
    pub(crate) wait: Option<Duration>,
    /// End the command if it has led for so long, and campaign again
    #[arg(long, value_name = "TIME", value_parser = parse_some, allow_hyphen_values = true, requires = "command")]
    pub(crate) max_hold: Option<Duration>,
    /// The status to end with where another candidate led all the time
    #[arg(short = 'E', long, value_name = "STATUS", allow_negative_numbers = true, default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Leave the command REDQUORUM_PASSWORD and REDQUORUM_INSTANCES, for one that runs this program itself
    #[arg(long, requires = "command")]
    pub(crate) pass_environment: bool,
    /// Show each leader that follows, too
    #[arg(long, conflicts_with = "command")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "info")]
    pub(crate) command: Vec<OsString>,
}
