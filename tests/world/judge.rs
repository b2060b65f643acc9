//! What the world knows and no client can: when each request left, what came of it on its server, when the
//! answer was there, and what each server had forgotten by then. The invariants judge by it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use redquorum::FencingToken;
use redquorum::testing::simulation::{Denial, KeyState, Said, Step, StepKind};

use crate::deeds::Deed;
use crate::faults::FaultKind;
use crate::invariants::nobody::AcquiredTogether;
use crate::invariants::rivals::Refusal;
use crate::movers::Moved;
use crate::net::{Connection, Passed, Way, last_passed, passed};
use crate::world::World;

/// For how long a clock that was stepped or stood still may leave its clients in doubt about another.
const HIDDEN: Duration = Duration::from_secs(4);

/// As far ahead of the clock a token of one server alone is followed, with room for clocks that differ.
const BELIEVED: Duration = Duration::from_secs(50);

/// Each connection, in the order in which they were made.
#[derive(Default)]
pub(crate) struct Judge {
    pub(crate) connections: Vec<Connected>,
    pub(crate) rounds: HashMap<Vec<u8>, Rounds>,
    pub(crate) readings: Vec<Reading>,
    /// What happened to servers.
    pub(crate) accidents: Vec<Accident>,
    /// After how many commands the keys of locks were deleted on which server.
    pub(crate) deleted: Vec<(usize, u64)>,
    /// The same, for tokens that were stored by hand.
    odd_tokens: Vec<(usize, u64)>,
    /// What a server has denied, and from which of its commands to which.
    pub(crate) denials: Vec<(usize, Range<u64>, Denial)>,
    /// On which server an operator has set a shorter time, when, and what was allowed before (P29).
    pub(crate) lowered: Vec<(usize, Duration, [Duration; 2])>,
    /// What stood in the way of rounds.
    pub(crate) refusals: Vec<Refusal>,
    /// Plain sets whose token has not come yet: over which connection, and of which value.
    /// Who acquires several names together.
    pub(crate) together: Vec<AcquiredTogether>,
    unraised: Vec<(u64, Vec<u8>, Vec<u8>)>,
    /// The floor of each server at its last step, and how many accidents it had had.
    floors: HashMap<usize, (Option<FencingToken>, usize)>,
}

/// A connection of a client.
pub(crate) struct Connected {
    pub(crate) client: (usize, u64),
    pub(crate) server: usize,
    connection: Connection,
}

impl Connected {
    /// When the client sent the byte with this number.
    pub(crate) fn sent(&self, byte: u64) -> Option<Passed> {
        passed(&self.connection, Way::Up, byte)
    }

    /// When it had read so many bytes; `None` if it has not.
    pub(crate) fn heard(&self, bytes: u64) -> Option<Passed> {
        passed(&self.connection, Way::Down, bytes.checked_sub(1)?)
    }
}

/// What befell a server, after so many of its commands, or the clock of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accident {
    pub(crate) server: usize,
    pub(crate) client: usize,
    pub(crate) command: u64,
    pub(crate) at: Duration,
    pub(crate) what: FaultKind,
    /// By how much a clock was stepped.
    pub(crate) step_us: i64,
}

/// All that was asked under one value (P1).
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) votes: Vec<Vote>,
    /// The latest guard of it was let go then, in true time; `None` while a user may have it.
    pub(crate) let_go: Option<Duration>,
    /// From when on its guard wants it renewed no more, by the clock of its machine.
    pub(crate) not_after: Option<Duration>,
    /// How often a guard of it was given.
    pub(crate) given: u32,
    /// Its first key, and whose it is.
    pub(crate) key: Vec<u8>,
    pub(crate) client: Option<(usize, u64)>,
    /// On which server it was released, and by whom.
    pub(crate) released: HashSet<(usize, (usize, u64))>,
    /// It was detached, by this client last unless that has attached it again (P32).
    pub(crate) moved: Option<Moved>,
    /// It was ever detached: several clients may have it.
    pub(crate) has_copies: bool,
    /// Who has attached it.
    pub(crate) attached: Vec<(usize, u64)>,
    /// It is a reader's.
    pub(crate) reads: bool,
}

