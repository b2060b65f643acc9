//! What follows when a leader resigns, is killed, hangs, or is cut off.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use redquorum_testkit::Proxy;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use crate::candidate::{ARGUMENT, ELECTION, LEADS, LOST, READY, RESIGN};
use crate::section::now;
use crate::table::{Table, ms, percentile};
use crate::{Outcome, Stage, TTL, admitted};

const CANDIDATES: usize = 3;
const ROUNDS: usize = 5;

/// How long a leader leads before something happens to it.
const CALM: Duration = Duration::from_millis(700);

/// Longer than any of these takes.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Resigns,
    Killed,
    Hung,
    CutOff,
}

/// What was said, by which candidate or, as `SEEN`, by the observer.
struct Said {
    by: usize,
    what: String,
    at: u64,
    token: u64,
}

const OBSERVER: usize = CANDIDATES;
const SEEN: &str = "seen";

/// A candidate in a process of its own, with links of its own to the instances.
struct Candidate {
    child: Child,
    stdin: ChildStdin,
    links: Vec<Proxy>,
}

pub(crate) fn run(runtime: &Runtime, stage: &Stage) -> Outcome<Table> {
    let (say, said) = channel();
    let mut candidates = Vec::new();
    for number in 0..CANDIDATES {
        candidates.push(Candidate::start(number, links(stage)?, say.clone())?);
    }
    observe(runtime, stage, say.clone())?;
    let mut rehearsal = Rehearsal { leader: 0, candidates, said, say, tokens: Vec::new(), seen: Vec::new() };
    rehearsal.settle()?;
    let rounds = if stage.quick { 2 } else { ROUNDS };
    let mut rows = Vec::new();
    for event in [Event::Resigns, Event::Killed, Event::Hung, Event::CutOff] {
        let times = (0..rounds).map(|_| rehearsal.turn(event)).collect::<Outcome<Vec<_>>>()?;
        rows.push(row(event, &times));
    }
    rehearsal.check()?;
    let head = [
        "the leader",
        "times",
        "until the next leads p50, ms",
        "max",
        "until it is observed p50",
        "until it is observed max",
        "the old one knew before, ms at least",
    ];
    let title = format!(
        "5. {CANDIDATES} candidates, ttl {} s. An observer saw {} of {} leaders, with tokens that only grow",
        TTL.as_secs(),
        rehearsal.seen.len(),
        rehearsal.tokens.len(),
    );
    Ok(Table { title, head: head.to_vec(), rows })
}

fn row(event: Event, turns: &[Turn]) -> Vec<String> {
    let until = |of: fn(&Turn) -> u64| turns.iter().map(of).collect::<Vec<u64>>();
    let (led, seen) = (until(|turn| turn.led), until(|turn| turn.seen));
    let least = turns.iter().filter_map(|turn| turn.knew_before).min();
    vec![
        format!("{event:?}"),
        turns.len().to_string(),
        ms(percentile(&led, 50)),
        ms(percentile(&led, 100)),
        ms(percentile(&seen, 50)),
        ms(percentile(&seen, 100)),
        least.map_or("-".to_owned(), |margin| ms(margin as f64)),
    ]
}

fn links(stage: &Stage) -> Outcome<Vec<Proxy>> {
    Ok(stage.fleet.iter().map(Proxy::start).collect::<Result<_, _>>()?)
}

/// One that is no candidate, and has no proxies.
fn observe(runtime: &Runtime, stage: &Stage, say: Sender<Said>) -> Outcome {
    let redlock = runtime.block_on(admitted::connect(stage.fleet.addresses()))?;
    let mut observer = redlock.election(ELECTION).observe()?;
    runtime.spawn(async move {
        loop {
            let token = observer.next().await.token.get();
            if say.send(Said { by: OBSERVER, what: SEEN.to_owned(), at: now(), token }).is_err() {
                drop(redlock);
                return;
            }
        }
    });
    Ok(())
}

/// Nanoseconds after the event.
struct Turn {
    led: u64,
    seen: u64,
    /// By how much the former leader knew of its loss earlier than the next one led, where it could know.
    knew_before: Option<i64>,
}

struct Rehearsal {
    leader: usize,
    candidates: Vec<Candidate>,
    said: Receiver<Said>,
    say: Sender<Said>,
    /// Of all that led, and of all that were seen, in order.
    tokens: Vec<u64>,
    seen: Vec<u64>,
}

