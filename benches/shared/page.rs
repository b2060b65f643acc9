//! Figures in a page: between two marks, so that no figure is typed by hand.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// A file of `docs/`.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join(name)
}

/// Puts a text between `<!-- name: begin -->` and `<!-- name: end -->` of a page.
pub(crate) fn replace(page: &str, name: &str, text: &str) -> Outcome {
    let path = path(page);
    let replaced =
        replaced(&fs::read_to_string(&path)?, name, text).ok_or_else(|| format!("{page} has no marks for {name}"))?;
    fs::write(path, replaced)?;
    Ok(())
}

fn replaced(page: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("<!-- {name}: begin -->"))?;
    let end = format!("<!-- {name}: end -->");
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}<!-- {name}: begin -->\n\n{}\n\n{end}{after}", text.trim()))
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

#[test]
fn a_text_is_put_between_its_marks_and_nothing_else_changes() {
    let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin --><!-- y: end -->";
    let new = "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n<!-- y: begin --><!-- y: end -->";
    assert_eq!(replaced(page, "x", "new\n").as_deref(), Some(new));
    assert_eq!(replaced(new, "x", "new").as_deref(), Some(new));
    assert_eq!(replaced(page, "z", "new"), None);
}