/// A key was read on a server.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) key: Vec<u8>,
    pub(crate) client: (usize, u64),
    pub(crate) server: usize,
    pub(crate) sent: Passed,
    connection: u64,
    ends: u64,
    pub(crate) found: Option<Vec<u8>>,
}

/// What a server answered to a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vote {
    pub(crate) kind: StepKind,
    pub(crate) said: Said,
    pub(crate) server: usize,
    pub(crate) connection: u64,
    pub(crate) command: u64,
    /// The command with which the server read its clock for the answer: of plain ones not the one that sets the key.
    sampled: u64,
    /// Where its answer ends.
    ends: u64,
    pub(crate) sent: Passed,
    /// When it was carried out.
    pub(crate) at: Duration,
    pub(crate) token: Option<FencingToken>,
    pub(crate) ttl: Duration,
    /// The longest ttl that the record allows under which it was given.
    pub(crate) longest_ttl: Option<Duration>,
    /// Whether the key and a larger token were stored by it.
    pub(crate) is_whole: bool,
    /// Whether another value was there.
    pub(crate) is_others: bool,
    /// Whether a stored token alone was in its way.
    pub(crate) is_stale: bool,
    /// By when, by the clock of its machine, what it sets may have expired; of a mark, by when others may vote again.
    stands_until: Duration,
    /// What speaks against the server's vote, by all that happened to it; see `doubt`.
    doubt: Option<Duration>,
}

impl Vote {
    /// Until when a client may rely on it, by the clock of its machine (P2).
    pub(crate) fn until(&self) -> Duration {
        (self.sent.reading + self.ttl).saturating_sub(self.ttl / 100 + Duration::from_millis(2))
    }

    /// Whether it keeps a key that was granted before.
    pub(crate) const fn extends(&self) -> bool {
        matches!(self.kind, StepKind::Extend | StepKind::Keep | StepKind::ReaderStays)
    }

    /// Whether the server has the key by it. A release that says yes has deleted the key; and an operator's, under the
    /// value of another user, is sent and heard by the clock of another machine.
    pub(crate) const fn grants(&self) -> bool {
        let is_release = matches!(self.kind, StepKind::Release | StepKind::ReaderLeaves);
        !is_release && matches!(self.said, Said::Yes | Said::Repaired | Said::Kept)
    }

    /// Whether the server had the key before.
    const fn keeps(&self) -> bool {
        self.extends() && matches!(self.said, Said::Yes | Said::Kept)
    }
}

impl Judge {
    pub(crate) fn connect(&mut self, client: (usize, u64), server: usize, connection: &Connection) -> u64 {
        self.connections.push(Connected { client, server, connection: connection.clone() });
        self.connections.len() as u64 - 1
    }

    /// When the client has read the answer.
    pub(crate) fn heard(&self, vote: &Vote) -> Option<Passed> {
        self.connections.get(usize::try_from(vote.connection).ok()?)?.heard(vote.ends)
    }

    pub(crate) fn heard_reading(&self, reading: &Reading) -> Option<Passed> {
        self.connections.get(usize::try_from(reading.connection).ok()?)?.heard(reading.ends)
    }

    /// Whether its client may have given this connection up by then, what was on its way with it: it sent nothing more over it, and
    /// has made another one since.
    pub(crate) fn may_be_given_up(&self, connection: u64, at: Duration) -> bool {
        let connections = usize::try_from(connection).ok().and_then(|number| self.connections.get(number..));
        let Some((one, later)) = connections.and_then(<[Connected]>::split_first) else { return false };
        let is_its = |other: &Connected| (other.client, other.server) == (one.client, one.server);
        let is_last = last_passed(&one.connection, Way::Up).is_none_or(|sent| sent.at <= at);
        is_last && later.iter().any(is_its)
    }

