//! How long files and functions are, and what can panic.

use crate::source::File;

const MOST_LINES: usize = 1000;
const MOST_LINES_OF_FUNCTION: usize = 70; // as for clippy

pub(crate) fn check_length(file: &File) -> Vec<String> {
    let lines: Vec<_> = file.text.lines().filter(|_| file.is_rust_in("")).collect();
    let mut problems = Vec::new();
    if lines.len() > MOST_LINES {
        problems.push(file.problem(lines.len(), &format!("more than {MOST_LINES} lines")));
    }
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if !(code.starts_with("fn ") || code.contains(" fn ")) || code.starts_with("//") {
            continue;
        }
        // As rustfmt writes it, the body begins with a `{` at the end of a line, and its `}` stands below the `fn`.
        let start = lines[at..].iter().position(|line| line.ends_with(['{', '}', ';'])).unwrap_or(0) + at;
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let body = lines[start..].iter().skip(1).take_while(|line| **line != end);
        let length = body.map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        if lines[start].ends_with('{') && length > MOST_LINES_OF_FUNCTION {
            problems.push(file.problem(at + 1, &format!("a function of {length} lines does several things")));
        }
    }
    problems
}

pub(crate) fn check_panics(file: &File) -> Vec<String> {
    let tokens = file.tokens();
    let texts: Vec<_> = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let can_panic = |window: &[&str]| match window {
        [".", "unwrap" | "expect", "("] | ["panic" | "unimplemented" | "unreachable", "!", _] => true,
        // An example in the documentation, which users copy.
        ["doc", "=", text] => text.contains(".unwrap()"),
        _ => false,
    };
    let found = texts.windows(3).enumerate().filter(|(_, window)| can_panic(window));
    found.map(|(at, _)| file.problem(tokens[at + 1].1, "this can panic: return an error")).collect()
}

#[test]
fn a_long_file_and_a_long_function_are_found() {
    let problems = |text: &str| check_length(&File::new("src/a.rs", text)).len();
    assert_eq!([1000, 1001].map(|lines| problems(&"\n".repeat(lines))), [0, 1]);
    let function = |lines| format!("  fn f(\n  a: u8\n  ) {{\n // Why.\n\n{}  }}\n\n}}", "    g();\n".repeat(lines));
    assert_eq!([70, 71].map(|lines| problems(&function(lines))), [0, 1]);
}

#[test]
fn a_panic_is_found_outside_of_tests_and_in_examples() {
    let problems = |text| check_panics(&File::new("src/a.rs", text)).len();
    assert_eq!(problems("fn f() { a.unwrap(); b.expect(\"x\"); panic!(\"y\"); m!(c.unwrap()) }"), 4);
    assert_eq!(problems("/// let a = b.unwrap();\nfn f() {}"), 1);
    assert_eq!(problems("// .unwrap()\nfn f() { a.unwrap_or(\".unwrap()\"); self.expect; }"), 0);
    assert_eq!(problems("#[cfg(test)] mod t { fn g() { a.unwrap() } } #[cfg(not(test))] fn g() {}"), 0);
    assert_eq!(problems("fn f() { #[cfg(test)] d([0; 2].unwrap()); e().unwrap() } fn g() { a.unwrap() }"), 2);
}
