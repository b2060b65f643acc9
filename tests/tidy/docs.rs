//! What the documentation of a public function must say.

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{File, inside, is_ident, is_punct, line};

/// A function of the public interface.
#[derive(Default)]
struct Function {
    name: String,
    line: usize,
    docs: String,
    is_async: bool,
    may_fail: bool,
}

pub(crate) fn check(file: &File) -> Vec<String> {
    let mut functions = Vec::new();
    match file.shipped_tokens() {
        Ok(tokens) => walk(&tokens, &mut functions),
        Err(problems) => return problems,
    }
    let mut problems = Vec::new();
    for function in functions {
        let mut needs = |needed: bool, section: &str| {
            if needed && !function.docs.contains(section) {
                problems.push(file.problem(function.line, &format!("`{}` has no section `{section}`", function.name)));
            }
        };
        needs(function.is_async, "# Cancel safety");
        needs(function.may_fail, "# Errors");
    }
    problems
}

fn walk(tokens: &[TokenTree], functions: &mut Vec<Function>) {
    let mut docs = String::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = tokens.get(at + 1).and_then(|next| inside(next, Delimiter::Bracket));
        if let (true, Some(attribute)) = (is_punct(&tokens[at], '#'), attribute) {
            if is_ident(&attribute[0], "doc") {
                docs.push_str(&attribute.last().map(ToString::to_string).unwrap_or_default());
            }
            at += 2;
            continue;
        }
        if is_ident(&tokens[at], "pub") {
            functions.extend(signature(&tokens[at..], &docs));
        }
        if let TokenTree::Group(group) = &tokens[at] {
            walk(&group.stream().into_iter().collect::<Vec<_>>(), functions);
        }
        docs.clear();
        at += 1;
    }
}

/// Reads `pub [const|async|..] fn name<..>(..) -> ..`; nothing for anything else that is public.
fn signature(tokens: &[TokenTree], docs: &str) -> Option<Function> {
    let start = tokens.iter().take(5).position(|token| is_ident(token, "fn"))?;
    let qualifiers = &tokens[1..start];
    if !qualifiers.iter().all(|token| matches!(token, TokenTree::Ident(_) | TokenTree::Literal(_))) {
        return None; // pub(crate), or another item
    }
    let name = tokens.get(start + 1)?;
    let mut function =
        Function { name: name.to_string(), line: line(name), docs: docs.to_owned(), ..Function::default() };
    function.is_async = qualifiers.iter().any(|token| is_ident(token, "async"));
    let mut angles = 0;
    let mut arguments = false;
    for (at, token) in tokens.iter().enumerate().skip(start + 2) {
        let is_arrow = is_punct(token, '>') && is_punct(&tokens[at - 1], '-');
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => angles += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_arrow => angles -= 1,
            TokenTree::Group(group) if angles == 0 && group.delimiter() == Delimiter::Parenthesis => arguments = true,
            TokenTree::Ident(ident) if arguments && ident.to_string().ends_with("Result") => function.may_fail = true,
            TokenTree::Ident(ident) if ident == "where" => break,
            _ if is_punct(token, ';') || inside(token, Delimiter::Brace).is_some() => break,
            _ => {}
        }
    }
    Some(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        check(&File::new("src/a.rs", text))
    }

    #[test]
    fn a_missing_section_is_named_with_its_line() {
        assert_eq!(
            problems("/// Does.\n#[inline]\npub fn f() -> Result<(), E> {}"),
            ["src/a.rs:3: `f` has no section `# Errors`"]
        );
        assert_eq!(
            problems("impl A { /// # Errors\n pub async fn f(&self) -> io::Result<()> {} }"),
            ["src/a.rs:2: `f` has no section `# Cancel safety`"]
        );
        assert_eq!(problems("pub async fn f() -> Result<A, E> {}").len(), 2);
        assert_eq!(problems("pub fn f() -> impl Future<Output = Result<(), E>> + use<> {}").len(), 1);
        assert_eq!(problems("/// # Errors\npub struct A; pub fn f() -> Result<(), E> {}").len(), 1, "another item's");
    }

    #[test]
    fn what_needs_no_section_is_not_reported() {
        assert!(problems("/// # Errors\n/// # Cancel safety\npub async fn f() -> Result<A, E> {}").is_empty());
        assert!(problems("pub(crate) async fn f() -> Result<A, E> {} fn g() -> Result<A, E> {}").is_empty());
        assert!(problems("pub fn f<F: Fn(u8) -> Result<A, E>>(f: F, g: Result<A, E>) -> u8 {}").is_empty());
        assert!(problems("pub fn f<F>(f: F) -> u8 where F: Fn() -> Result<A, E> {}").is_empty());
        assert!(problems("pub mod a; pub const fn f() -> u8 { 1 } pub use b::Result;").is_empty());
    }
}
