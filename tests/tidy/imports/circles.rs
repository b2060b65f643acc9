//! Modules that import each other in a circle: none of them can be read before the others.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::paths;
use super::{Known, module_of};
use crate::source::File;

/// What each module imports, of those below `src/`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The circles among `files`, each as a path that comes back to where it begins.
pub(crate) fn check_circles(files: &[&File], known: &Known) -> Vec<String> {
    let mut imports = Imports::new();
    for file in files {
        let module = module_of(&file.path);
        let tokens = match file.shipped_tokens() {
            Ok(tokens) => tokens,
            Err(problems) => return problems,
        };
        let found = paths(&tokens, &module);
        let to = found.iter().filter_map(|path| known.module(&path.absolute(&known.modules)?));
        let module = module.join("::");
        imports.insert(module.clone(), to.filter(|to| *to != module).collect());
    }
    let circles = imports.keys().filter_map(|module| way(&imports, module, module, &mut BTreeSet::new()));
    circles.map(|circle| format!("in a circle: {}", circle.join(" imports "))).collect()
}

fn way(imports: &Imports, from: &str, to: &str, seen: &mut BTreeSet<String>) -> Option<Vec<String>> {
    for next in imports.get(from).into_iter().flatten() {
        if next == to {
            return Some(vec![from.to_owned(), to.to_owned()]);
        }
        if seen.insert(next.clone())
            && let Some(rest) = way(imports, next, to, seen)
        {
            return Some([from.to_owned()].into_iter().chain(rest).collect());
        }
    }
    None
}

#[test]
fn a_circle_is_found_and_a_way_that_ends_is_none() {
    let circles = |c: &str| {
        let file = |path, text| File::new(path, text);
        let files = [
            file("src/a/mod.rs", "pub use b::B;"),
            file("src/a/b.rs", "use crate::a::c::C; fn f() { super::c::f() }"),
            file("src/a/c.rs", c),
        ];
        check_circles(&files.iter().collect::<Vec<_>>(), &Known::of(&files))
    };
    assert_eq!(circles("use std::fmt; #[cfg(test)] mod tests { use super::super::b::B; }"), [""; 0]);
    assert_eq!(circles("use super::b::B;").len(), 2);
    assert_eq!(circles("use crate::a;")[0], "in a circle: a imports a::b imports a::c imports a");
}
