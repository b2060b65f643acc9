//! Rules that the compiler does not know, checked on every file. Beside each check stands a test with a bad example.

mod arrows;
mod budget;
mod code;
mod links;
mod parity;
mod results;
mod source;

use source::tree;

#[track_caller]
fn none(problems: impl IntoIterator<Item = String>) {
    let problems: String = problems.into_iter().map(|problem| problem + "\n").collect();
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn modules_import_what_they_may_and_nothing_in_a_circle() {
    let files = tree().unwrap();
    assert!(files.iter().any(|file| file.path == "src/lib.rs"), "the checks look at another tree");
    let known = arrows::Known::of(&files);
    none(files.iter().flat_map(|file| arrows::check(file, &known)).chain(arrows::check_circles(&files, &known)));
}

#[test]
fn the_library_and_the_way_of_a_pair_only_get_smaller() {
    none(budget::check_all(&tree().unwrap()));
}

#[test]
fn the_library_does_not_panic() {
    none(tree().unwrap().iter().flat_map(code::check_panics));
}

#[test]
fn no_file_is_too_long_and_each_is_named_by_a_module() {
    let files = tree().unwrap();
    none(files.iter().filter_map(code::check_length).chain(code::check_named(&files)));
}

#[test]
fn what_waits_has_a_twin_for_threads() {
    none(parity::check(&tree().unwrap()));
}

#[test]
fn links_and_names_of_files_lead_somewhere() {
    let files = tree().unwrap();
    let targets = links::Targets::of(&files);
    // The checks' own examples lead nowhere.
    none(files.iter().filter(|file| !file.is_rust_in("tests/tidy/")).flat_map(|file| links::check(file, &targets)));
}

#[test]
fn pages_are_short_and_their_figures_are_of_a_build_that_led_here() {
    let files = tree().unwrap();
    none(results::check_words(&files).into_iter().chain(results::check_states(&files)));
    none(results::check_builds(&files));
}

/// Without programs: it would take forty minutes.
#[test]
fn the_run_for_ci_begins_nothing_for_an_argument() {
    for (argument, code) in [("--help", 0), ("-h", 0), ("help", 2)] {
        let begin = ["-c", "PATH=; . .ci/run", ".ci/run", argument];
        let ran = std::process::Command::new("bash").args(begin).output().unwrap();
        let said = String::from_utf8_lossy(if code == 0 { &ran.stdout } else { &ran.stderr }).into_owned();
        assert_eq!(ran.status.code(), Some(code), "{argument}: {said}");
        assert!(said.starts_with("usage: "), "{argument}: {said}");
    }
}
