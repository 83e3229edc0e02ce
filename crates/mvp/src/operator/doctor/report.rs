//! The report: text for people, JSON for scripts. Entry: [`print()`].

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;

use super::check::{Check, Group, Outcome};
use crate::cli::Output;
use crate::mistake::OneLine;
use crate::operator::terminal::Paint;

/// Prints all checks. The exit code is 1 if one fails.
pub(crate) fn print(checks: &[Check], output: Output) -> anyhow::Result<ExitCode> {
    let report = match output {
        Output::Text => text(checks, Paint::stdout()),
        Output::Json => format!("{:#}\n", json!({ "checks": checks })),
    };
    io::stdout().write_all(report.as_bytes())?;
    let failed = checks.iter().any(|check| check.result == Outcome::Fail);
    Ok(ExitCode::from(u8::from(failed)))
}

/// One line for each check, under the heading of its group, and the fix below it.
fn text(checks: &[Check], paint: Paint) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let of_group: Vec<&Check> = checks.iter().filter(|check| check.group == group).collect();
        if of_group.is_empty() {
            continue;
        }
        text.push_str(&format!("{}\n", paint.bold(group.title())));
        for check in of_group {
            // Names of members and words of servers come from outside.
            let (name, detail) = (OneLine(&check.name), OneLine(&check.detail));
            let word = painted(check.result, paint);
            text.push_str(&format!("  {word}  {name}: {detail}\n"));
            if let Some(fix) = &check.fix {
                text.push_str(&format!("        fix: {}\n", OneLine(fix)));
            }
        }
        text.push('\n');
    }
    text.push_str(&summary(checks));
    text
}

fn painted(outcome: Outcome, paint: Paint) -> String {
    let word = format!("{:4}", outcome.word());
    match outcome {
        Outcome::Ok => paint.green(&word),
        Outcome::Warn => paint.yellow(&word),
        Outcome::Fail => paint.red(&word),
        Outcome::Skip => word,
    }
}

fn summary(checks: &[Check]) -> String {
    let count = |outcome| checks.iter().filter(|check| check.result == outcome).count();
    let of = |outcome, one: &str, many: &str| match count(outcome) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    format!(
        "{}: {} ok, {}, {}, {} skipped\n",
        match checks.len() {
            1 => "1 check".to_owned(),
            all => format!("{all} checks"),
        },
        count(Outcome::Ok),
        of(Outcome::Warn, "warning", "warnings"),
        of(Outcome::Fail, "failure", "failures"),
        count(Outcome::Skip),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_with_its_fix_below() {
        let checks = [
            Group::Host.ok("descriptors", "1024"),
            Group::Members.fail("b\u{1b}[2J reachable", "refused\nx", "start it"),
            Group::Host.skip("ports", "not Linux"),
            Group::Members.warn("c clock", "7 s late", "use NTP"),
        ];
        let expected = "Members\n\
                        \x20 FAIL  b\\u{1b}[2J reachable: refused\\nx\n\
                        \x20       fix: start it\n\
                        \x20 warn  c clock: 7 s late\n\
                        \x20       fix: use NTP\n\
                        \n\
                        This host\n\
                        \x20 ok    descriptors: 1024\n\
                        \x20 skip  ports: not Linux\n\
                        \n\
                        4 checks: 1 ok, 1 warning, 1 failure, 1 skipped\n";
        assert_eq!(text(&checks, Paint::PLAIN), expected);
    }
}
