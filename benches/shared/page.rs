//! The pages into which figures are written.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::marks::between_marks;

/// A file of `docs/`.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join(name)
}

/// Puts a text between `<!-- name: begin -->` and `<!-- name: end -->` of a page.
pub(crate) fn replace(page: &str, name: &str, text: &str) -> Outcome {
    let path = path(page);
    let replaced = between_marks(&fs::read_to_string(&path)?, name, text);
    fs::write(path, replaced.ok_or_else(|| format!("{page} has no marks for {name}"))?)?;
    Ok(())
}

/// A table in Markdown.
pub(crate) fn table<C: Display>(head: &[&str], rows: &[Vec<C>]) -> String {
    let mut table = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}
