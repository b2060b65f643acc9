//! A copy of the package with all bugs planted, each behind its switch.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Error, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use super::bug::{Bug, Edit, MODEL, Test, root};
use crate::scenario::{seed_name, seed_of};

/// Names the bug that is to be seen.
const SWITCH: &str = "REDQUORUM_PLANTED_BUG";

/// A bug may make a client go round in one moment of its time for ever.
const LONGEST_BATCH: Duration = Duration::from_secs(120);

/// What the copy's library has besides.
const SWITCHES: &str = r#"
/// Which planted bug is to be seen.
mod planted {
    use std::collections::BTreeMap;
    use std::sync::{LazyLock, Mutex, PoisonError};
    static PLANTED: LazyLock<String> = LazyLock::new(|| std::env::var("REDQUORUM_PLANTED_BUG").unwrap_or_default());
    pub(crate) fn is(name: &str) -> bool {
        *PLANTED == name
    }
    /// In a script a switch is `true` or `false` from the beginning.
    pub(crate) fn script(text: &'static str) -> &'static str {
        static SCRIPTS: Mutex<BTreeMap<usize, &'static str>> = Mutex::new(BTreeMap::new());
        let mut scripts = SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner);
        scripts.entry(text.as_ptr() as usize).or_insert_with(|| {
            let switched = |piece: &str| match piece.split_once("\")") {
                Some((name, rest)) => format!("{}{rest}", is(name)),
                None => piece.to_owned(),
            };
            let mut pieces = text.split("crate::planted::is(\"");
            let first = pieces.next().unwrap_or_default().to_owned();
            pieces.fold(first, |text, piece| text + &switched(piece)).leak()
        })
    }
    macro_rules! include_str {
        ($file:literal) => {
            crate::planted::script(std::include_str!($file))
        };
    }
    pub(crate) use include_str;
}
"#;

/// Where scripts are included, and behind what the switches in them are found.
const SCRIPTS: &str = "src/instance/redis/scripts/mod.rs";
const IMPORTS: &str = "use std::sync::LazyLock;\n";

/// The packages that the world and the model are built from.
const MANIFESTS: &[&str] = &["Cargo.toml", "tests/model/Cargo.toml", "tests/testkit/Cargo.toml"];

/// Each file of the library that has bugs, with these.
pub(super) fn with_bugs(bugs: &[Bug]) -> io::Result<BTreeMap<String, String>> {
    let mut edits: BTreeMap<&str, Vec<(&Bug, &Edit)>> = BTreeMap::new();
    for bug in bugs {
        bug.edits.iter().for_each(|edit| edits.entry(&edit.file).or_default().push((bug, edit)));
    }
    let mut files = BTreeMap::new();
    for (file, edits) in edits {
        let text = fs::read_to_string(root().join(file)).map_err(|error| Error::other(format!("{file}: {error}")))?;
        let planted = plant(&text, &edits).map_err(|problem| Error::other(format!("{file}: {problem}")))?;
        files.insert(file.to_owned(), planted);
    }
    Ok(files)
}

fn plant(text: &str, edits: &[(&Bug, &Edit)]) -> Result<String, String> {
    let mut places: Vec<(Range<usize>, &Bug, &Edit)> = Vec::new();
    for (bug, edit) in edits {
        let mut found = text.match_indices(&edit.found);
        let (Some((at, piece)), None) = (found.next(), found.next()) else {
            return Err(format!("what bugs/{}.bug looks for is not there exactly once: {:?}", bug.name, edit.found));
        };
        places.push((at..at + piece.len(), bug, edit));
    }
    places.sort_by_key(|(range, ..)| range.start);
    if let Some([(_, one, _), (_, other, _)]) = places.windows(2).find(|pair| pair[0].0.end > pair[1].0.start) {
        return Err(format!("bugs/{}.bug and bugs/{}.bug are about the same piece", one.name, other.name));
    }
    let mut planted = text.to_owned();
    places.iter().rev().for_each(|(range, _, edit)| planted.replace_range(range.clone(), &edit.planted));
    Ok(planted)
}

/// A manifest with another version: two packages of one name and version would take each other's place among
/// what cargo has built. What they depend on is built once for both.
fn with_other_version(manifest: &str) -> io::Result<String> {
    let text = fs::read_to_string(root().join(manifest))?;
    let line = |line: &str| match line.strip_prefix("version = \"").and_then(|rest| rest.strip_suffix('"')) {
        Some(version) => format!("version = \"{version}+planted\"\n"),
        None => format!("{line}\n"),
    };
    Ok(text.lines().map(line).collect())
}

