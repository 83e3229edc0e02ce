//! Output for people: colours and tables on a terminal, plain text in a pipe. Entries: [`Paint`],
//! [`Table`], [`Progress`].

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::mistake::OneLine;

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    colour: bool,
}

impl Paint {
    /// Colours if standard output is a terminal and `NO_COLOR` is not set.
    pub(crate) fn stdout() -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint { colour: !refused && io::stdout().is_terminal() }
    }

    /// No colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Paint = Paint { colour: false };

    /// Colours.
    #[cfg(test)]
    pub(crate) const COLOURED: Paint = Paint { colour: true };

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        match self.colour && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// A table with aligned columns, like kubectl's. Control characters in cells are escaped: a terminal
/// must not obey what a server or a client sends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

/// A cell: its text, and a colour that does not count for its width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    colour: Colour,
}

/// The colour of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    None,
    Bold,
    Green,
    Yellow,
    Red,
}

impl Cell {
    /// A cell of this colour. A long text is cut: every row is padded to the widest cell.
    pub(crate) fn coloured(text: impl Into<String>, colour: Colour) -> Cell {
        let text: String = text.into();
        let text = match text.char_indices().nth(MAX_CELL) {
            Some((end, _)) => {
                OneLine(&format!("{}…", &text.get(..end).unwrap_or_default())).to_string()
            }
            None => OneLine(&text).to_string(),
        };
        Cell { text, colour }
    }
}

/// The longest text of a cell. Names of Kubernetes have at most 253 characters.
const MAX_CELL: usize = 256;

impl Cell {
    /// The text, without a colour.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::coloured(text, Colour::None)
    }
}

/// The space between two columns.
const GAP: usize = 3;

impl Table {
    /// A table with these titles.
    pub(crate) fn new<C: Into<Cell>>(titles: impl IntoIterator<Item = C>) -> Table {
        Table { rows: vec![titles.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether it has only titles.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The table as text, one line for each row.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            let mut pending = 0;
            for (cell, width) in row.iter().zip(&widths) {
                if !cell.text.is_empty() {
                    line.extend(std::iter::repeat_n(' ', std::mem::take(&mut pending)));
                    line.push_str(&cell.painted(paint));
                }
                pending += width + GAP - cell.text.chars().count();
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

impl Cell {
    /// The text in its colour.
    pub(crate) fn painted(&self, paint: Paint) -> String {
        match self.colour {
            Colour::None => self.text.clone(),
            Colour::Bold => paint.bold(&self.text),
            Colour::Green => paint.green(&self.text),
            Colour::Yellow => paint.yellow(&self.text),
            Colour::Red => paint.red(&self.text),
        }
    }
}

/// A line on standard error that says what takes so long. It appears after a second, only on a
/// terminal, and disappears when this is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    told: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

/// The time until the line appears.
const PATIENCE: Duration = Duration::from_secs(1);

impl Progress {
    /// Shows this text if it takes more than a second.
    pub(crate) fn start(what: impl Into<String>) -> Progress {
        if !io::stderr().is_terminal() {
            return Progress { told: None, thread: None };
        }
        let (told, news) = mpsc::channel();
        let mut what = what.into();
        let thread = std::thread::spawn(move || {
            let mut shown = false;
            loop {
                match news.recv_timeout(PATIENCE) {
                    Ok(text) => what = text,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                shown = true;
                let _ = write!(io::stderr(), "\r\x1b[2K{} …", OneLine(&what));
            }
            if shown {
                let _ = write!(io::stderr(), "\r\x1b[2K");
            }
        });
        Progress { told: Some(told), thread: Some(thread) }
    }

    /// Shows another text.
    pub(crate) fn now(&self, what: impl fmt::Display) {
        if let Some(told) = &self.told {
            let _ = told.send(what.to_string());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.told = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_space() {
        let mut table = Table::new(["NAME", "STATE", "NOTE"]);
        table.row([Cell::from("a"), Cell::coloured("ready", Colour::Green), Cell::from("")]);
        table.row(["server-b", "", "gone"]);
        let plain = "NAME       STATE   NOTE\na          ready\nserver-b           gone\n";
        assert_eq!(table.render(Paint::PLAIN), plain);
        let coloured = table.render(Paint::COLOURED);
        assert!(coloured.contains("a          \x1b[32mready\x1b[0m\n"), "{coloured}");
    }

    #[test]
    fn control_characters_of_a_cell_are_escaped() {
        let mut table = Table::new(["A"]);
        table.row(["x\u{1b}[2Jy\nz"]);
        assert_eq!(table.render(Paint::PLAIN), "A\nx\\u{1b}[2Jy\\nz\n");
    }

    #[test]
    fn a_cell_of_a_megabyte_is_cut() {
        let mut table = Table::new(["A", "B"]);
        table.row(["ö".repeat(1 << 20), "b".to_owned()]);
        let text = table.render(Paint::PLAIN);
        assert!(text.contains(&format!("{}…   b\n", "ö".repeat(MAX_CELL))), "{}", text.len());
    }
}