    /// When its client may have made the request, which waits while others over the same connection are unanswered.
    pub(crate) fn may_be_asked_at(&self, vote: &Vote) -> Duration {
        let votes = self.rounds.values().flat_map(|rounds| &rounds.votes);
        let before = votes.filter(|other| other.connection == vote.connection && other.sent.at < vote.sent.at);
        let is_unanswered = |other: &&Vote| self.heard(other).is_none_or(|heard| heard.at >= vote.sent.at);
        before.filter(is_unanswered).map(|other| other.sent.at).min().unwrap_or(vote.sent.at)
    }

    /// The client that asked for it.
    pub(crate) fn asked_by(&self, vote: &Vote) -> Option<(usize, u64)> {
        self.connections.get(usize::try_from(vote.connection).ok()?).map(|connected| connected.client)
    }

    /// Whether the server may vote, by all that befell it (P14, P15, P17).
    pub(crate) fn may_vote(&self, vote: &Vote) -> bool {
        let took = self.heard(vote).map(|heard| heard.at.saturating_sub(vote.sent.at));
        vote.doubt.is_none_or(|doubt| took.is_some_and(|took| took >= doubt))
    }

    /// Of the votes for a value that are in doubt, those by which a process keeps what it has (P10): by server and command.
    ///
    /// The key was there under the value in the process that had voted for it before. That vote stood, its answer was heard
    /// first, what it set cannot have expired by the time of this answer, and nobody else was given the lock by a vote in between.
    pub(crate) fn kept(&self, value: &[u8]) -> HashSet<(usize, u64)> {
        let mut kept = HashSet::new();
        let Some(rounds) = self.rounds.get(value) else { return kept };
        let mut standing: Vec<&Vote> = Vec::new();
        for vote in rounds.votes.iter().filter(|vote| vote.grants() && (vote.is_whole || vote.extends())) {
            if self.may_vote(vote) {
                standing.push(vote);
            } else if vote.keeps() && standing.iter().any(|earlier| self.is_kept(rounds, earlier, vote)) {
                kept.insert((vote.server, vote.command));
                standing.push(vote);
            }
        }
        kept
    }

    fn is_kept(&self, rounds: &Rounds, earlier: &Vote, vote: &Vote) -> bool {
        let (Some(before), Some(heard)) = (self.heard(earlier), self.heard(vote)) else { return false };
        let is_between = |command: u64| earlier.command <= command && command < vote.command;
        let ends_process = |accident: &Accident| {
            accident.server == vote.server && ends_process(accident.what) && is_between(accident.command)
        };
        let is_others = |other: &Vote| {
            other.server == vote.server && other.grants() && is_between(other.command) && self.may_vote(other)
        };
        let is_of_others = |other: &&Rounds| {
            other.key == rounds.key
                && other.given > 0
                && !std::ptr::eq(*other, rounds)
                && !(other.reads && rounds.reads)
        };
        let of_others = self.rounds.values().filter(is_of_others);
        let is_in_time = heard.reading < earlier.stands_until && before.at <= heard.at;
        // A deleted key lets others in.
        let is_deleted = self.deleted.iter().any(|(server, command)| *server == vote.server && is_between(*command));
        earlier.server == vote.server
            && is_in_time
            && !self.accidents.iter().any(ends_process)
            && (is_deleted || !of_others.flat_map(|other| &other.votes).any(is_others))
    }

    /// How many servers still had the key when this client asked for it to be kept.
    pub(crate) fn kept_by(&self, value: &[u8], client: (usize, u64)) -> usize {
        let votes = self.votes(value);
        let keeps = |vote: &&Vote| vote.keeps() && self.asked_by(vote) == Some(client);
        let servers = votes.iter().filter(keeps).fold(0_u8, |servers, vote| servers | 1 << vote.server);
        servers.count_ones() as usize
    }

    /// What befell a server between two of its votes.
    pub(crate) fn accidents_between(&self, [first, second]: [&Vote; 2]) -> impl Iterator<Item = &Accident> {
        let (server, commands) = (first.server, first.command..second.command);
        let is_between = move |accident: &&Accident| accident.server == server && commands.contains(&accident.command);
        self.accidents.iter().filter(is_between)
    }

