//! The files of the tree, and Rust as tokens: comments and strings are out of the way.

use std::{fs, io, path::Path};

use proc_macro2::{TokenStream, TokenTree};

/// A text file; `path` is relative to the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A word, a literal, a mark or a bracket, and its line.
pub(crate) type Token = (String, usize);

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust_in(&self, dir: &str) -> bool {
        self.path.starts_with(dir) && self.path.ends_with(".rs")
    }

    /// The tokens of the library, without what is compiled for tests only.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let is_test = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        let mut tokens = Vec::new();
        if self.is_rust_in("src/") && !is_test {
            flatten(self.text.parse().unwrap_or_default(), &mut tokens);
        }
        without_tests(&tokens)
    }

    pub(crate) fn problem(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// Every text file of the tree but those that are generated.
pub(crate) fn tree() -> io::Result<Vec<File>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut files, mut dirs) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if name.starts_with('.') || name == "target" || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
            } else if let Ok(text) = fs::read_to_string(path) {
                files.push(File::new(&name, &text));
            }
        }
    }
    Ok(files)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let TokenTree::Group(group) = tree else {
            tokens.push((tree.to_string(), tree.span().start().line));
            continue;
        };
        let text = group.to_string(); // begins and ends with its brackets
        tokens.push((text[..1].to_owned(), group.span_open().start().line));
        flatten(group.stream(), tokens);
        tokens.push((text[text.len() - 1..].to_owned(), group.span_close().start().line));
    }
}

fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let text: String = tokens[at..].iter().take(7).map(|token| token.0.as_str()).collect();
        if text != "#[cfg(test)]" && !text.starts_with("#[cfg(all(test") {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        // Up to the end of the item, which is the first `;` or `}` that is in no bracket.
        let mut depth = 0;
        at += 1 + tokens[at..]
            .iter()
            .take_while(|(text, _)| {
                depth += usize::from("([{".contains(text.as_str()));
                depth -= usize::from(")]}".contains(text.as_str()));
                depth > 0 || text != ";" && text != "}"
            })
            .count();
    }
    kept
}
