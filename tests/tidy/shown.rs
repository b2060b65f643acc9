//! What docs.rs shows: nobody there has the list of rules, so a rule is told in words.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{File, inside, is_ident, is_punct, line};

const KINDS: &[&str] = &["impl", "enum", "trait", "struct", "union", "mod", "use", "fn", "const", "static", "type"];

/// The names that users reach: what the crate's root and its public modules define or re-export.
pub(crate) struct Shown {
    names: BTreeSet<String>,
    roots: Vec<String>,
}

impl Shown {
    pub(crate) fn of(files: &[File]) -> Result<Self, Vec<String>> {
        let mut shown = Self { names: BTreeSet::new(), roots: vec!["src/lib.rs".to_owned()] };
        let mut at = 0;
        while let Some(root) = shown.roots.get(at) {
            at += 1;
            let Some(file) = files.iter().find(|file| file.path == *root) else { continue };
            let below = below(&file.path);
            for item in items(&file.shipped_tokens()?, ';') {
                if !item.is_public() || item.is_hidden {
                    continue;
                }
                let mut names = item.names();
                if item.kind() == "mod" {
                    let module = names.next().unwrap_or_default();
                    shown.roots.extend([format!("{below}{module}.rs"), format!("{below}{module}/mod.rs")]);
                } else if item.kind() == "use" {
                    shown.names.extend(names);
                } else {
                    shown.names.extend(names.next());
                }
            }
        }
        Ok(shown)
    }
}

/// Where the modules of a file are.
fn below(path: &str) -> String {
    let of_root = path.strip_suffix("lib.rs").or_else(|| path.strip_suffix("mod.rs"));
    of_root.map_or_else(|| path.replace(".rs", "/"), str::to_owned)
}

/// An item, a field or a variant.
#[derive(Default)]
struct Item {
    /// Each line of its documentation, with its number.
    docs: Vec<(usize, String)>,
    is_hidden: bool,
    tokens: Vec<TokenTree>,
}

impl Item {
    fn is_public(&self) -> bool {
        let is_limited = || self.tokens.get(1).is_some_and(|next| inside(next, Delimiter::Parenthesis).is_some());
        self.tokens.first().is_some_and(|first| is_ident(first, "pub")) && !is_limited()
    }

    fn kind(&self) -> &'static str {
        let kind = |token: &TokenTree| KINDS.iter().find(|kind| is_ident(token, kind));
        self.tokens.iter().find_map(kind).copied().unwrap_or_default()
    }

    /// What it is called, and after that whatever else is named on the way to its body.
    fn names(&self) -> impl Iterator<Item = String> {
        let after = self.tokens.iter().position(|token| KINDS.iter().any(|kind| is_ident(token, kind)));
        let mut names = Vec::new();
        idents(&self.tokens[after.map_or(0, |at| at + 1)..], self.kind() == "use", &mut names);
        names.into_iter()
    }
}

fn idents(tokens: &[TokenTree], in_braces: bool, names: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => names.push(ident.to_string()),
            TokenTree::Group(group) if in_braces => {
                idents(&group.stream().into_iter().collect::<Vec<_>>(), in_braces, names);
            }
            _ => {}
        }
    }
}

/// Takes tokens apart; an item ends with `end`, or with its body.
fn items(tokens: &[TokenTree], end: char) -> Vec<Item> {
    let (mut items, mut item) = (Vec::new(), Item::default());
    let mut at = 0;
    while at < tokens.len() {
        let attribute = tokens.get(at + 1).and_then(|next| inside(next, Delimiter::Bracket));
        if let (true, Some(attribute)) = (is_punct(&tokens[at], '#'), attribute) {
            let text: String = attribute.iter().map(ToString::to_string).collect();
            item.is_hidden |= text == "doc(hidden)";
            if text.starts_with("doc=") {
                item.docs.push((line(&tokens[at]), text));
            }
            at += 2;
            continue;
        }
        item.tokens.push(tokens[at].clone());
        if is_punct(&tokens[at], end) || inside(&tokens[at], Delimiter::Brace).is_some() {
            items.push(std::mem::take(&mut item));
        }
        at += 1;
    }
    items.push(item);
    items
}

