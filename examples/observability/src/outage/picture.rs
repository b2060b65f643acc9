//! Draws what Prometheus has scraped.

use std::fmt::Write;

use serde_json::Value;

use crate::Outcome;
use crate::prometheus::Prometheus;

const LEFT: f64 = 150.0;
const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 90.0;
const GAP: f64 = 34.0;
const TOP: f64 = 46.0;
const COLORS: [&str; 5] = ["#2f6fb0", "#d9742b", "#4c9a5a", "#a8577e", "#777777"];

/// What is drawn in one panel: a title, a query, and the label by which its lines are named.
const PANELS: [(&str, &str, &str); 5] = [
    ("instances that may vote", "sum(redquorum_instance_may_vote)", ""),
    ("acquires a second", "sum by (outcome) (rate(redquorum_acquires_total[5s]))", "outcome"),
    (
        "seconds for a lock, 99 %",
        "histogram_quantile(0.99, sum by (le) (rate(redquorum_acquire_seconds_bucket{outcome=\"acquired\"}[5s])))",
        "",
    ),
    (
        "replies a second",
        "sum by (reply) (rate(redquorum_instance_replies_total{reply=~\"timed_out|not_connected|not_admitted|disconnected\"}[5s]))",
        "reply",
    ),
    (
        "locks held, and lost",
        "label_replace(redquorum_held, \"of\", \"held\", \"\", \"\") or label_replace(sum(redquorum_losses_total), \"of\", \"lost\", \"\", \"\")",
        "of",
    ),
];

type Series = Vec<(Value, Vec<(f64, f64)>)>;

struct Canvas {
    seconds: f64,
    svg: String,
}

/// The outage as a drawing that stands by itself.
pub(crate) async fn draw(prometheus: &Prometheus, from: f64, to: f64, steps: &[(f64, &str)]) -> Outcome<String> {
    let mut canvas = Canvas { seconds: to - from, svg: String::new() };
    let bottom = TOP + (HEIGHT + GAP) * PANELS.len() as f64;
    for (row, (at, what)) in steps.iter().enumerate() {
        let (x, y) = (canvas.x(*at), if row % 2 == 0 { 16.0 } else { 30.0 });
        canvas.put(&format!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{bottom}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>\
             <text x=\"{:.1}\" y=\"{y}\">{what}</text>",
            x + 4.0
        ))?;
    }
    for (row, (title, query, label)) in PANELS.iter().enumerate() {
        let series = prometheus.range(query, from, to).await?;
        canvas.panel(TOP + (HEIGHT + GAP) * row as f64, title, label, &series)?;
    }
    let alerts = prometheus.range("max by (alertname) (ALERTS{alertstate=\"firing\"})", from, to).await?;
    for (row, (labels, points)) in alerts.iter().enumerate() {
        canvas.alert(bottom + 16.0 * row as f64, labels["alertname"].as_str().unwrap_or_default(), points)?;
    }
    let height = bottom + 16.0 * alerts.len() as f64 + 24.0;
    canvas.axis(height - 8.0)?;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{}</svg>\n",
        LEFT + WIDTH + 20.0,
        canvas.svg
    ))
}

impl Canvas {
    fn x(&self, second: f64) -> f64 {
        LEFT + second / self.seconds * WIDTH
    }

    fn put(&mut self, text: &str) -> Outcome {
        writeln!(self.svg, "{text}")?;
        Ok(())
    }

    fn panel(&mut self, top: f64, title: &str, label: &str, series: &Series) -> Outcome {
        let values = series.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
        let most = values.filter(|value| value.is_finite()).fold(0.0_f64, f64::max).max(1e-3);
        self.put(&format!(
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#ddd\"/>\
             <text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">{2}</text><text x=\"{0}\" y=\"{3}\" text-anchor=\"end\">0</text>\
             <text x=\"4\" y=\"{4}\" font-weight=\"bold\">{title}</text>",
            LEFT - 6.0,
            top + 9.0,
            short(most),
            top + HEIGHT,
            top - 6.0
        ))?;
        for (index, (labels, points)) in series.iter().enumerate() {
            let color = COLORS.get(index % COLORS.len()).unwrap_or(&"#000");
            for line in without_gaps(points) {
                let at = |(second, value): &(f64, f64)| {
                    format!("{:.1},{:.1}", self.x(*second), top + HEIGHT * (1.0 - value / most))
                };
                let points = line.iter().map(at).collect::<Vec<_>>().join(" ");
                self.put(&format!(
                    "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\"/>"
                ))?;
            }
            if let Some(name) = labels[label].as_str() {
                let y = top + 24.0 + 14.0 * index as f64;
                self.put(&format!("<text x=\"4\" y=\"{y}\" fill=\"{color}\">{name}</text>"))?;
            }
        }
        Ok(())
    }

    fn alert(&mut self, top: f64, name: &str, points: &[(f64, f64)]) -> Outcome {
        let name = name.trim_start_matches("Redquorum");
        self.put(&format!("<text x=\"4\" y=\"{}\">{name}</text>", top + 10.0))?;
        for firing in without_gaps(points) {
            if let (Some((from, _)), Some((to, _))) = (firing.first(), firing.last()) {
                let (x, width) = (self.x(*from), (self.x(*to) - self.x(*from)).max(2.0));
                self.put(&format!(
                    "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"12\" fill=\"#c0392b\"/>"
                ))?;
            }
        }
        Ok(())
    }

    fn axis(&mut self, y: f64) -> Outcome {
        let mut second = 0.0;
        while second <= self.seconds {
            self.put(&format!(
                "<text x=\"{:.1}\" y=\"{y}\" fill=\"#888\" text-anchor=\"middle\">{second} s</text>",
                self.x(second)
            ))?;
            second += 10.0;
        }
        Ok(())
    }
}

/// Points that follow each other by a second, in pieces; what is no number is left out.
fn without_gaps(points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    for point in points.iter().filter(|(_, value)| value.is_finite()) {
        match pieces.last_mut() {
            Some(piece) if piece.last().is_some_and(|last| point.0 - last.0 < 1.5) => piece.push(*point),
            _ => pieces.push(vec![*point]),
        }
    }
    pieces
}

fn short(number: f64) -> String {
    if number >= 10.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}