/// The world of a copy that was built, and the tests that bugs name.
pub(super) struct Copy {
    dir: PathBuf,
    /// By target.
    programs: BTreeMap<String, PathBuf>,
}

impl Copy {
    /// Makes the copy, or what has changed of it since, and builds its world and its tests.
    pub(super) fn build(bugs: &[Bug]) -> io::Result<Self> {
        let mut planted = with_bugs(bugs)?;
        let lib = planted.remove("src/lib.rs").map_or_else(|| fs::read_to_string(root().join("src/lib.rs")), Ok)?;
        planted.insert("src/lib.rs".to_owned(), lib + SWITCHES);
        let scripts = planted.remove(SCRIPTS).map_or_else(|| fs::read_to_string(root().join(SCRIPTS)), Ok)?;
        let switched = format!("use crate::planted::include_str;\n{IMPORTS}");
        planted.insert(SCRIPTS.to_owned(), scripts.replacen(IMPORTS, &switched, 1));
        for manifest in MANIFESTS {
            planted.insert((*manifest).to_owned(), with_other_version(manifest)?);
        }
        let target = target_dir()?;
        let dir = target.join("planted");
        copy_dir(root(), &dir, &target, &|path| planted.get(&*path.to_string_lossy()).map(String::as_bytes))?;
        let tests = bugs.iter().flat_map(|bug| &bug.tests);
        let targets = tests.map(|test| test.target.as_str()).chain(["world"]).collect();
        Ok(Self { programs: build_programs(&dir, &target, &targets)?, dir })
    }

    fn program(&self, target: &str) -> io::Result<Command> {
        let program = self.programs.get(target).ok_or_else(|| Error::other(format!("{target} was not built")))?;
        let mut command = Command::new(program);
        command.current_dir(&self.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Those of the tests that do not pass without any bug; none that is not there does.
    pub(super) fn failing<'a>(&self, tests: impl IntoIterator<Item = &'a Test>) -> io::Result<Vec<&'a Test>> {
        let mut by_target: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
        tests.into_iter().for_each(|test| by_target.entry(&test.target).or_default().push(test));
        let mut failing = Vec::new();
        for (target, tests) in by_target {
            let mut run = self.program(target)?;
            run.arg("--exact").args(tests.iter().map(|test| &test.name));
            let output = output_in_time(run)?;
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            failing.extend(tests.into_iter().filter(|test| !text.contains(&format!("test {} ... ok\n", test.name))));
        }
        Ok(failing)
    }

    /// Whether a test fails with the bug. One that does not end does not tell what is wrong.
    pub(super) fn fails(&self, test: &Test, bug: &Bug) -> io::Result<bool> {
        let mut run = self.program(&test.target)?;
        run.args(["--exact", &test.name]).env(SWITCH, &bug.name);
        let output = output_in_time(run)?;
        Ok(output.is_some_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            let has_failed = !output.status.success() && text.contains("test result: FAILED. 0 passed; 1 failed");
            // Of the model a property, not only the number of states.
            has_failed && (test.target != MODEL || text.contains("Unexpected \""))
        }))
    }

    /// The first seed from `start` on that catches the bug, and the invariant that does.
    pub(super) fn first(&self, bug: &Bug, start: u64, count: u64, jobs: usize) -> io::Result<Option<(u64, String)>> {
        let numbers = [("--first", count.to_string()), ("--start", seed_name(start)), ("--jobs", jobs.to_string())];
        let args = numbers.into_iter().flat_map(|(name, number)| [name.to_owned(), number]);
        let mut batch = self.program("world")?;
        batch.args(args).env(SWITCH, &bug.name);
        let Some(output) = output_in_time(batch)? else {
            println!(
                "{}: a run from {} on does not end; what comes behind it is not looked at",
                bug.name,
                seed_name(start)
            );
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&output.stdout);
        match text.trim().split_once(' ') {
            Some(("none", _)) => Ok(None),
            Some((seed, by)) if output.status.success() => {
                let seed = seed_of(seed).ok_or_else(|| Error::other(format!("{seed} is no seed")))?;
                Ok(Some((seed, by.to_owned())))
            }
            _ => {
                let told = String::from_utf8_lossy(&output.stderr);
                Err(Error::other(format!("{}: the run ended with {}: {told}", bug.name, output.status)))
            }
        }
    }

    /// Tells one run line by line; whether it broke nothing.
    pub(super) fn replay(&self, bug: &Bug, run: &str) -> io::Result<bool> {
        let mut replay = self.program("world")?;
        replay.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        Ok(replay.args(["--replay", run]).env(SWITCH, &bug.name).status()?.success())
    }
}

