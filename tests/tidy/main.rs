//! Rules that the compiler does not know, checked on every file of the tree.
//!
//! A check is a function from the text of a file to a list of problems. Beside each stands a test
//! that hands it a small bad example: a check that cannot fail is worth nothing.

mod dictionary;
mod docs;
mod imports;
mod links;
mod references;
mod shown;
mod source;
mod text;

use source::{File, tree};

/// Runs `check` on the files that `which` picks, and fails with all that it found.
#[track_caller]
fn all(which: impl Fn(&File) -> bool, check: impl Fn(&File) -> Vec<String>) {
    let files = tree();
    assert!(files.is_ok(), "{files:?}");
    let picked: Vec<_> = files.iter().flatten().filter(|file| which(file)).collect();
    assert!(!picked.is_empty(), "the check looked at no file");
    let problems: Vec<_> = picked.into_iter().flat_map(check).collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_module_imports_only_what_its_layer_may() {
    let files = tree().unwrap();
    let known = imports::Known::of(&files);
    all(|file| file.is_rust_in("src/"), |file| imports::check(file, &known));
}

#[test]
fn no_modules_below_the_api_import_each_other_in_a_circle() {
    const BELOW: &[&str] = &["src/protocol/", "src/instance/", "src/runtime/"];
    let files = tree().unwrap();
    let below: Vec<_> = files.iter().filter(|file| BELOW.iter().any(|dir| file.is_rust_in(dir))).collect();
    assert!(!below.is_empty(), "the check looked at no file");
    let circles = imports::check_circles(&below, &imports::Known::of(&files));
    assert!(circles.is_empty(), "\n{}\n", circles.join("\n"));
}

#[test]
fn the_protocol_reads_no_clock_and_does_no_input_or_output() {
    all(|file| file.is_rust_in("src/protocol/"), imports::check_pure);
}

#[test]
fn the_simulator_drives_the_protocol_alone() {
    let files = tree().unwrap();
    if files.iter().any(|file| file.is_rust_in("tests/sim/")) {
        // But for what holds its instances against those of the tests on real servers.
        all(|file| file.is_rust_in("tests/sim/") && file.path != "tests/sim/mirror.rs", imports::check_simulator);
    }
}

#[test]
fn public_functions_document_errors_and_cancelling() {
    all(|file| file.is_rust_in("src/"), docs::check);
}

#[test]
fn what_docs_rs_shows_says_a_rule_in_words() {
    let shown = shown::Shown::of(&tree().unwrap()).unwrap();
    all(|file| file.is_rust_in("src/"), |file| shown::check(file, &shown));
}

#[test]
fn the_library_does_not_panic() {
    all(|file| file.is_rust_in("src/"), text::check_panics);
}

#[test]
fn no_lint_is_switched_off_without_an_expectation() {
    all(|file| file.is_rust_in(""), text::check_allow);
}

#[test]
fn no_file_is_longer_than_one_can_take_in() {
    all(|file| file.is_rust_in(""), text::check_length);
}

#[test]
fn most_files_of_the_library_are_short() {
    let files = tree().unwrap();
    let library: Vec<_> = files.iter().filter(|file| file.is_rust_in("src/")).collect();
    assert!(!library.is_empty(), "the check looked at no file");
    let problems = text::check_median(&library);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn nothing_is_left_undone_and_no_path_is_of_one_machine() {
    all(|_| true, text::check_words);
}

#[test]
fn each_file_that_a_text_names_is_there() {
    let names = references::names(&tree().unwrap());
    // The checks' own examples are of files that are not there.
    let is_read = |file: &File| file.path.ends_with(".md") || file.is_rust_in("") && !file.is_rust_in("tests/tidy/");
    all(is_read, |file| references::check(file, &names));
}

#[test]
fn links_lead_somewhere_on_the_pages_and_in_the_documentation() {
    let files = tree().unwrap();
    let (pages, guide) = (links::pages(&files), links::guide(&files).unwrap());
    all(|file| file.path.ends_with(".md"), |file| links::check(file, &pages, guide));
}

#[test]
fn each_script_says_what_it_is_for() {
    all(|file| file.path.ends_with(".lua"), text::check_script);
}

#[test]
fn one_thing_has_one_name() {
    let is_read = |file: &File| ["rs", "md", "lua", "toml"].iter().any(|end| file.path.ends_with(&format!(".{end}")));
    all(|file| is_read(file) && file.path != "tests/tidy/dictionary.rs", dictionary::check);
}