pub(crate) fn check(file: &File, shown: &Shown) -> Vec<String> {
    let tokens = match file.shipped_tokens() {
        Ok(tokens) => tokens,
        Err(problems) => return problems,
    };
    let mut docs = Vec::new();
    for item in items(&tokens, ';') {
        let is_shown = |name: String| shown.names.contains(&name);
        let is_reached = if item.kind() == "impl" {
            item.names().any(is_shown)
        } else {
            item.is_public() && item.names().next().is_some_and(is_shown)
        };
        if is_reached {
            collect(&item, &mut docs);
        }
    }
    if shown.roots.contains(&file.path) {
        let of_module = |(_, text): &(usize, &str)| text.starts_with("//!");
        let numbered = file.text.lines().enumerate().map(|(at, text)| (at + 1, text));
        docs.extend(numbered.filter(of_module).map(|(at, text)| (at, text.to_owned())));
    }
    let cites = docs.into_iter().filter(|(_, text)| cites_a_rule(text));
    cites.map(|(at, _)| file.problem(at, "docs.rs shows this and not the rules' numbers: say it in words")).collect()
}

/// The documentation of an item and of all that is shown with it.
fn collect(item: &Item, docs: &mut Vec<(usize, String)>) {
    if item.is_hidden {
        return;
    }
    docs.extend(item.docs.iter().cloned());
    let is_of_a_trait = item.kind() == "impl" && item.names().any(|name| name == "for");
    let (end, all) = match item.kind() {
        "enum" | "" => (',', true),
        "struct" | "union" => (',', false),
        "impl" | "trait" => (';', item.kind() == "trait" || is_of_a_trait),
        _ => return,
    };
    for token in &item.tokens {
        if let TokenTree::Group(group) = token {
            let inner = items(&group.stream().into_iter().collect::<Vec<_>>(), end);
            inner.iter().filter(|part| all || part.is_public()).for_each(|part| collect(part, docs));
        }
    }
}

/// Whether there is a word like `P9`.
fn cites_a_rule(text: &str) -> bool {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    text.split(|c: char| !c.is_alphanumeric()).any(|word| word.strip_prefix('P').is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! All.\nmod a; pub use a::{A, sub::F}; #[doc(hidden)] pub use a::H; pub mod testing; #[doc(hidden)] pub mod protocol;";

    fn lines(path: &str, text: &str) -> Vec<String> {
        let files = [File::new("src/lib.rs", ROOT), File::new("src/testing.rs", "pub struct T;")];
        let place = format!("{path}:");
        let what = |problem: String| problem.strip_prefix(&place).and_then(|rest| rest.split(':').next()?.parse().ok());
        let problems = check(&File::new(path, text), &Shown::of(&files).unwrap());
        problems.into_iter().filter_map(what).collect()
    }

    #[test]
    fn a_number_is_found_wherever_users_see_it() {
        for text in [
            "/// Ends (P9).\npub struct A<B, C>(u8);",
            "/// P12: so.\npub fn f() {} #[derive(Debug)]\n\n\n/// P9\npub enum A { B }",
            "pub struct A {\n/// P1\npub a: u8 }",
            "pub enum A<B, C> { /// One.\n\n/// As of P1.\nB { a: u8 }, C }",
            "pub enum A {\n B {\n /// P1.\na: Map<u8, u8> } }",
            "pub trait A {\n /// P1.\nfn f(&self); }",
            "impl<B, C> A<B, C> where B: C { const fn g() { x }\n#[must_use]\n/// P1 and P2\npub async fn f(&self) {} }",
            "/// P1\nimpl Display for A { /// P2\nfn f() {} }",
            "pub struct T { /// P17\npub a: u8 }",
            "pub union F { /// P17\npub a: u8 }",
        ] {
            assert!(!lines("src/a.rs", text).is_empty(), "{text}");
        }
        assert_eq!(lines("src/lib.rs", "//! One.\n//! P4"), ["2"]);
        assert_eq!(lines("src/testing.rs", "//! P4"), ["1"]);
    }

    #[test]
    fn a_module_of_a_module_is_looked_for_below_it() {
        assert_eq!(["src/lib.rs", "src/a/mod.rs", "src/b.rs"].map(below), ["src/", "src/a/", "src/b/"]);
    }

    #[test]
    fn a_number_that_users_do_not_see_is_not_reported() {
        for text in [
            "//! P1\n// P1\npub(crate) struct A; fn f() { /* P2 */ } /// P3\nfn g() {}",
            "/// P1\npub struct H; #[doc(hidden)] /// P2\npub struct A;",
            "#[doc(hidden)] impl A { /// P1\npub fn f() {} }",
            "impl A { /// P1\nfn f() {} /// P1\npub(crate) fn g() {} #[doc(hidden)] /// P2\npub fn h() {} }",
            "pub struct A { /// P1\na: u8 } impl B { /// P1\npub fn f() {} } impl Display for B { /// P2\nfn f() {} }",
            "/// A P, PING, P2P and HTTP2, xP3\npub struct A; #[cfg(test)] mod t { /// P1\npub struct A; }",
        ] {
            assert_eq!(lines("src/a.rs", text), [""; 0], "{text}");
        }
    }
}