/// What a program has said; `None` if it had to be ended.
#[expect(clippy::disallowed_methods, reason = "for how long a program runs, in real time")]
fn output_in_time(mut program: Command) -> io::Result<Option<Output>> {
    let (mut child, begun) = (program.spawn()?, Instant::now());
    let (stdout, stderr) = (child.stdout.take().map(read), child.stderr.take().map(read));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > LONGEST_BATCH {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = [stdout, stderr].map(|read| read.and_then(|read| read.join().ok()).unwrap_or_default());
    Ok(Some(Output { status, stdout, stderr }))
}

/// Reads meanwhile: a program that says more than a pipe holds waits for its reader.
fn read(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all); // what there is of it
        all
    })
}

/// Where cargo has built this program, which is in `release/deps/`: what the copy is built from is there too.
fn target_dir() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    this.ancestors().nth(3).map(Path::to_owned).ok_or_else(|| Error::other("there is no target directory"))
}

/// Copies what is different, so that only that is built again; `planted` has other contents for some files.
fn copy_dir<'a>(from: &Path, to: &Path, target: &Path, planted: &impl Fn(&Path) -> Option<&'a [u8]>) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(from)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let is_hidden = name.to_string_lossy().starts_with('.');
        if is_hidden || path == target || name == "target" || path.is_symlink() {
            continue;
        }
        let copy = to.join(&name);
        if path.is_dir() {
            copy_dir(&path, &copy, target, planted)?;
        } else {
            let original = fs::read(&path)?;
            let contents = planted(path.strip_prefix(root()).unwrap_or(&path)).unwrap_or(&original);
            if fs::read(&copy).ok().as_deref() != Some(contents) {
                fs::write(&copy, contents)?;
            }
        }
        names.push(name);
    }
    remove_others(to, &names)
}

/// What is not there any more must not be built.
fn remove_others(dir: &Path, names: &[impl AsRef<OsStr>]) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        if names.iter().all(|known| known.as_ref() != name) {
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    Ok(())
}

/// Builds test targets of a copy; gives their programs.
fn build_programs(copy: &Path, target: &Path, wanted: &BTreeSet<&str>) -> io::Result<BTreeMap<String, PathBuf>> {
    let of_package = wanted.iter().filter(|name| **name != MODEL);
    let args = of_package.flat_map(|name| if *name == "lib" { vec!["--lib"] } else { vec!["--test", name] });
    let mut programs = build(copy, target, &args.collect::<Vec<_>>())?;
    if wanted.contains(MODEL) {
        let model = build(copy, target, &["--package", "redquorum-model", "--lib"])?;
        programs.extend(model.into_values().map(|program| (MODEL.to_owned(), program)));
    }
    Ok(programs)
}

fn build(copy: &Path, target: &Path, targets: &[&str]) -> io::Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["test", "--release", "--no-run", "--quiet", "--message-format=json-render-diagnostics"]).args(targets);
    // Where cargo runs this program it tells of its package. What follows these, as a build script does, would be built anew.
    let is_of_package = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start));
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package)).for_each(|(name, _)| {
        build.env_remove(name);
    });
    build.current_dir(copy).env("CARGO_TARGET_DIR", target).stderr(Stdio::inherit());
    let output = build.output()?;
    if !output.status.success() {
        return Err(Error::other(format!("the copy in {} is not built", copy.display())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let between = |line: &str, start: &str| {
        let (_, rest) = line.split_once(start)?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let program = |line: &str| {
        let path = between(line, "\"executable\":\"")?;
        let is_lib = line.contains("\"kind\":[\"lib\"]");
        let name = if is_lib { "lib".to_owned() } else { between(line, "\"name\":\"")? };
        Some((name, PathBuf::from(path)))
    };
    Ok(text.lines().filter_map(program).collect())
}
