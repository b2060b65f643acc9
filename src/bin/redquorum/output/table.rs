//! Tables whose columns are as wide as what is in them, and colours.

use std::io::{IsTerminal, stdout};

/// How a cell looks at a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Look {
    #[default]
    Plain,
    Good,
    Doubtful,
    Bad,
    Heading,
}

/// Whether standard output is a terminal, and colours are not turned off (no-color.org).
pub(crate) fn with_colours() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text in the colour of its look.
pub(crate) fn painted(text: &str, look: Look, colours: bool) -> String {
    let code = match look {
        Look::Good => "32",
        Look::Doubtful => "33",
        Look::Bad => "31",
        Look::Heading => "1",
        Look::Plain => return text.to_owned(),
    };
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Rows of cells below a heading.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<(String, Look)>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|name| ((*name).to_owned(), Look::Heading)).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Look)>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, colours: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in &self.rows {
            for (column, (cell, look)) in row.iter().enumerate() {
                text.push_str(&painted(cell, *look, colours));
                if column + 1 < row.len() {
                    let gap = width(column) + 2 - cell.chars().count();
                    text.push_str(&" ".repeat(gap));
                }
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_and_without_colours() {
        let mut table = Table::new(&["A", "LONG"]);
        table.row(vec![("größer".to_owned(), Look::Bad), ("x".to_owned(), Look::Plain)]);
        assert_eq!(table.render(false), "A       LONG\ngrößer  x\n");
        assert_eq!(table.render(true), "\x1b[1mA\x1b[0m       \x1b[1mLONG\x1b[0m\n\x1b[31mgrößer\x1b[0m  x\n");
    }
}
