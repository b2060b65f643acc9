//! Links between the pages, and names of files in backticks, lead somewhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::File;

/// These show the pages of `docs/` in the crate's documentation, where a link by path would lead nowhere.
const GUIDE: &str = "src/guide/mod.rs";
const GUIDE_LINKS: &str = "src/guide/links.md";

pub(crate) struct Targets {
    /// Of each file, as fragments of its address.
    headings: BTreeMap<String, Vec<String>>,
    /// Each end of each path, as `b/c` and `c` of `a/b/c`, and each directory from the root on.
    names: BTreeSet<String>,
    guide: String,
    guide_links: String,
}

impl Targets {
    pub(crate) fn of(files: &[File]) -> Self {
        let text = |path| files.iter().filter(|file| file.path == path).map(|file| file.text.clone()).collect();
        let names = files.iter().map(|file| file.path.as_str()).flat_map(|path| {
            let parts = path.match_indices('/').flat_map(|(at, _)| [&path[at + 1..], &path[..=at]]);
            parts.chain([path]).map(str::to_owned)
        });
        Self {
            headings: files.iter().map(|file| (file.path.clone(), headings(&file.text))).collect(),
            names: names.collect(),
            guide: text(GUIDE),
            guide_links: text(GUIDE_LINKS),
        }
    }

    fn have(&self, from: &str, target: &str) -> bool {
        let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
        let mut parts: Vec<&str> = from.split('/').collect();
        parts.truncate(parts.len() - usize::from(!path.is_empty()));
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let up = part == "..";
            parts.truncate(parts.len().saturating_sub(usize::from(up)));
            parts.extend((!up).then_some(part));
        }
        let headings = self.headings.get(&parts.join("/"));
        headings.is_some_and(|headings| fragment.is_empty() || headings.iter().any(|heading| heading == fragment))
    }

    fn lack_file(&self, name: &str) -> bool {
        let is_path = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        let is_file = !name.starts_with('.') && [".rs", ".lua", ".md"].iter().any(|end| name.ends_with(end));
        let is_ours = || name.split_once('/').is_some_and(|(root, _)| self.names.contains(&format!("{root}/")));
        is_path && (is_file || name.ends_with('/') && is_ours()) && !self.names.contains(name)
    }
}

fn headings(text: &str) -> Vec<String> {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let texts = prose(text).filter_map(|(_, line)| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
    texts.map(|text| text.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// The lines outside of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((at + 1, line))
    })
}

/// Labels of links that the page does not define: `src/guide/links.md` does it for the crate's documentation alone.
fn undefined(text: &str) -> Vec<(usize, &str)> {
    let definition = |line: &str| Some(line.strip_prefix('[')?.split_once("]: ")?.0.to_owned());
    let defined: BTreeSet<String> = prose(text).filter_map(|(_, line)| definition(line)).collect();
    let labels = prose(text)
        .flat_map(|(at, line)| line.split("][").skip(1).filter_map(move |rest| Some((at, rest.split_once(']')?.0))));
    labels.filter(|(_, label)| !defined.contains(*label)).collect()
}

pub(crate) fn check(file: &File, targets: &Targets) -> Vec<String> {
    let is_page = file.path.ends_with(".md");
    let is_shown = targets.guide.contains(&format!("\"../../{}\"", file.path));
    let mut problems = Vec::new();
    // rustdoc follows the links of the guide.
    for (at, line) in prose(&file.text).filter(|_| is_page && file.path != GUIDE_LINKS) {
        let label = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let inline = line.split("](").skip(1).filter_map(|rest| Some(("", rest.split_once(')')?.0)));
        for (label, target) in label.into_iter().chain(inline).filter(|(_, target)| !target.contains("://")) {
            if !targets.have(&file.path, target) {
                problems.push(file.problem(at, &format!("there is no {target}")));
            }
            let is_known = target.starts_with('#') || targets.guide_links.contains(&format!("[{label}]: "));
            if is_shown && !is_known {
                problems.push(file.problem(at, &format!("write [text][{target}], and add that to {GUIDE_LINKS}")));
            }
        }
    }
    if is_page && file.path != GUIDE_LINKS {
        let missing = undefined(&file.text).into_iter();
        problems.extend(missing.map(|(at, label)| file.problem(at, &format!("nothing defines [{label}]"))));
    }
    for (at, line) in file.text.lines().enumerate() {
        let is_comment = file.is_rust_in("") && line.trim_start().starts_with("//");
        let names = line.split('`').skip(1).step_by(2).filter(|_| is_page || is_comment);
        let missing = names.filter(|name| targets.lack_file(name));
        problems.extend(missing.map(|name| file.problem(at + 1, &format!("there is no `{name}`"))));
    }
    problems
}

#[test]
fn a_link_or_a_name_that_leads_nowhere_is_found() {
    let page = File::new("docs/a.md", "# A\n\n## Of this, and (that)\n```\n# no\n```");
    let guide = File::new(GUIDE, "include_str!(\"../../docs/b.md\")");
    let targets = Targets::of(&[page, File::new("README.md", ""), guide, File::new(GUIDE_LINKS, "[a.md]: crate::a")]);
    let problems = |path, text| check(&File::new(path, text), &targets).len();
    assert_eq!(problems("README.md", "[a](a.md), [b](docs/b.md)\n[c](docs/a.md#no)\n\n[d]: docs/a.md#of-that"), 4);
    assert_eq!(problems("docs/c.md", "[x](../docs/x.md) [y](#y)"), 2);
    assert_eq!(problems("docs/b.md", "[a](a.md)\n[README.md]: ../README.md"), 2);
    assert_eq!(problems("docs/b.md", "[a.md]\n\n[a.md]: a.md"), 0);
    assert_eq!(problems("docs/b.md", "[a][a.md] [b][b.md]\n\n[a.md]: a.md"), 1);
    assert_eq!(problems("docs/c.md", "[r](../README.md) [a](a.md#of-this-and-that) [b](https://example.org/b)"), 0);
    assert_eq!(problems("README.md", "in `src/b.rs`, `b/b.rs`, `x.lua`,\n`src/b/` and `d.md`"), 5);
    assert_eq!(problems("src/x.rs", "  /// `c.rs` has it\nlet a = \"`d.rs`\";"), 1);
    assert_eq!(problems("docs/c.md", "`src/guide/mod.rs` `guide/mod.rs` `docs/` `target/` `.lua` `x/*.rs`"), 0);
}
