//! The files of the tree, and Rust as tokens: comments and strings are out of the way.

use std::fs;
use std::io;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A text file; `path` is relative to the root and has `/` between its parts.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust_in(&self, dir: &str) -> bool {
        self.path.starts_with(dir) && self.path.ends_with(".rs")
    }

    /// The tokens, or the problem that it is no Rust.
    pub(crate) fn tokens(&self) -> Result<Vec<TokenTree>, Vec<String>> {
        let parsed = self.text.parse::<TokenStream>();
        let tokens = parsed.map_err(|error| vec![format!("{}: does not parse: {error}", self.path)])?;
        Ok(tokens.into_iter().collect())
    }

    /// The tokens without what is compiled for tests only.
    pub(crate) fn shipped_tokens(&self) -> Result<Vec<TokenTree>, Vec<String>> {
        if self.path.ends_with("/tests.rs") || self.path.contains("/tests/") {
            return Ok(Vec::new());
        }
        self.tokens().map(without_tests)
    }

    pub(crate) fn problem(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// Every text file below the root but those that are generated.
pub(crate) fn tree() -> io::Result<Vec<File>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    visit(root, root, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn visit(root: &Path, dir: &Path, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && name != ".ci";
        if hidden || name == "target" || name == "Cargo.lock" || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            visit(root, &path, files)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            files.push(File { path: parts.join("/"), text });
        } // else no text
    }
    Ok(())
}

fn without_tests(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_cfg_test = is_punct(&token, '#') && tokens.peek().is_some_and(is_cfg_test);
        if is_cfg_test {
            // Up to the end of the item.
            tokens.by_ref().skip(1).find(|token| is_punct(token, ';') || braced(token).is_some());
            continue;
        }
        kept.push(match token {
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream().into_iter().collect());
                let mut shorter = Group::new(group.delimiter(), inner.into_iter().collect());
                shorter.set_span(group.span());
                TokenTree::Group(shorter)
            }
            other => other,
        });
    }
    kept
}

fn is_cfg_test(attribute: &TokenTree) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "[cfg(test)]" || text.starts_with("[cfg(all(test,")
}

pub(crate) fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

pub(crate) fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

/// The inside of `{..}`.
pub(crate) fn braced(token: &TokenTree) -> Option<Vec<TokenTree>> {
    inside(token, Delimiter::Brace)
}

/// The inside of a group of that kind.
pub(crate) fn inside(token: &TokenTree, delimiter: Delimiter) -> Option<Vec<TokenTree>> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.stream().into_iter().collect()),
        _ => None,
    }
}

pub(crate) fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[test]
fn what_is_for_tests_only_is_left_out() {
    let text = "fn a() {} #[cfg(test)] mod t { fn b() {} } #[cfg(not(test))] fn c() { #[cfg(test)] d(); e() }";
    let kept: TokenStream = File::new("src/a.rs", text).shipped_tokens().unwrap().into_iter().collect();
    let expected: TokenStream = "fn a() {} #[cfg(not(test))] fn c() { e() }".parse().unwrap();
    assert_eq!(kept.to_string(), expected.to_string());
    assert!(File::new("src/a/tests.rs", text).shipped_tokens().unwrap().is_empty());
    assert!(File::new("src/a.rs", "fn a( {").tokens().is_err());
}

#[test]
fn the_tree_has_this_file_and_nothing_generated() {
    let files = tree().unwrap();
    assert!(files.iter().any(|file| file.path == "tests/tidy/source.rs"));
    assert!(files.iter().all(|file| !file.path.starts_with("target/")));
}