impl Rehearsal {
    /// Waits until all are connected, one leads, and is seen.
    fn settle(&mut self) -> Outcome {
        let mut ready = 0;
        while ready < CANDIDATES || self.tokens.is_empty() || self.seen.is_empty() {
            ready += usize::from(self.next()?.what == READY);
        }
        Ok(())
    }

    fn next(&mut self) -> Outcome<Said> {
        let said = self.said.recv_timeout(LIMIT).map_err(|_| "nobody says anything any more")?;
        match said.what.as_str() {
            LEADS => {
                self.tokens.push(said.token);
                self.leader = said.by;
            }
            SEEN => self.seen.push(said.token),
            _ => {}
        }
        Ok(said)
    }

    /// Something happens to the leader, and all is as before in the end.
    fn turn(&mut self, event: Event) -> Outcome<Turn> {
        thread::sleep(CALM);
        let (old, begun) = (self.leader, now());
        self.candidates[old].suffer(event)?;
        let (mut led, mut seen, mut lost) = (None, None, None);
        while led.is_none() || seen.is_none() {
            let said = self.next()?;
            match said.what.as_str() {
                LEADS => led = Some((said.at, said.token)),
                LOST if said.by == old => lost = Some(said.at),
                SEEN if led.is_none_or(|(_, token)| said.token >= token) => seen = Some(said.at),
                _ => {}
            }
        }
        while event == Event::CutOff && lost.is_none() {
            let said = self.next()?;
            lost = Some(said.at).filter(|_| said.what == LOST && said.by == old);
        }
        let (led, seen) = (led.map_or(0, |(at, _)| at), seen.unwrap_or(0));
        self.heal(event, old, lost.is_some())?;
        let knew_before = lost.filter(|_| event == Event::CutOff).map(|lost| led.cast_signed() - lost.cast_signed());
        Ok(Turn { led: led - begun, seen: seen - begun, knew_before })
    }

    /// What hung tells of its loss, and who was killed comes again.
    fn heal(&mut self, event: Event, old: usize, knew: bool) -> Outcome {
        match event {
            Event::Resigns => return Ok(()),
            Event::Killed => {
                let links = std::mem::take(&mut self.candidates[old].links);
                self.candidates[old] = Candidate::start(old, links, self.say.clone())?;
                while self.next()?.what != READY {}
            }
            Event::Hung => {
                kill_process(self.candidates[old].pid(), Signal::CONT)?;
                while !knew && self.next()?.what != LOST {}
            }
            Event::CutOff => {
                for link in &self.candidates[old].links {
                    link.forward()?;
                }
            }
        }
        Ok(())
    }

    /// A client that led had a larger token than all before, and so had a client that was seen.
    fn check(&self) -> Outcome {
        let grow = |tokens: &[u64]| tokens.windows(2).all(|pair| pair[0] < pair[1]);
        let known = self.seen.iter().all(|seen| self.tokens.contains(seen));
        if grow(&self.tokens) && grow(&self.seen) && known {
            return Ok(());
        }
        Err(format!("tokens out of order: led {:?}, seen {:?}", self.tokens, self.seen).into())
    }
}

impl Candidate {
    fn start(number: usize, links: Vec<Proxy>, say: Sender<Said>) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT.to_owned(), format!("candidate {number}")])
            .args(links.iter().map(Proxy::address))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).ok_or("a candidate has no pipes")?;
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let [what, at, token] = line.split(' ').collect::<Vec<_>>()[..]
                    && let (Ok(at), Ok(token)) = (at.parse(), token.parse())
                {
                    let _ = say.send(Said { by: number, what: what.to_owned(), at, token }); // or all is over
                }
            }
        });
        Ok(Self { child, stdin, links })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn suffer(&mut self, event: Event) -> Outcome {
        match event {
            Event::Resigns => writeln!(self.stdin, "{RESIGN}")?,
            Event::Killed => {
                self.child.kill()?;
                self.child.wait()?;
            }
            Event::Hung => kill_process(self.pid(), Signal::STOP)?,
            Event::CutOff => {
                for link in &self.links {
                    link.black_hole()?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        drop(self.child.kill()); // one that has ended already is no problem
        drop(self.child.wait());
    }
}
