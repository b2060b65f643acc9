//! Draws a history: what the instances went through, who held which lock, and where it went wrong.

use std::collections::BTreeMap;

use super::ScenarioReport;
use crate::check::ObservedLease;
use crate::clock::{Nanos, SECOND};
use crate::event::{Event, EventKind};
use crate::scenario::INSTANCES;

const LEFT: f64 = 70.0;
const ROW: f64 = 16.0;
const TOP: f64 = 34.0;

pub(crate) const STATES: [(&str, &str); 8] = [
    ("up", "#dcebd8"),
    ("down", "#3b3b3b"),
    ("hung", "#c9a227"),
    ("cut", "#d98a6a"),
    ("slow", "#e6cf8f"),
    ("full", "#b0896f"),
    ("wrong", "#bdbdbd"),
    ("quarantine", "#8e6bbf"),
];

pub(crate) const CLIENTS: [(&str, &str); 4] =
    [("c1", "#2f6fb0"), ("c2", "#d9742b"), ("c3", "#4c9a5a"), ("c4", "#a8577e")];

/// A bar from one instant to another.
struct Bar<'a> {
    row: usize,
    from: Nanos,
    to: Nanos,
    color: &'a str,
    /// Above and below the bar, in pixels.
    inset: f64,
    title: String,
}

struct Canvas {
    start: Nanos,
    end: Nanos,
    per_second: f64,
    svg: String,
}

/// A drawing that stands by itself, also outside the page.
pub(crate) fn draw(result: &ScenarioReport) -> String {
    let (start, end) = span(result);
    let seconds = seconds(end.saturating_sub(start)).max(1.0);
    let per_second = (900.0 / seconds).max(18.0);
    let mut resources: Vec<&str> = result.leases.iter().map(|lease| lease.resource.as_str()).collect();
    resources.sort_unstable_by(|a, b| b.cmp(a));
    resources.dedup();
    let rows = INSTANCES + resources.len() + 1;
    let mut canvas = Canvas { start, end, per_second, svg: String::new() };
    canvas.phases(result, rows);
    for (row, name) in (1..=INSTANCES).map(|number| format!("i{number}")).enumerate() {
        canvas.label(row, &name);
    }
    states(&result.history, end).iter().for_each(|bar| canvas.bar(bar));
    quarantines(&result.history, end).iter().for_each(|bar| canvas.bar(bar));
    for (index, resource) in resources.iter().enumerate() {
        let row = INSTANCES + 1 + index;
        canvas.label(row, resource);
        let held = result.leases.iter().filter(|lease| lease.resource == **resource);
        held.for_each(|lease| canvas.bar(&holding(row, lease, end)));
        canvas.marks(row, resource, result);
    }
    let (width, height) = (LEFT + seconds * per_second + 10.0, y(rows) + 22.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{}</svg>",
        canvas.svg
    )
}

/// A second before the fault is enough of the time before.
fn span(result: &ScenarioReport) -> (Nanos, Nanos) {
    let from = result.marks.fault.saturating_sub(2 * SECOND).max(result.marks.start);
    (from, result.marks.end.max(from + SECOND))
}

impl Canvas {
    fn x(&self, at: Nanos) -> f64 {
        LEFT + seconds(at.clamp(self.start, self.end).saturating_sub(self.start)) * self.per_second
    }