    /// Whether the key of a lease was taken away between two votes of a server, by hand or by another client: also by one that has
    /// attached a copy of it (P32), unless that is who holds it.
    pub(crate) fn is_taken_away(
        &self,
        value: &[u8],
        holder: Option<(usize, u64)>,
        [first, second]: [&Vote; 2],
    ) -> bool {
        let is_between = |server, command| server == first.server && (first.command..second.command).contains(&command);
        let Some(rounds) = self.rounds.get(value) else { return false };
        let is_by_another = |vote: &Vote| {
            let is_release = matches!(vote.kind, StepKind::Release | StepKind::ReaderLeaves);
            let by = self.asked_by(vote);
            let has_copy = by != holder && by.is_some_and(|by| rounds.attached.contains(&by));
            is_release && is_between(vote.server, vote.command) && (by != rounds.client || has_copy)
        };
        self.deleted.iter().any(|(server, command)| is_between(*server, *command))
            || rounds.votes.iter().any(is_by_another)
    }

    /// Whether tokens were stored by hand between them.
    pub(crate) fn has_odd_token(&self, [first, second]: [&Vote; 2]) -> bool {
        let is_between = |(server, command): &(usize, u64)| {
            *server == first.server && (first.command..second.command).contains(command)
        };
        self.odd_tokens.iter().any(is_between)
    }

    /// Whether anything befell a server, or any of them, or the clock of a client, since: its answers may not count then, whatever they say.
    pub(crate) fn is_doubted(&self, server: Option<usize>, since: Duration) -> bool {
        let is_about = |accident: &Accident| {
            let is_of_client = accident.what == FaultKind::StandStill;
            is_of_client || server.is_none_or(|server| accident.server == server)
        };
        self.accidents.iter().any(|accident| is_about(accident) && accident.at >= since)
    }

    /// All votes for a value.
    pub(crate) fn votes(&self, value: &[u8]) -> &[Vote] {
        self.rounds.get(value).map_or(&[], |rounds| &rounds.votes)
    }

    /// What is known of a value.
    pub(crate) fn rounds_of(&mut self, value: &[u8]) -> &mut Rounds {
        self.rounds.entry(value.to_vec()).or_default()
    }

    /// When the last of the first `quorum` servers granted what is under a value: no client can have had it before.
    pub(crate) fn granted_by(&self, value: &[u8], quorum: usize) -> Option<Duration> {
        let votes = self.rounds.get(value)?.votes.iter().filter(|vote| vote.grants());
        let mut first = [Duration::MAX; 8];
        votes.for_each(|vote| first[vote.server] = first[vote.server].min(vote.at));
        first.sort_unstable();
        first.get(quorum - 1).copied().filter(|at| *at < Duration::MAX)
    }

    /// Until when `quorum` servers that count have granted what is under a value, as far as its client has heard.
    pub(crate) fn certified(&self, value: &[u8], quorum: usize, counts: impl Fn(&Vote) -> bool) -> Duration {
        let Some(rounds) = self.rounds.get(value) else { return Duration::ZERO };
        let mut best = [Duration::ZERO; 8];
        for vote in rounds.votes.iter().filter(|vote| vote.grants() && counts(vote)) {
            if vote.until() > best[vote.server] && self.heard(vote).is_some() {
                best[vote.server] = vote.until();
            }
        }
        best.sort_unstable();
        best[best.len() - quorum]
    }

    /// The same, but only as long as each answer to an extend was heard before the end by those before it: whatever comes
    /// later finds the lease over (P9). An acquire that is repeated under its value begins a lease anew.
    pub(crate) fn kept_until(&self, value: &[u8], quorum: usize, counts: impl Fn(&Vote) -> bool) -> Duration {
        let Some(rounds) = self.rounds.get(value) else { return Duration::ZERO };
        let granted = rounds.votes.iter().filter(|vote| vote.grants() && counts(vote));
        let mut heard: Vec<(Passed, &Vote)> = granted.filter_map(|vote| Some((self.heard(vote)?, vote))).collect();
        heard.sort_by_key(|(heard, _)| heard.at);
        let (mut best, mut until) = ([Duration::ZERO; 8], Duration::ZERO);
        for (heard, vote) in heard {
            if !until.is_zero() && heard.reading >= until {
                if vote.extends() {
                    break;
                }
                until = Duration::ZERO;
            }
            best[vote.server] = best[vote.server].max(vote.until());
            let mut sorted = best;
            sorted.sort_unstable();
            let granted = sorted[best.len() - quorum];
            // What is over when its last answer comes was never held: a later round of the value begins anew.
            if granted > heard.reading {
                until = until.max(granted);
            }
        }
        until
    }

