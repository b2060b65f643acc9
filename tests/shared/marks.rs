//! Figures in a page: between two marks, so that no figure is typed by hand.

/// The page with a text between `<!-- name: begin -->` and `<!-- name: end -->`; `None` without these.
pub(crate) fn between_marks(page: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("<!-- {name}: begin -->"))?;
    let end = format!("<!-- {name}: end -->");
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}<!-- {name}: begin -->\n\n{}\n\n{end}{after}", text.trim()))
}

#[test]
fn a_text_is_put_between_its_marks_and_nothing_else_changes() {
    let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin --><!-- y: end -->";
    let new = "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n<!-- y: begin --><!-- y: end -->";
    assert_eq!(between_marks(page, "x", "new\n").as_deref(), Some(new));
    assert_eq!(between_marks(new, "x", "new").as_deref(), Some(new));
    assert_eq!(between_marks(page, "z", "new"), None);
}
