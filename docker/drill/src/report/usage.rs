//! What processes that ran for long used of the machine, as text and as HTML.

use super::ScenarioReport;
use super::timeline::escape;
use crate::check::{Course, Usage};

pub(super) fn text(result: &ScenarioReport) -> String {
    result.usage.iter().map(|usage| format!("{}\n", sentence(usage))).collect()
}

pub(super) fn html(result: &ScenarioReport) -> String {
    result.usage.iter().map(|usage| format!("<p>{}</p>", escape(&sentence(usage)))).collect()
}

fn sentence(Usage { client, seconds, resident_kib, descriptors, .. }: &Usage) -> String {
    let mib = |kib: u64| format!("{}.{}", kib / 1024, kib % 1024 * 10 / 1024);
    let told = |Course { early, late, most }: &Course, shown: fn(u64) -> String| {
        format!("{} early, {} late, {} at most", shown(*early), shown(*late), shown(*most))
    };
    let memory = told(resident_kib, mib);
    let descriptors = told(descriptors, |count| count.to_string());
    format!(
        "A process of {client} ran for {seconds:.0} s. Resident memory in MiB: {memory}; descriptors: {descriptors}."
    )
}