    /// The votes for a value, and what befell servers, for people.
    pub(crate) fn told(&self, value: &[u8]) -> String {
        let rounds = self.rounds.get(value);
        let votes = rounds.iter().flat_map(|rounds| &rounds.votes).map(|vote| {
            let Vote { kind, said, server, connection, command, sent, at, is_whole, .. } = vote;
            let may_vote = self.may_vote(vote);
            let heard = self.heard(vote).map(|heard| heard.at);
            let (sent, until) = (sent.at, vote.until());
            format!(
                "{kind:?} {said:?} by {server} over {connection}, {sent:?} to {at:?} ({command}) to {heard:?}, until {until:?}, \
                 whole {is_whole}, may vote {may_vote}"
            )
        });
        let accidents = self.accidents.iter().map(|accident| format!("{accident:?}"));
        votes.chain(accidents).collect::<Vec<_>>().join("; ")
    }

    fn note(&mut self, server: usize, step: &Step, max_ttl: Duration) {
        let Some(connected) = self.connections.get(usize::try_from(step.connection).unwrap_or(0)) else { return };
        if connected.server != server {
            return;
        }
        let Some(sent) = connected.sent(step.begins) else { return };
        let client = connected.client;
        if step.kind == StepKind::Token {
            return self.note_token(step);
        }
        if step.kind == StepKind::Read {
            let (key, found) = (step.key.clone(), step.before.value.clone());
            let (connection, ends) = (step.connection, step.ends);
            return self.readings.push(Reading { key, client, server, sent, connection, ends, found });
        }
        // The mark of a writer is no vote.
        if step.value.is_empty() || step.value.starts_with(b"writer ") {
            return;
        }
        let ttl = step.ttl.min(max_ttl);
        let vote = Vote {
            kind: step.kind,
            said: step.said,
            server,
            connection: step.connection,
            command: step.command,
            sampled: step.command,
            ends: step.ends,
            sent,
            at: step.at,
            token: step.token,
            ttl: step.ttl,
            longest_ttl: step.before.longest_ttl,
            is_whole: is_larger(&step.before, step) && step.kind != StepKind::Set,
            is_others: step.before.value.as_ref().is_some_and(|there| *there != step.value),
            is_stale: step.stale.is_some_and(|stored| is_believed(stored, step)),
            stands_until: (sent.reading + ttl).saturating_sub(ttl / 100 + Duration::from_millis(2)),
            doubt: self.doubt(server, step, max_ttl),
        };
        if step.kind == StepKind::Set {
            // Where the right to the former one's token was missing it never comes.
            self.unraised.retain(|(connection, key, _)| (*connection, key) != (step.connection, &step.key));
            self.unraised.push((step.connection, step.key.clone(), step.value.clone()));
        }
        self.note_refusal(step, &vote);
        let rounds = self.rounds.entry(step.value.clone()).or_default();
        if rounds.votes.is_empty() {
            rounds.key.clone_from(&step.key);
            rounds.client = Some(client);
            rounds.reads = step.kind == StepKind::ReaderComes;
        }
        rounds.votes.push(vote);
    }

    /// What a server denied when it did this.
    pub(crate) fn denied(&self, server: usize, step: &Step) -> Option<Denial> {
        let is_then =
            |(of, commands, _): &&(usize, Range<u64>, Denial)| *of == server && commands.contains(&(step.command - 1));
        self.denials.iter().find(is_then).map(|(.., denial)| *denial)
    }

    /// It denies nothing any more, after so many commands.
    pub(crate) fn ends_denial(&mut self, server: usize, command: u64) {
        let of_it = self.denials.iter_mut().filter(|(of, commands, _)| *of == server && commands.end == u64::MAX);
        of_it.for_each(|(_, commands, _)| commands.end = command);
    }

