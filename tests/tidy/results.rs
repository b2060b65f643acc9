//! What the pages say was counted, and when: figures name a build, states of the model are those that its tests find, and prose stays short.

use std::process::Command;

use crate::source::File;

/// Of all pages together, without code and what a program writes: a reader has an afternoon.
const MOST_WORDS: usize = 28_000;

/// A page that says so tells figures from before the last change of the library.
const OLDER: &str = "of a build before";

/// Pages that a program writes as a whole.
const WRITTEN: [&str; 2] = ["docs/planted.md", "docs/SUMMARY.md"];

fn is_page(file: &&File) -> bool {
    file.path == "README.md" || (file.path.starts_with("docs/") && file.path.ends_with(".md"))
}

/// Without blocks of code, and without what stands between the marks of a program.
fn prose(page: &str) -> String {
    let without_code: String = page.split("```").step_by(2).collect();
    let mut prose = String::new();
    let mut rest = without_code.as_str();
    while let Some((before, block)) = rest.split_once(": begin -->") {
        prose.push_str(before);
        rest = block.split_once(": end -->").map_or("", |(_, after)| after);
    }
    prose + rest
}

pub(crate) fn check_words(files: &[File]) -> Option<String> {
    let pages = files.iter().filter(is_page).filter(|file| !WRITTEN.contains(&file.path.as_str()));
    let words: usize = pages.map(|file| prose(&file.text).split_whitespace().count()).sum();
    (words > MOST_WORDS).then(|| format!("the pages have {words} words, at most {MOST_WORDS} are read: shorten one"))
}

/// Numbers of states, in the first cells of rows in the page about tests, that no test of the model asserts.
pub(crate) fn check_states(files: &[File]) -> Vec<String> {
    let asserted = |number: &str| {
        let number = number.replace(' ', "_");
        files.iter().any(|file| file.is_rust_in("tests/model/") && file.text.contains(&number))
    };
    let Some(page) = files.iter().find(|file| file.path == "docs/testing.md") else { return Vec::new() };
    let section = page.text.split("\n## ").find(|section| section.starts_with("Model checking"));
    let numbers: Vec<&str> = section.unwrap_or_default().lines().filter_map(states).collect();
    let wrong = numbers.iter().filter(|number| !asserted(number));
    let wrong = wrong.map(|number| format!("{}: {number} is asserted by no test of the model", page.path));
    wrong.chain(numbers.is_empty().then(|| format!("{} has no number of states", page.path))).collect()
}

/// The number in the first cell, as in `| 1 849 454 | three instances |`.
fn states(line: &str) -> Option<&str> {
    let (number, _) = line.strip_prefix("| ")?.split_once(" |")?;
    number.chars().all(|c| c.is_ascii_digit() || c == ' ').then_some(number).filter(|number| !number.is_empty())
}

/// Builds that pages name, and that are no ancestors of this one, or older than the library without saying so.
pub(crate) fn check_builds(files: &[File]) -> Vec<String> {
    if !has_history() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for page in files.iter().filter(is_page) {
        for commit in builds(&page.text) {
            let problem = if git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_none() {
                format!("{}: {commit} is no build that led here", page.path)
            } else if let Some(later) = changed_since(commit).filter(|_| !page.text.contains(OLDER)) {
                format!("{}: {commit} is older than {later}: measure again, or say that it is {OLDER} ..", page.path)
            } else {
                continue;
            };
            problems.push(problem);
        }
    }
    problems
}

/// Whether this is a clone with all that led here.
fn has_history() -> bool {
    git(&["rev-parse", "--is-shallow-repository"]).is_some_and(|shallow| shallow.trim() == "false")
}

/// What follows the word commit.
fn builds(page: &str) -> impl Iterator<Item = &str> {
    page.split("commit ")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
            rest.get(..end).filter(|name| name.len() >= 7 && name.starts_with(|c: char| c.is_ascii_hexdigit()))
        })
        .filter(|name| name.bytes().take(7).all(|byte| byte.is_ascii_hexdigit()))
}

/// A line that is no comment.
const CODE: &str = "^[[:space:]]*([^/[:space:]]|/[^/])";

/// The first later commit that changes the code of what is measured.
fn changed_since(commit: &str) -> Option<String> {
    let range = format!("{commit}..HEAD");
    let measured = ["src/instance", "src/protocol", "src/runtime"];
    let log = git(&[&["log", "--format=%h %s", "-G", CODE, &range, "--"][..], &measured].concat())?;
    log.lines().last().map(str::to_owned)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn prose_is_what_a_reader_reads() {
    assert_eq!(prose("a\n```\nb\n```\nc <!-- x: begin -->\nd\n<!-- x: end --> e").split_whitespace().count(), 5);
    let page = File::new("docs/a.md", &"word ".repeat(MOST_WORDS + 1));
    assert!(check_words(&[page]).is_some());
}

#[test]
fn a_number_of_states_is_one_that_the_model_asserts() {
    let model = File::new("tests/model/lib.rs", "check(3_208_749)");
    let page = |text| File::new("docs/testing.md", text);
    let of_today =
        page("x\n## Model checking (a)\n\n| 3 208 749 | permits |\n| 7 760 | a holder |\n3 |\n\n## B\n| 9 | c |");
    assert_eq!(check_states(&[model, of_today]).len(), 1);
    assert_eq!(check_states(&[page("x\n## Model checking (a)\n\n| states |\n| a 3 |\n")]).len(), 1);
}

#[test]
fn a_build_is_one_that_led_here() {
    let page = |text: &str| check_builds(&[File::new("docs/a.md", text)]).len();
    assert_eq!(
        builds("of commit 4771f60d05-dirty, and commit now; a commit deadly").collect::<Vec<_>>(),
        ["4771f60d05-dirty"]
    );
    if has_history() {
        assert_eq!(page("commit 0000000000"), 1);
    }
}
