//! How long files are, whether they are compiled, and what can panic.

use crate::source::File;

const MOST_LINES: usize = 1000; // clippy knows how long a function may be

pub(crate) fn check_length(file: &File) -> Option<String> {
    let lines = file.text.lines().filter(|_| file.is_rust_in("")).count();
    (lines > MOST_LINES).then(|| file.problem(lines, &format!("more than {MOST_LINES} lines")))
}

/// A file that no `mod` names is not compiled: its tests never run.
pub(crate) fn check_named(files: &[File]) -> Vec<String> {
    let is_named = |file: &File| {
        let module = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let (dir, name) = module.rsplit_once('/').unwrap_or_default();
        let is_program = ["lib", "main"].contains(&name) || !dir.starts_with("src/") && dir.ends_with("tests");
        let heads = [".rs", "/mod.rs", "/lib.rs", "/main.rs"].map(|rest| format!("{dir}{rest}"));
        let is_above = |other: &File| dir == "tests/shared" || heads.contains(&other.path);
        let module = format!("mod {name};");
        let names = |line: &str| line.ends_with(&module) && !line.contains("//");
        is_program || files.iter().any(|other| is_above(other) && other.text.lines().any(names))
    };
    let code = files.iter().filter(|file| file.is_rust_in("src/") || file.is_rust_in("tests/"));
    code.filter(|file| !is_named(file)).map(|file| file.problem(1, "no `mod` names this file")).collect()
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
fn a_long_file_and_one_that_no_module_names_are_found() {
    let is_found = |lines| check_length(&File::new("src/a.rs", &"\n".repeat(lines))).is_some();
    assert_eq!([1000, 1001].map(is_found), [false, true]);
    let tree = "src/lib.rs mod a;\npub(crate) mod b;|src/a.rs mod c;|src/a/c.rs |src/b/mod.rs mod d;|src/b/d/mod.rs \
        |t/r.rs |tests/x/main.rs mod r;|tests/shared/r.rs |tests/y.rs |src/c.rs mod c;|tests/x/y.rs // mod y;";
    let files = tree.split('|').filter_map(|file| file.split_once(' ')).map(|(path, text)| File::new(path, text));
    let problems = check_named(&files.collect::<Vec<_>>()).join(" ");
    assert_eq!(problems.replace(": no `mod` names this file", ""), "src/c.rs:1 tests/x/y.rs:1");
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