    /// Whether a server whose memory is full has let somebody in.
    pub(crate) fn is_let_in(&self, server: usize, step: &Step) -> Option<(&'static str, String)> {
        let lets_in = matches!(step.kind, StepKind::Acquire | StepKind::ReaderComes | StepKind::Set);
        let was_in = step.before.value.as_ref() == Some(&step.value)
            || step.before.readers.iter().any(|(member, _)| *member == step.value);
        let is_wrong =
            lets_in && step.said == Said::Yes && !was_in && self.denied(server, step) == Some(Denial::Memory);
        is_wrong.then(|| ("a full server lets nobody in", format!("server {server}: {step:?}")))
    }

    /// P13: whether the floor is lower than it was, though the server has lost no data.
    pub(crate) fn has_floor_fallen(&mut self, server: usize, step: &Step) -> Option<(&'static str, String)> {
        let is_before = |accident: &&Accident| accident.server == server && accident.command < step.command;
        let accidents = self.accidents.iter().filter(is_before).count();
        let (floor, until) = self.floors.insert(server, (step.after.floor, accidents))?;
        let what = || format!("of server {server}, from {floor:?} to {:?}", step.before.floor);
        // One that is further ahead than a day counts as none (P12).
        let wall_us = u64::try_from(step.wall.as_micros()).unwrap_or(u64::MAX);
        let counts = floor.is_some_and(|floor| !floor.is_ahead_of(wall_us));
        (accidents == until && counts && step.before.floor < floor).then(|| ("the floor never falls", what()))
    }

    /// The token that goes with a plain set.
    fn note_token(&mut self, step: &Step) {
        let is_it = |(connection, key, _): &(u64, Vec<u8>, Vec<u8>)| (*connection, key) == (step.connection, &step.key);
        let Some(at) = self.unraised.iter().position(is_it) else { return };
        let (_, _, value) = self.unraised.swap_remove(at);
        let votes = self.rounds.get_mut(&value).map(|rounds| &mut rounds.votes);
        let set = votes.into_iter().flatten().rfind(|vote| vote.connection == step.connection);
        if let Some(vote) = set {
            (vote.sampled, vote.ends, vote.token) = (step.command, step.ends, step.token);
            vote.is_whole = step.said == Said::Yes && step.token > step.before.floor;
            let larger = step.before.token.max(step.before.floor);
            // Unless a user has deleted the key in between: then something else is wrong.
            vote.is_stale = vote.said == Said::Yes
                && !vote.is_whole
                && step.before.value.as_ref() == Some(&value)
                && larger.is_some_and(|larger| is_believed(larger, step));
        }
    }

