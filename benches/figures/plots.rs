//! The plots: bars in groups, as drawings that stand by themselves.

use std::path::PathBuf;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measured::{FLOOR, Measured, OTHER, OURS, shown};
use crate::{Outcome, page};

/// The subjects, as they are called here, with their colours.
const SUBJECTS: [(&str, &str, RGBColor); 3] = [
    (OURS, "redquorum", RGBColor(47, 111, 176)),
    (FLOOR, "floor", RGBColor(150, 150, 150)),
    (OTHER, "rslock", RGBColor(217, 116, 43)),
];

const SIZE: (u32, u32) = (980, 400);
const FONT: &str = "sans-serif";

/// A bar that is so many times as high as our highest is cut, so that the others can be seen.
const HIGHEST: f64 = 8.0;

pub(crate) struct Plot {
    file: &'static str,
    title: &'static str,
    /// What each group is called, and its workload.
    groups: &'static [(&'static str, &'static str)],
    /// Each on top of the one before.
    metrics: &'static [&'static str],
}

pub(crate) const ALL: [Plot; 3] = [
    Plot {
        file: "performance-latency.svg",
        title: "Acquire and release by one task: p50 in µs; less is better",
        groups: &[
            ("3 instances", "3 instances"),
            ("5", "sequential"),
            ("5, one thread", "sequential, one thread"),
            ("7", "7 instances"),
            ("9", "9 instances"),
            ("5, one dead", "one dead"),
            ("5, one hung", "one hung"),
        ],
        metrics: &["pair p50"],
    },
    Plot {
        file: "performance-throughput.svg",
        title: "Pairs a second on 5 instances, by how many tasks want locks; more is better",
        groups: &[
            ("1 task", "sequential"),
            ("8", "8 tasks"),
            ("64", "64 tasks"),
            ("512", "512 tasks"),
            ("64, one thread", "64 tasks, one thread"),
        ],
        metrics: &["pairs/s"],
    },
    Plot {
        file: "performance-instances.svg",
        title: "Processor time of a pair of 64 tasks in µs: client (dark) and all instances (light); less is better",
        groups: &[
            ("3 instances", "3 instances, 64 tasks"),
            ("5", "64 tasks"),
            ("7", "7 instances, 64 tasks"),
            ("9", "9 instances, 64 tasks"),
        ],
        metrics: &["client CPU", "servers CPU"],
    },
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Plot {
    pub(crate) fn path(&self) -> PathBuf {
        page::path(self.file)
    }

    pub(crate) fn draw(&self, measured: &Measured) -> Outcome {
        let path = self.path();
        let root = SVGBackend::new(&path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let top = self.top(measured);
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, (FONT, 17))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..count(self.groups.len()), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .y_labels(7)
            .y_label_formatter(&|value| shown(Some(*value)))
            .label_style((FONT, 12))
            .draw()?;
        let at = |x: f64, y: f64| chart.plotting_area().map_coordinate(&(x, y.min(top)));
        for (group, (name, workload)) in self.groups.iter().enumerate() {
            let (x, y) = at(count(group) + 0.5, 0.0);
            root.draw(&Text::new(*name, (x, y + 20), centred(13)))?;
            for (bar, (subject, _, color)) in SUBJECTS.iter().enumerate() {
                let left = count(group) + 0.11 + 0.26 * count(bar);
                let heights = self.metrics.iter().filter_map(|metric| measured.median(workload, subject, metric));
                let mut low = 0.0;
                for (level, height) in heights.enumerate() {
                    let corners = [at(left, low + height), at(left + 0.24, low)];
                    let shade = color.mix(if level == 0 { 1.0 } else { 0.45 });
                    root.draw(&Rectangle::new(corners, shade.filled()))?;
                    low += height;
                }
                if low > 0.0 {
                    let (x, y) = at(left + 0.12, low);
                    let cut = if low > top { " ↑" } else { "" };
                    root.draw(&Text::new(format!("{}{cut}", shown(Some(low))), (x, y - 2), centred(11)))?;
                }
            }
        }
        legend(&root)?;
        Ok(root.present()?)
    }

    /// The height of the highest bar, but of no bar that would dwarf the others.
    fn top(&self, measured: &Measured) -> f64 {
        let height = |workload, subject| {
            self.metrics.iter().filter_map(|metric| measured.median(workload, subject, metric)).sum::<f64>()
        };
        let ours = self.groups.iter().map(|(_, workload)| height(workload, OURS)).fold(0.0, f64::max);
        let all = self.groups.iter().flat_map(|(_, workload)| SUBJECTS.map(|(subject, ..)| height(workload, subject)));
        let highest = all.filter(|height| *height <= HIGHEST * ours || ours == 0.0).fold(0.0, f64::max);
        if highest > 0.0 { highest * 1.1 } else { 1.0 }
    }
}

fn legend(root: &Area<'_>) -> Outcome {
    for (at, (_, name, color)) in (0_i32..).zip(SUBJECTS) {
        let (x, y) = (80 + 120 * at, i32::try_from(SIZE.1)? - 20);
        root.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color.filled()))?;
        root.draw(&Text::new(name, (x + 18, y), (FONT, 13).into_font()))?;
    }
    Ok(())
}

/// Text above a point.
fn centred(size: u32) -> TextStyle<'static> {
    TextStyle::from((FONT, size).into_font()).pos(Pos::new(HPos::Center, VPos::Bottom))
}

#[expect(clippy::cast_precision_loss, reason = "there are few")]
const fn count(count: usize) -> f64 {
    count as f64
}
