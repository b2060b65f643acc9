//! Links between the pages lead somewhere, on the repository's page and in the crate's documentation.

use std::collections::BTreeMap;

use crate::source::File;

const GUIDE: &str = "src/guide/mod.rs";
const GUIDE_LINKS: &str = "src/guide/links.md";

/// The headings of every page, as fragments of its address; a file that is no page has none.
pub(crate) fn pages(files: &[File]) -> BTreeMap<String, Vec<String>> {
    files.iter().map(|file| (file.path.clone(), headings(file))).collect()
}

fn headings(file: &File) -> Vec<String> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    lines(&file.text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| fragment(line)).collect()
}

fn fragment(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// The lines outside of code, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((at + 1, line))
    })
}

/// `guide` is the text of the module that shows pages, and of the links that it puts before them.
pub(crate) fn check(file: &File, pages: &BTreeMap<String, Vec<String>>, guide: [&str; 2]) -> Vec<String> {
    if file.path == GUIDE_LINKS {
        return Vec::new(); // rustdoc follows them
    }
    let is_shown = guide[0].contains(&format!("\"../../{}\"", file.path));
    let mut problems = Vec::new();
    for (at, line) in lines(&file.text) {
        let label = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let inline = line.split("](").skip(1).filter_map(|rest| Some((None, rest.split_once(')')?.0)));
        for (label, target) in label.map(|(label, target)| (Some(label), target)).into_iter().chain(inline) {
            if target.contains("://") {
                continue;
            }
            if !leads_somewhere(&file.path, target, pages) {
                problems.push(file.problem(at, &format!("there is no {target}")));
            }
            match label {
                None if is_shown && !target.starts_with('#') => {
                    let what =
                        format!("write [text][{target}], and below [{target}]: {target}: {GUIDE} shows this page");
                    problems.push(file.problem(at, &what));
                }
                Some(label) if is_shown && !guide[1].contains(&format!("[{label}]: ")) => {
                    problems.push(file.problem(at, &format!("{GUIDE_LINKS} has no [{label}]")));
                }
                _ => {}
            }
        }
    }
    problems
}

fn leads_somewhere(from: &str, target: &str, pages: &BTreeMap<String, Vec<String>>) -> bool {
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let mut parts: Vec<&str> = from.split('/').collect();
    if !path.is_empty() {
        parts.pop();
    }
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let headings = pages.get(&parts.join("/"));
    headings.is_some_and(|headings| fragment.is_empty() || headings.iter().any(|heading| heading == fragment))
}

pub(crate) fn guide(files: &[File]) -> Option<[&str; 2]> {
    let text = |path| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    Some([text(GUIDE)?, text(GUIDE_LINKS)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        let files =
            [File::new("docs/a.md", "# A\n\n## Of this, and (that)\n```\n# no\n```"), File::new("README.md", "")];
        let guide = ["include_str!(\"../../docs/b.md\")", "[a.md]: crate::a"];
        check(&File::new(path, text), &pages(&files), guide).len()
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        assert_eq!(problems("README.md", "[a](a.md), [b](docs/b.md)\n[c](docs/a.md#no)\n\n[d]: docs/a.md#of-that"), 4);
        assert_eq!(problems("docs/c.md", "[x](../docs/x.md) [y](#y)"), 2);
    }

    #[test]
    fn a_page_that_the_guide_shows_links_by_what_the_guide_knows() {
        assert_eq!(problems("docs/b.md", "[a](a.md)"), 1);
        assert_eq!(problems("docs/b.md", "[README.md]: ../README.md"), 1);
        assert_eq!(problems("docs/b.md", "[a.md]\n\n[a.md]: a.md"), 0);
    }

    #[test]
    fn a_link_that_leads_somewhere_is_not_reported() {
        let text = "[a](docs/a.md#of-this-and-that) [b](https://example.org/b)\n```\n[c](c.md)\n```\n[a]: docs/a.md";
        assert_eq!(problems("README.md", text), 0);
        assert_eq!(problems("docs/c.md", "[r](../README.md) [a](a.md#a)"), 0);
    }
}