    /// P14, P15: no server votes that forgot something, or was replaced, for as long as what it forgot may be held. None if
    /// nothing is in doubt; else the vote counts only if it took so long that the doubt does not show, as a step of a clock.
    fn doubt(&self, server: usize, step: &Step, max_ttl: Duration) -> Option<Duration> {
        let mine =
            self.accidents.iter().filter(|accident| accident.server == server && accident.command < step.command);
        let least = max_ttl * 98 / 100;
        let steps = || mine.clone().filter(|accident| accident.what == FaultKind::StepForward);
        // A server that is stepped in its quarantine has waited for less.
        let skipped = |since: Duration| {
            let later = steps().filter(|stepped| stepped.at >= since);
            later.map(|stepped| Duration::from_micros(stepped.step_us.unsigned_abs())).sum::<Duration>()
        };
        // An old copy that comes back into the same process is seen only by who is connected, and is told of it; and of two
        // losses in a row only by who has seen the record of in between, which may be what comes back (A7).
        let is_used = |accident: &Accident| {
            // Clients take the flush of another database for one of their own.
            let begins_anew = |what| loses(what) || what == FaultKind::FlushAnotherDatabase;
            let before = mine.clone().rfind(|other| begins_anew(other.what) && other.at < accident.at);
            let since = before.map_or(Duration::ZERO, |other| other.at);
            let mut votes = self.rounds.values().flat_map(|rounds| &rounds.votes);
            votes.any(|vote| vote.connection == step.connection && vote.command <= accident.command && vote.at >= since)
        };
        let comes_unseen = |what| matches!(what, FaultKind::LoadNothing | FaultKind::Restore);
        // A flush shows by the record that is missing, unless that has come back behind it.
        let is_hidden = |flush: &Accident| {
            let mut later = mine.clone().filter(|later| later.command >= flush.command && later.at >= flush.at);
            flush.what == FaultKind::Flush && later.any(|later| later.what == FaultKind::Restore)
        };
        let comes_unseen = |accident: &Accident| comes_unseen(accident.what) || is_hidden(accident);
        let is_seen = |accident: &Accident| !comes_unseen(accident) || is_used(accident);
        let is_waiting = |accident: &Accident| step.at + skipped(accident.at) < accident.at + least;
        let is_forgotten =
            mine.clone().any(|accident| loses(accident.what) && is_waiting(accident) && is_seen(accident));
        // What was granted under a longer time is waited for where that was made shorter (P29).
        let is_early = |(of, at, [former, shorter]): &(usize, Duration, [Duration; 2])| {
            let is_skipped = || steps().any(|stepped| stepped.at >= *at);
            *of == server
                && !is_skipped()
                && step.before.longest_ttl == Some(*shorter)
                && *at <= step.at
                && step.at < *at + *former * 98 / 100
        };
        if is_forgotten || self.lowered.iter().any(is_early) {
            return Some(Duration::MAX);
        }
        // One that knew its clock knows that it was stepped.
        let stepped = steps().next_back().filter(|stepped| step.at < stepped.at + least)?;
        self.noticeable(stepped, step, least)
    }

    /// P17: if the client that asked has seen the clock of the server before it was stepped, and no other clock
    /// leaves room for doubt, by how much the step is larger than what else explains it. An answer that takes as long hides it.
    fn noticeable(&self, stepped: &Accident, step: &Step, least: Duration) -> Option<Duration> {
        let asks = self.connections.get(usize::try_from(step.connection).ok()?)?;
        // A clock of its own that stood still looks the same, and so do several that were stepped at once (A2, A4).
        let hides = |accident: &&Accident| {
            let is_of_another = match accident.what {
                FaultKind::StepForward => accident.server != stepped.server,
                FaultKind::StandStill => accident.client == asks.client.0,
                _ => false,
            };
            is_of_another && accident.at + HIDDEN >= stepped.at
        };
        if self.accidents.iter().any(|accident| hides(&accident)) {
            return None;
        }
        let client = |connection: u64| &self.connections[usize::try_from(connection).unwrap_or(0)];
        let is_sample = |vote: &&Vote| {
            vote.server == stepped.server
                && vote.sampled <= stepped.command
                && vote.grants()
                && client(vote.connection).client == asks.client
                && self.heard(vote).is_some_and(|heard| heard.at < step.at)
        };
        let samples = self.rounds.values().flat_map(|rounds| &rounds.votes).filter(is_sample);
        let sample = samples.max_by_key(|vote| vote.at)?;
        let seen = sample.at;
        // A connection knows the process by what it was told as it was made: the next one does not compare the clock of another life.
        let made = || self.connections.get(usize::try_from(sample.connection).ok()?)?.sent(0).map(|first| first.at);
        let known = if sample.connection == step.connection { seen } else { made().unwrap_or(seen) };
        let restarted = |accident: &Accident| {
            let since = if ends_process(accident.what) { known } else { seen };
            accident.server == stepped.server && loses(accident.what) && since <= accident.at && accident.at <= step.at
        };
        if self.accidents.iter().any(restarted) {
            return None;
        }
        // What was set back since is gained no more; and a step forward that is waited out by now hides nothing.
        let since = |accident: &&Accident| {
            let is_between = (sample.sampled..step.command).contains(&accident.command);
            let counts = accident.step_us < 0 || step.at < accident.at + least;
            accident.server == stepped.server && is_between && counts
        };
        let gained_us: i64 = self.accidents.iter().filter(since).map(|accident| accident.step_us).sum();
        let gained = Duration::from_micros(u64::try_from(gained_us).unwrap_or(0));
        let width = self.heard(sample).map_or(Duration::ZERO, |heard| heard.at.saturating_sub(sample.sent.at));
        gained.checked_sub(Duration::from_millis(20) + (step.at - seen) / 50 + width).filter(|rest| !rest.is_zero())
    }
}

