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
Every option that all commands have may also be given in the environment, as REDQUORUM_MAX_TTL=30s for --max-ttl, or in
the file, as max_ttl = '30s'. Options count first, then the environment. What is not known there is an error. `redquorum
config check` shows what counts.
Passwords are taken from REDQUORUM_PASSWORD, a file, or the addresses in REDQUORUM_INSTANCES or the file; never from -i.";

const EXIT_STATUS: &str = "\
Exit status:
   64  wrong usage; nothing was locked
   69  no quorum of instances, or the lock could not be acquired for another reason that is told
   71  the operating system refused something
   75  somebody else has the lock (run -E names another status for this)
   78  the file or the environment cannot be used, or settings do not go together
   79  the lock was lost while the command ran, or before it was released
   80  the lock was lost, and something of the command could not be ended
  126  the command cannot be run
  127  the command is not there
`run` else ends as its command has: with its status, or by the same signal.";

/// Which instances, and how to speak to them.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// An instance, as in `10.0.0.1:6379` or `redis://10.0.0.1:6379/0`; once for each, or several with commas
    #[arg(short, long = "instance", value_name = "ADDRESS", value_delimiter = ',', global = true)]
    pub(crate) instances: Vec<String>,
    /// A TOML file with settings [or: REDQUORUM_CONFIG]
    #[arg(short, long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The user whose password it is, for addresses that name none
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) username: Option<String>,
    /// A file with the password of all instances
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// Put before every resource's name
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) namespace: Option<String>,
    /// How long a lock outlives this program if that is killed; renewed meanwhile [default: 10s]
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
    /// How long to wait for connections to a quorum [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, global = true)]
    pub(crate) connect_timeout: Option<Duration>,
    /// A PEM file with who signs the instances' certificates [default: whom the system trusts]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A PEM file with a certificate to show to the instances
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file with its key
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// The votes needed, if more than a majority
    #[arg(long, value_name = "VOTES", allow_negative_numbers = true, global = true)]
    pub(crate) quorum: Option<usize>,
    /// Let instances vote that may have forgotten locks; must be the same for all clients
    #[arg(long, global = true)]
    pub(crate) no_admission: bool,
    /// Keep them from voting, also where the environment or the file says otherwise [the default]
    #[arg(long, global = true, overrides_with = "no_admission")]
    pub(crate) admission: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lock
    Run(RunArgs),
    /// Run a command on the one machine that leads, or show who leads
    Elect(ElectArgs),
    /// Show how the instances do, and whether a quorum could vote now
    Status(StatusArgs),
    /// Show who has a lock
    Inspect(InspectArgs),
    /// Show the locks that there are
    List(ListArgs),
    /// Take a lock away from its holder
    Release(ReleaseArgs),
    /// Look for what an installation needs before it goes live
    Check(CheckArgs),
    /// Show, write or change the records that let instances vote
    #[command(subcommand)]
    Admission(AdmissionCommand),
    /// Look at the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure how long locks take, and say what ttl and timeouts that asks for
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

/// Show how the instances do, and whether a quorum could vote now.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) form: Form,
    /// Show it again and again, every so often
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
    Open(OpenArgs),
    /// Give the records another time: the longest ttl that instances vote for
    Set(SetArgs),
}

/// Look at the settings. Nothing is connected.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show each setting that counts and where it comes from, and say what cannot be used
    Check {
        #[command(flatten)]
        form: Form,
    },
}

/// Let new servers vote at once, on your word that no lock was held on them. Servers cannot show that: all of them may have
/// been restarted empty under somebody's lock. So do it by hand, once, when a cluster is set up and before its clients
/// start, and never from a script that starts servers. Without it they wait for a quarantine, and that is safe.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// Your word: nobody held a lock on any of these servers within this time. It must be as long as --quarantine, which must be
    /// given too, as the longest ttl that they vote for (--max-ttl, if you give only that)
    #[arg(long, value_name = "TIME", value_parser = parse_some, required = true)]
    pub(crate) no_lock_was_held_within: Duration,
    /// Look whether it could be done, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Give the records another time: the longest ttl that instances vote for. To raise it give all clients the longer
/// quarantine, then run this with it, then give them the longer max_ttl. To lower it give all clients the shorter max_ttl, wait
/// for the former one, run this, wait until all instances vote again, then give them the shorter quarantine.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Look whether it could be done, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Look for what an installation needs before it goes live.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// What to lock for a moment, where the user may not lock everything
    #[arg(short, long, default_value = "redquorum-check", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Measure how long locks take, and say what ttl and timeouts that asks for.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// For how long to measure
    #[arg(long, value_name = "TIME", value_parser = parse_second, allow_hyphen_values = true, default_value = "60s")]
    pub(crate) time: Duration,
    /// Take no lock and write nothing: measure how long each instance takes to answer a question
    #[arg(long)]
    pub(crate) dry: bool,
    /// How the names of the locks begin that it takes
    #[arg(short, long, default_value = "redquorum-bench", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Show who has a lock.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// What is locked
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Show the locks that there are.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those whose names match, as in `orders:*`
    #[arg(long = "match", id = "pattern", value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: String,
    /// Look at about so many keys of each instance
    #[arg(long, value_name = "KEYS", default_value_t = 100_000)]
    pub(crate) most: usize,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Take a lock away from its holder, which may go on with its work until it notices.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).args(["holder", "force"])))]
pub(crate) struct ReleaseArgs {
    /// What is locked
    pub(crate) resource: String,
    /// Only if this holder has it, as it was named to `run --holder`
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) holder: Option<String>,
    /// Whoever has it; asks before
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
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
    #[arg(long, conflicts_with_all = ["keep", "permits"])]
    pub(crate) shared: bool,
    /// Run at most so many of these commands at a time, everywhere together: the resource is a semaphore of 1 to 256 permits
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "holder")]
    pub(crate) permits: Option<u32>,
    /// What a candidate tells of itself, for `elect`
    #[arg(skip)]
    pub(crate) info: Option<String>,
    /// Wait for the lock at most so long; without end if not given
    #[arg(long, value_name = "TIME", value_parser = parse, allow_hyphen_values = true, conflicts_with = "once")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(long = "try", id = "once")]
    pub(crate) once: bool,
    /// Who wants the lock: shown to others, and what `release --holder` goes by
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) holder: Option<String>,
    /// After a command that succeeded, let nobody have the lock for so long
    #[arg(long, value_name = "TIME", value_parser = parse_some, allow_hyphen_values = true)]
    pub(crate) keep: Option<Duration>,
    /// End the command if it has had the lock for so long
    #[arg(long, value_name = "TIME", value_parser = parse_some, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// The status to end with where somebody else has the lock
    #[arg(short = 'E', long, value_name = "STATUS", allow_negative_numbers = true, default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Leave the command REDQUORUM_PASSWORD and REDQUORUM_INSTANCES, for one that runs this program itself
    #[arg(long)]
    pub(crate) pass_environment: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Run a command on the one machine that leads: it campaigns, runs the command while it leads, ends the command if the lead is lost, and
/// campaigns again until the command has ended by itself. Without a command it shows who leads.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct ElectArgs {
    /// The name of the election, the same for all candidates
    #[arg(value_parser = one_line)]
    pub(crate) election: String,
    /// What others are told of this candidate, as the address at which it listens
    #[arg(long, value_name = "TEXT", requires = "command")]
    pub(crate) info: Option<String>,
    /// Campaign at most so long; without end if not given
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
