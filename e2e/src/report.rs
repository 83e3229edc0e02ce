//! The report of a run: a table for the terminal, and Markdown.

use std::fmt::Write as _;
use std::process::Command;

/// The outcome of one case.
#[derive(Debug)]
pub(crate) struct Row {
    case: &'static str,
    passed: bool,
    /// The figures, or the error.
    figures: String,
}

impl Row {
    pub(crate) fn passed(case: &'static str, figures: String) -> Row {
        Row { case, passed: true, figures }
    }

    pub(crate) fn failed(case: &'static str, error: &anyhow::Error) -> Row {
        Row { case, passed: false, figures: format!("{error:#}") }
    }

    fn result(&self) -> &'static str {
        if self.passed { "pass" } else { "fail" }
    }

    /// The figures on one line, escaped for a table.
    fn line(&self) -> String {
        let line: Vec<&str> = self.figures.split_whitespace().collect();
        line.join(" ").replace('|', "\\|").chars().take(700).collect()
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    /// The command that runs all of these cases again.
    pub(crate) command: &'static str,
    /// The duration in minutes, without building programs.
    pub(crate) minutes: f64,
    /// The versions of the programs.
    pub(crate) programs: String,
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed)
    }

    /// The table for a terminal.
    pub(crate) fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.case.len()).max().unwrap_or_default();
        let mut table = String::new();
        for row in &self.rows {
            let _ = writeln!(table, "{:width$}  {}  {}", row.case, row.result(), row.line());
        }
        let passed = self.rows.iter().filter(|row| row.passed).count();
        let _ = writeln!(table, "e2e: {passed} of {} cases pass", self.rows.len());
        table
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# Real control planes under test\n\nWritten by `{}`. Each case is described in \
             `e2e/src/cases`.\n\n",
            self.command
        );
        let passed = self.rows.iter().filter(|row| row.passed).count();
        let (count, minutes) = (self.rows.len(), self.minutes);
        let _ = writeln!(text, "{}, {}\n", date(), self.programs);
        let _ = writeln!(text, "{passed} of {count} cases pass, in {minutes:.0} minutes.\n");
        text.push_str("| case | result | figures |\n| --- | --- | --- |\n");
        for row in &self.rows {
            let _ = writeln!(text, "| {} | {} | {} |", row.case, row.result(), row.line());
        }
        text
    }
}

/// The date.
pub(crate) fn date() -> String {
    let output = Command::new("date").arg("+%Y-%m-%d").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_case_is_one_row_of_the_table() {
        let error = anyhow::anyhow!("expected a | b,\ngot c");
        let rows = vec![Row::passed("first", "3 of 3".to_owned()), Row::failed("second", &error)];
        let (command, programs) = ("cargo run", "etcd v3".to_owned());
        let report = Report { rows, command, programs, minutes: 1.4 };
        assert!(!report.passed());
        let markdown = report.markdown();
        assert!(markdown.contains("| first | pass | 3 of 3 |\n"), "{markdown}");
        assert!(markdown.contains("| second | fail | expected a \\| b, got c |\n"), "{markdown}");
        assert!(markdown.contains("1 of 2 cases pass, in 1 minutes."), "{markdown}");
        assert!(report.table().ends_with("e2e: 1 of 2 cases pass\n"));
    }
}
