//! The figures of a run as a small chart in text. Entry: [`draw`].

use super::super::load::{self, Tally};
use super::Run;

/// The width of the longest bar.
const WIDTH: u64 = 40;

/// A bar for each second, and the sums below it.
pub(super) fn draw(run: &Run, colour: bool) -> String {
    let longest = run.seconds.iter().map(|tally| tally.false_404).max().unwrap_or_default();
    let mut text = "\n  false 404s in each second\n".to_owned();
    for (second, tally) in run.seconds.iter().enumerate() {
        let bar = bar(tally.false_404, longest, colour);
        text.push_str(&format!("  {second:2} s  {bar}{}\n", tally.false_404));
    }
    let Tally { answered, false_404, true_404, refused, failed, moved } = load::sum(&run.seconds);
    let total = match (false_404, colour) {
        (0, true) => "\x1b[32m0 false 404s\x1b[0m".to_owned(),
        (count, true) => format!("\x1b[31m{count} false 404s\x1b[0m"),
        (count, false) => format!("{count} false 404s"),
    };
    text.push_str(&format!("\n  {answered} answers: {total}"));
    for (count, what) in [
        (true_404, "404s before any server had the API"),
        (refused, "503s (try again)"),
        (failed, "other failures"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text.push_str(&format!(
        ".\n  {moved} connections met a restarting server and took the next.\n\n"
    ));
    text
}

/// A bar and a space; nothing for 0.
fn bar(count: u64, longest: u64, colour: bool) -> String {
    if count == 0 {
        return String::new();
    }
    let width = (count * WIDTH).div_ceil(longest.max(1));
    let bar = "█".repeat(usize::try_from(width).unwrap_or_default());
    if colour { format!("\x1b[31m{bar}\x1b[0m ") } else { format!("{bar} ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(0, 10, false), "");
        assert_eq!(bar(10, 10, false).matches('█').count(), 40);
        assert_eq!(bar(5, 10, false).matches('█').count(), 20);
        assert_eq!(bar(1, 1000, false).matches('█').count(), 1, "a small count is visible");
    }

    #[test]
    fn the_sums_are_those_of_the_seconds() {
        let second = |false_404| Tally { answered: 10, false_404, moved: 1, ..Tally::default() };
        let run = Run { seconds: vec![second(0), second(4)], harm: Default::default() };
        let text = draw(&run, false);
        assert!(text.contains("   0 s  0\n"), "{text}");
        assert!(text.contains("20 answers: 4 false 404s.\n  2 connections"), "{text}");
    }
}
