//! The files that a text names in backticks are there: a rename must not leave the documents behind.

use std::collections::BTreeSet;

use crate::source::File;

/// Where a name that ends with `/` begins, if it is a directory of the tree.
const ROOTS: &[&str] = &["src", "tests", "docs", "docker", "benches", "examples", "scripts"];

/// The end of every path, as in `src/a/b.rs`, `a/b.rs` and `b.rs`, and every directory from the root on.
pub(crate) fn names(files: &[File]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files {
        let path = file.path.as_str();
        names.insert(path.to_owned());
        for (at, _) in path.match_indices('/') {
            names.extend([path[at + 1..].to_owned(), path[..=at].to_owned()]);
        }
    }
    names
}

pub(crate) fn check(file: &File, names: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let is_read = file.path.ends_with(".md") || line.trim_start().starts_with("//");
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_read && is_reference(name)) {
            if !names.contains(name) {
                problems.push(file.problem(at + 1, &format!("there is no `{name}`")));
            }
        }
    }
    problems
}

fn is_reference(name: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let has_stem = |end| name.strip_suffix(end).is_some_and(|stem| stem.ends_with(|c: char| c.is_alphanumeric()));
    let is_directory = name.ends_with('/') && name.split('/').next().is_some_and(|root| ROOTS.contains(&root));
    name.chars().all(is_path) && (is_directory || [".rs", ".lua", ".md"].into_iter().any(has_stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        let names = names(&[File::new("src/a/b.rs", ""), File::new("docs/c.md", "")]);
        check(&File::new(path, text), &names).len()
    }

    #[test]
    fn a_name_of_no_file_is_found() {
        assert_eq!(problems("README.md", "in `src/b.rs`, `b/b.rs`, `x.lua`,\n`src/b/` and `d.md`"), 5);
        assert_eq!(problems("src/x.rs", "  /// `c.rs` has it\n//! or `d.rs`"), 2);
    }

    #[test]
    fn what_is_there_or_no_file_is_not_reported() {
        let text =
            "`src/a/b.rs`, `a/b.rs` `b.rs` `src/` `src/a/` `c.md`, c.rs, `target/` `.lua` `make x.rs` `src/*.rs`";
        assert_eq!(problems("docs/x.md", text), 0);
        assert_eq!(problems("src/x.rs", "let a = \"`c.rs`\";"), 0);
    }
}