const fn loses(kind: FaultKind) -> bool {
    crate::invariants::promises::loses_data(kind)
}

/// Whether another process, or another life of it, goes on afterwards.
const fn ends_process(kind: FaultKind) -> bool {
    use FaultKind::{FailOver, Kill, RestartEmpty, RestartOld, Resynchronise};
    matches!(kind, FailOver | Kill | RestartEmpty | RestartOld | Resynchronise)
}

/// P12: whether a client goes above a stored token that it is told of, which none does if it is too far ahead.
fn is_believed(stored: FencingToken, step: &Step) -> bool {
    Duration::from_micros(stored.clock_us()) <= step.wall + BELIEVED
}

/// P12: whether its token is above what was stored.
fn is_larger(before: &KeyState, step: &Step) -> bool {
    let day = Duration::from_secs(24 * 60 * 60);
    let is_made_by_a_clock = |token: &FencingToken| Duration::from_micros(token.clock_us()) <= step.wall + day;
    let stored = before.token.filter(is_made_by_a_clock);
    match step.kind {
        StepKind::Acquire => step.token > stored.max(before.floor),
        _ => true,
    }
}

impl World {
    /// Takes in what the servers did since.
    pub(crate) fn absorb(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            let steps = server.take_steps();
            if steps.is_empty() {
                continue;
            }
            for step in &steps {
                self.check_step(index, step);
                if step.said == Said::Kept {
                    let of_reader = step.kind == StepKind::ReaderStays;
                    self.history().stats.did(if of_reader { Deed::KeptReader } else { Deed::KeptInQuarantine });
                }
                if step.kind == StepKind::ReaderComes && step.said == Said::No && step.before.value.is_none() {
                    self.history().stats.did(Deed::WaitBehindWriter);
                }
            }
            let mut judge = self.judge();
            let mut broken = Vec::new();
            for step in &steps {
                // What was begun before its machine stood still goes out afterwards.
                let client = usize::try_from(step.connection).ok().and_then(|at| judge.connections.get(at));
                let since = step.at.saturating_sub(self.scenario.ttl);
                let is_as_it_went = client.is_some_and(|asks| !self.machines[asks.client.0].was_disturbed_since(since));
                if self.scenario.is_steady && is_as_it_went {
                    let in_time = self.scenario.instance_timeout * 9 / 10;
                    let limits = (self.scenario.quorum, in_time, [self.scenario.ttl / 4, self.scenario.max_ttl * 3]);
                    broken.extend(judge.is_not_repeated(step, limits));
                }
                judge.note(index, step, self.scenario.max_ttl);
                broken.extend(judge.is_for_nobody(step, self.scenario.instance_timeout).filter(|_| is_as_it_went));
                broken.extend(judge.is_behind_its_release(index, step));
                broken.extend(judge.has_floor_fallen(index, step));
                broken.extend(judge.is_let_in(index, step));
            }
            drop(judge);
            for (invariant, what) in broken {
                self.violate(invariant, what);
            }
        }
    }

    /// A user deletes the keys of locks on a server.
    pub(crate) fn delete_locks(&self, server: usize) {
        let command = self.servers[server].commands();
        self.judge().deleted.push((server, command));
        self.servers[server].delete_locks();
    }

    /// Something happens to a server.
    pub(crate) fn note_accident(&self, (server, client): (usize, usize), what: FaultKind, step_us: i64) {
        let command = self.servers[server].commands();
        let (at, mut judge) = (self.at(), self.judge());
        judge.accidents.push(Accident { server, client, command, at, what, step_us });
    }

    /// A user stores tokens on a server by hand.
    pub(crate) fn note_odd_tokens(&self, server: usize) {
        let command = self.servers[server].commands();
        self.judge().odd_tokens.push((server, command));
    }
}