    fn phases(&mut self, result: &ScenarioReport, rows: usize) {
        let (from, to) = (self.x(result.marks.fault), self.x(result.marks.healed));
        self.put(format_args!(
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f6f1e7\"/>",
            (to - from).max(1.0),
            y(rows) - TOP
        ));
        let last = seconds(self.end.saturating_sub(self.start));
        let mut second = 0_u32;
        while f64::from(second) <= last {
            let x = LEFT + f64::from(second) * self.per_second;
            self.put(format_args!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"#888\" text-anchor=\"middle\">{second} s</text>",
                y(rows) + 16.0
            ));
            second += 2;
        }
        let mut free = [0.0_f64; 2];
        for event in &result.history {
            let EventKind::Step { text } = &event.kind else { continue };
            if event.at < self.start {
                continue;
            }
            let x = self.x(event.at);
            self.put(format_args!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#999\" stroke-dasharray=\"2 2\">\
                 <title>{}</title></line>",
                y(rows),
                escape(text)
            ));
            if let Some(line) = free.iter().position(|free| *free <= x) {
                let height = if line == 0 { 26.0 } else { 12.0 };
                self.put(format_args!("<text x=\"{x:.1}\" y=\"{height}\" fill=\"#444\">{}</text>", escape(text)));
                let letters = u32::try_from(text.len()).unwrap_or(0);
                free[line] = x + 6.0 * f64::from(letters);
            }
        }
    }

    fn label(&mut self, row: usize, text: &str) {
        self.put(format_args!("<text x=\"4\" y=\"{:.1}\" fill=\"#222\">{}</text>", y(row) + 12.0, escape(text)));
    }

    fn bar(&mut self, bar: &Bar<'_>) {
        if bar.to <= self.start {
            return;
        }
        let (from, to) = (self.x(bar.from), self.x(bar.to));
        self.put(format_args!(
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}</title></rect>",
            y(bar.row) + 1.0 + bar.inset,
            (to - from).max(0.6),
            ROW - 3.0 - 2.0 * bar.inset,
            bar.color,
            escape(&bar.title)
        ));
    }

    /// Losses, refused writes and violations of a resource.
    fn marks(&mut self, row: usize, resource: &str, result: &ScenarioReport) {
        for lease in result.leases.iter().filter(|lease| lease.lost && lease.resource == resource) {
            self.mark(row, lease.to, "#444", "\u{25c6}", &format!("{} lost it", lease.client));
        }
        for event in &result.history {
            if let EventKind::Write { resource: of, client, accepted: false, .. } = &event.kind
                && of == resource
            {
                self.mark(row, event.at, "#7a1fa2", "\u{2715}", &format!("a late write of {client} was refused"));
            }
        }
        for violation in result.violations.iter().filter(|violation| violation.text.contains(resource)) {
            self.mark(row, violation.at, "#d00000", "\u{25bc}", &format!("{}: {}", violation.rule, violation.text));
        }
    }

    fn mark(&mut self, row: usize, at: Nanos, color: &str, sign: &str, title: &str) {
        self.put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{color}\" font-size=\"13\" font-weight=\"bold\" text-anchor=\"middle\">\
             {sign}<title>{}</title></text>",
            self.x(at),
            y(row) + 12.0,
            escape(title)
        ));
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        self.svg.push_str(&what.to_string());
    }
}

fn holding(row: usize, lease: &ObservedLease, end: Nanos) -> Bar<'static> {
    let color = CLIENTS.iter().find(|(name, _)| *name == lease.client).map_or("#777", |(_, color)| color);
    let token = lease.token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
    let title = format!("{}, {:.0} ms, {token}", lease.client, seconds(lease.to - lease.from) * 1000.0);
    // Two who hold at once must both be seen.
    let inset = f64::from(u8::from(lease.client == "c2")) * 2.5;
    Bar { row, from: lease.from, to: lease.to.min(end), color, inset, title }
}

/// What the drill did to the instances.
fn states(history: &[Event], end: Nanos) -> Vec<Bar<'static>> {
    let mut current: Vec<(Nanos, String)> = vec![(0, "up".to_owned()); INSTANCES];
    let mut bars = Vec::new();
    for event in history {
        let EventKind::Instance { instance, state } = &event.kind else { continue };
        let Some(now) = current.get_mut(*instance) else { continue };
        if state == "mended" && now.1 != "cut" {
            continue;
        }
        let next = if state == "mended" { "up" } else { state };
        bars.push(state_bar(*instance, now.0, event.at, &now.1));
        *now = (event.at, next.to_owned());
    }
    bars.extend(current.iter().enumerate().map(|(row, (from, state))| state_bar(row, *from, end, state)));
    bars
}

fn state_bar(row: usize, from: Nanos, to: Nanos, state: &str) -> Bar<'static> {
    let color = STATES.iter().find(|(name, _)| *name == state).map_or("#ccc", |(_, color)| color);
    Bar { row, from, to, color, inset: 0.0, title: state.to_owned() }
}

/// When any client saw an instance in quarantine.
fn quarantines(history: &[Event], end: Nanos) -> Vec<Bar<'static>> {
    let mut since: BTreeMap<(usize, &str), Nanos> = BTreeMap::new();
    let mut bars = Vec::new();
    let mut add = |row, from, to| bars.push(Bar { inset: 4.0, ..state_bar(row, from, to, "quarantine") });
    for event in history {
        let EventKind::Seen { instance, state } = &event.kind else { continue };
        let key = (*instance, event.who.as_str());
        if state == "quarantine" {
            since.entry(key).or_insert(event.at);
        } else if let Some(from) = since.remove(&key) {
            add(*instance, from, event.at);
        }
    }
    since.iter().for_each(|((row, _), from)| add(*row, *from, end));
    bars
}

/// The top of a row; a free line separates instances from locks.
fn y(row: usize) -> f64 {
    TOP + f64::from(u32::try_from(row).unwrap_or(0)) * ROW
}

#[expect(clippy::cast_precision_loss, reason = "only drawn")]
fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
