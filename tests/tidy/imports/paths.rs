//! The paths in a file, with those of `use a::{b, c::d}` spelt out.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{braced, inside, is_ident, is_punct, line};

/// A path as it is written, and the module in which.
pub(crate) struct Path {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    module: Vec<String>,
    /// One name alone is a path in `use a`, and a variable or a field elsewhere.
    is_import: bool,
}

impl Path {
    /// From the crate's root, if it leads to a module of the crate.
    pub(crate) fn absolute(&self, modules: &BTreeSet<String>) -> Option<Vec<String>> {
        let (head, rest) = self.segments.split_first()?;
        if rest.is_empty() && !self.is_import {
            return None;
        }
        let mut base = self.module.clone();
        match head.as_str() {
            // A program is a crate of its own.
            "crate" => base.truncate(if base.first().is_some_and(|first| first == "bin") { 2 } else { 0 }),
            "self" => {}
            "super" => drop(base.pop()),
            name => {
                base.push(name.to_owned());
                if !modules.contains(&base.join("::")) {
                    return None;
                }
            }
        }
        for segment in rest {
            if segment == "super" { drop(base.pop()) } else { base.push(segment.clone()) }
        }
        Some(base)
    }
}

pub(crate) fn paths(tokens: &[TokenTree], module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    walk(tokens, module, &[], false, &mut found);
    found.retain(|path| path.segments.len() > 1 || path.is_import || is_keyword(&path.segments[0]));
    found
}

/// Those that are looked for by themselves.
fn is_keyword(name: &str) -> bool {
    ["async", "await"].contains(&name)
}

fn walk(tokens: &[TokenTree], module: &[String], prefix: &[String], is_import: bool, found: &mut Vec<Path>) {
    let mut at = 0;
    while at < tokens.len() {
        let after = |name| at > 0 && is_ident(&tokens[at - 1], name);
        match &tokens[at] {
            TokenTree::Ident(ident) => {
                let is_import =
                    is_import || after("use") || (after("crate") && at > 1 && is_ident(&tokens[at - 2], "extern"));
                let mut segments = prefix.to_vec();
                segments.push(ident.to_string());
                let line = line(&tokens[at]);
                at += 1;
                while let Some(next) = follows(tokens, at) {
                    at += 3;
                    if let Some(group) = braced(next) {
                        walk(&group, module, &segments, true, found);
                        segments.clear(); // its paths are those in the braces
                        break;
                    }
                    segments.push(next.to_string());
                }
                if !segments.is_empty() {
                    found.push(Path { segments, line, module: module.to_vec(), is_import });
                }
            }
            group @ TokenTree::Group(_) => {
                let mut module = module.to_vec();
                if at > 1 && is_ident(&tokens[at - 2], "mod") {
                    module.push(tokens[at - 1].to_string());
                }
                let delimiters = [Delimiter::Brace, Delimiter::Bracket, Delimiter::Parenthesis, Delimiter::None];
                let inner = delimiters.into_iter().find_map(|delimiter| inside(group, delimiter));
                walk(&inner.unwrap_or_default(), &module, &[], false, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// What follows on `::`, if that is a name, a group in braces or a star.
fn follows(tokens: &[TokenTree], at: usize) -> Option<&TokenTree> {
    let colons = tokens.get(at..at + 2)?.iter().all(|token| is_punct(token, ':'));
    let next = tokens.get(at + 2)?;
    let fits = matches!(next, TokenTree::Ident(_)) || is_punct(next, '*') || braced(next).is_some();
    (colons && fits).then_some(next)
}
