//! Tables for a terminal or in Markdown. Entry: [`Sheet`].

use crate::mistake::OneLine;
use crate::operator::terminal::{Cell, Colour, Paint, Table};

/// How tables and lines are written.
#[derive(Debug)]
pub(crate) enum Sheet {
    Text(Paint),
    Markdown,
}

impl Sheet {
    pub(crate) fn table(paint: Paint) -> Sheet {
        Sheet::Text(paint)
    }

    pub(crate) fn markdown() -> Sheet {
        Sheet::Markdown
    }

    /// A line of text.
    pub(crate) fn line(&self, text: &str) -> String {
        match self {
            Sheet::Text(_) => format!("{}\n", OneLine(text)),
            Sheet::Markdown => format!("{}\n", escaped(text)),
        }
    }

    /// A table.
    pub(crate) fn sheet(&self, titles: Vec<String>, rows: Vec<Vec<Cell>>) -> String {
        match self {
            Sheet::Text(paint) => {
                let bold = |title: String| Cell::coloured(title, Colour::Bold);
                let mut table = Table::new(titles.into_iter().map(bold));
                rows.into_iter().for_each(|row| table.row(row));
                table.render(*paint)
            }
            Sheet::Markdown => {
                let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
                let rule = line(vec!["---".to_owned(); titles.len()]);
                let title = line(titles.iter().map(|title| escaped(title)).collect());
                let cells =
                    |row: Vec<Cell>| line(row.iter().map(|cell| escaped(cell.text())).collect());
                format!("{title}{rule}{}", rows.into_iter().map(cells).collect::<String>())
            }
        }
    }
}

/// Text that Markdown shows as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in OneLine(text).to_string().chars() {
        if matches!(character, '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_shows_what_a_server_sends_as_text() {
        let row = vec![Cell::from("a|b"), Cell::from("<script>\n")];
        let text = Sheet::markdown().sheet(vec!["A".to_owned(), "B".to_owned()], vec![row]);
        assert_eq!(text, "| A | B |\n| --- | --- |\n| a\\|b | \\<script\\>\\\\n |\n");
    }
}
