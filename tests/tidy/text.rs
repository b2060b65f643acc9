//! Words and constructs that are not wanted.

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{File, inside, is_ident, is_punct, line};

const MOST_LINES: usize = 400;

pub(crate) fn check_length(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    let what = format!("has {lines} lines, more than {MOST_LINES}: split it by what its parts know");
    if lines > MOST_LINES { vec![file.problem(lines, &what)] } else { Vec::new() }
}

/// Half of the files have no more lines than this.
const MEDIAN_LINES: usize = 125;

pub(crate) fn check_median(files: &[&File]) -> Vec<String> {
    let mut lines: Vec<usize> = files.iter().map(|file| file.text.lines().count()).collect();
    lines.sort_unstable();
    let median = lines.get(lines.len() / 2).copied().unwrap_or_default();
    let what = format!("half of the files have more than {median} lines, that is more than {MEDIAN_LINES}");
    if median > MEDIAN_LINES { vec![what] } else { Vec::new() }
}

pub(crate) fn check_panics(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    match file.shipped_tokens() {
        Ok(tokens) => panics(file, &tokens, &mut problems),
        Err(unparsed) => return unparsed,
    }
    problems
}

fn panics(file: &File, tokens: &[TokenTree], problems: &mut Vec<String>) {
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1);
        match token {
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let is_method = at > 0 && is_punct(&tokens[at - 1], '.');
                let is_call = next.is_some_and(|next| inside(next, Delimiter::Parenthesis).is_some());
                let is_macro = next.is_some_and(|next| is_punct(next, '!'));
                let method = is_method && is_call && ["unwrap", "expect"].contains(&name.as_str());
                if method || is_macro && ["panic", "unimplemented"].contains(&name.as_str()) {
                    problems.push(file.problem(line(token), &format!("`{name}` in the library: return an error")));
                }
            }
            // An example in the documentation, which users copy.
            TokenTree::Literal(text) if at > 1 && is_ident(&tokens[at - 2], "doc") => {
                if text.to_string().contains(".unwrap()") {
                    problems.push(file.problem(line(token), "`unwrap` in an example: use `?`"));
                }
            }
            TokenTree::Group(group) => panics(file, &group.stream().into_iter().collect::<Vec<_>>(), problems),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

pub(crate) fn check_allow(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    match file.tokens() {
        Ok(tokens) => allows(file, &tokens, &mut problems),
        Err(unparsed) => return unparsed,
    }
    problems
}

fn allows(file: &File, tokens: &[TokenTree], problems: &mut Vec<String>) {
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let inner: Vec<_> = group.stream().into_iter().collect();
        let marked = |back| at >= back && is_punct(&tokens[at - back], '#');
        let is_attribute = group.delimiter() == Delimiter::Bracket && (marked(1) || marked(2));
        let text: String = group.to_string().split_whitespace().collect();
        if is_attribute && (text.starts_with("[allow(") || text.starts_with("[cfg_attr(") && text.contains(",allow(")) {
            problems.push(file.problem(line(token), "`allow`: use #[expect(.., reason = \"..\")]"));
        }
        allows(file, &inner, problems);
    }
}

pub(crate) fn check_words(file: &File) -> Vec<String> {
    // In pieces, as this file is checked too.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let paths = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];
    let mut problems = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let has_word = |word: &&&str| line.split(|c: char| !c.is_alphanumeric()).any(|part| part == **word);
        if let Some(word) = words.iter().find(has_word) {
            problems.push(file.problem(number + 1, &format!("`{word}`: do it, or describe it where plans are kept")));
        }
        // At the start of a path: "a/work/b" is another.
        let starts = |path: &&&str| {
            line.match_indices(**path)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-/}".contains(c)))
        };
        if let Some(path) = paths.iter().find(starts) {
            problems.push(file.problem(number + 1, &format!("`{path}` is a path of one machine")));
        }
    }
    problems
}

/// A script, or a part that several have in common, begins with what it is for.
pub(crate) fn check_script(file: &File) -> Vec<String> {
    let has_header = file.text.lines().next().is_some_and(|line| line.starts_with("-- "));
    if has_header { Vec::new() } else { vec![file.problem(1, "no comment at its head says what it is for")] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(check: fn(&File) -> Vec<String>, text: &str) -> usize {
        check(&File::new("src/a.rs", text)).len()
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(count(check_length, &"\n".repeat(400)), 0);
        assert_eq!(count(check_length, &"\n".repeat(401)), 1);
    }

    #[test]
    fn files_that_are_long_on_the_whole_are_found() {
        let file = |lines| File::new("src/a.rs", &"\n".repeat(lines));
        let median = |lines: [usize; 3]| check_median(&lines.map(file).iter().collect::<Vec<_>>()).len();
        assert_eq!(median([400, 125, 1]), 0);
        assert_eq!(median([400, 126, 1]), 1);
    }

    #[test]
    fn a_panic_is_found_outside_of_tests_and_in_examples() {
        assert_eq!(count(check_panics, "fn f() { a.unwrap(); b.expect(\"x\"); panic!(\"y\"); m!(c.unwrap()) }"), 4);
        assert_eq!(count(check_panics, "/// let a = b.unwrap();\nfn f() {}"), 1);
        let fine = "// .unwrap()\nfn f() { a.unwrap_or(\".unwrap()\"); self.expect; } #[cfg(test)] mod t { fn g() { a.unwrap() } }";
        assert_eq!(count(check_panics, fine), 0);
    }

    #[test]
    fn a_silenced_lint_is_found_wherever_it_is() {
        assert_eq!(count(check_allow, "#![allow(dead_code)]"), 1);
        assert_eq!(count(check_allow, "fn f() { #[allow(unused, reason = \"x\")] let a = 1; }"), 1);
        assert_eq!(count(check_allow, "#[cfg_attr(test, allow(unused))] fn f() {}"), 1);
        assert_eq!(count(check_allow, "#[expect(unused, reason = \"x\")] fn allow() { allow(1); [allow(1)]; }"), 0);
    }

    #[test]
    fn unfinished_work_and_local_paths_are_found() {
        assert_eq!(count(check_words, concat!("// TO", "DO: later\n# FIX", "ME\nmktemp XX", "XXXX")), 2);
        assert_eq!(count(check_words, concat!("cd /ho", "me/me\nPATH=/ro", "ot/bin\n(/wo", "rk/main)")), 3);
        assert_eq!(count(check_words, concat!("frame/wo", "rk/a, $HOME/ro", "ot/b, todo")), 0);
    }

    #[test]
    fn a_script_without_a_header_is_found() {
        assert_eq!(count(check_script, "return 1 -- one"), 1);
        assert_eq!(count(check_script, ""), 1);
        assert_eq!(count(check_script, "-- Gives one.\nreturn 1"), 0);
    }
}
