//! The screen of one gateway. Entry: [`draw`].

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use super::findings::{Finding, findings};
use crate::mistake::OneLine;
use crate::operator::terminal::{Cell, Colour, Paint, Table};
use crate::report::{ApiCount, Kind, MemberState, Status, ViewOf};

/// The width that advice is wrapped to.
const WIDTH: usize = 100;
/// The most findings of one kind. A member may report any number.
const MAX_FINDINGS: usize = 20;
/// The longest text in a cell of a table.
const MAX_CELL: usize = 60;

/// The screen.
pub(super) fn draw(status: &Status, paint: Paint) -> String {
    let mut text = heading(status, paint);
    text.push_str(&listed(&findings(status), "", paint));
    let mut sections = vec![
        ("Members".to_owned(), members(status)),
        ("Requests since the start".to_owned(), requests(status)),
    ];
    let averted = match status.averted.total {
        Some(total) => plural(total, "false 404 averted", "false 404s averted"),
        None => String::new(),
    };
    sections.push((averted, apis(&status.averted.apis)));
    sections.push((
        "Requests that no peer could be reached for".to_owned(),
        apis(&status.proxy_errors),
    ));
    sections.push(("Certificates".to_owned(), certificates(status)));
    for (title, table) in sections {
        if !table.is_empty() {
            let _ = write!(text, "\n{}\n{}", paint.bold(&title), table.render(paint));
        } else if title.contains("404") {
            let _ = writeln!(text, "\n{}", paint.bold(&title));
        }
    }
    let connections = &status.connections;
    let limit = match connections.limit {
        0 => String::new(),
        limit => format!(" of at most {limit}"),
    };
    let title = paint.bold("Client connections");
    let _ = writeln!(
        text,
        "\n{title}\n{} open{limit}; {} refused, {} evicted while idle, {} ended",
        connections.open, connections.refused, connections.evicted, connections.ended
    );
    text
}

fn heading(status: &Status, paint: Paint) -> String {
    let name = match &status.id {
        Some(id) => clip(id),
        None => "load balancer".to_owned(),
    };
    let mut parts = vec![paint.bold(&name), state(status).painted(paint), version(status)];
    if let Some(release) = &status.release {
        parts.push(format!("beside Kubernetes {}", clip(release)));
    }
    if let Some(uptime) = status.uptime_seconds {
        parts.push(format!("up {}", duration(uptime)));
    }
    parts.join("   ") + "\n"
}

/// Ready or not, alive or not.
pub(super) fn state(status: &Status) -> Cell {
    match (status.live, status.ready) {
        (false, _) => Cell::coloured("stuck", Colour::Red),
        (true, false) => Cell::coloured("not ready", Colour::Red),
        (true, true) => Cell::coloured("ready", Colour::Green),
    }
}

/// The version of `mvp`, with the start of its commit.
fn version(status: &Status) -> String {
    let version = clip(&status.version);
    match status.commit.get(..12) {
        Some(commit) => format!("mvp {version} ({})", clip(commit)),
        None => format!("mvp {version}"),
    }
}

/// Findings under two headings. `whose` is put before each.
pub(super) fn listed(findings: &[Finding], whose: &str, paint: Paint) -> String {
    let mut text = String::new();
    for (urgent, title) in [(true, "Needs action"), (false, "Worth a look")] {
        let mut chosen = findings.iter().filter(|finding| finding.urgent == urgent).peekable();
        if chosen.peek().is_none() {
            continue;
        }
        if whose.is_empty() {
            let _ = writeln!(text, "\n{}", paint.bold(title));
        }
        text.extend(chosen.by_ref().take(MAX_FINDINGS).map(|finding| one(finding, whose, paint)));
        let more = chosen.count();
        if more > 0 {
            let _ = writeln!(text, "  and {more} more; see mvp status -o json");
        }
    }
    text
}

fn one(finding: &Finding, whose: &str, paint: Paint) -> String {
    let what = OneLine(&format!("{whose}{}", finding.what)).to_string();
    let what = wrapped(&what, 2);
    let what = if finding.urgent { paint.red(&what) } else { paint.yellow(&what) };
    let advice =
        finding.advice.as_ref().map(|advice| wrapped(&OneLine(advice).to_string(), 6) + "\n");
    format!("{what}\n{}", advice.unwrap_or_default())
}

fn members(status: &Status) -> Table {
    let mut table = Table::new(["ID", "KIND", "RELEASE", "PRESENCE", "VIEW", "CONFIRMED"]);
    for member in &status.members {
        let confirmed = member.confirmed_seconds_ago;
        table.row([
            Cell::from(clip(&member.id)),
            Cell::from(match member.kind {
                Kind::Mvp => "mvp",
                Kind::Bare => "bare",
                Kind::Unknown => "unknown",
            }),
            Cell::from(member.release.as_deref().map(clip).unwrap_or_default()),
            presence(member),
            view(member),
            Cell::from(confirmed.map_or_else(|| "never".to_owned(), |since| age(since) + " ago")),
        ]);
    }
    if status.members_left_out > 0 {
        table.row([format!("and {} more", status.members_left_out)]);
    }
    table
}

fn presence(member: &MemberState) -> Cell {
    match (member.local, member.present, member.ejected) {
        (true, ..) => Cell::from("local"),
        (_, false, _) => Cell::coloured("left", Colour::Yellow),
        (_, true, true) => Cell::coloured("ejected", Colour::Red),
        (_, true, false) => Cell::from("present"),
    }
}

fn view(member: &MemberState) -> Cell {
    match member.view {
        ViewOf::Fresh => Cell::coloured("fresh", Colour::Green),
        ViewOf::Stale => Cell::coloured("stale", Colour::Red),
        ViewOf::Unknown => Cell::coloured("unknown", Colour::Red),
    }
}

fn requests(status: &Status) -> Table {
    let mut table = Table::new(["COUNT", "ACTION", "MEANING"]);
    for request in &status.requests {
        let meaning = match &*request.name {
            "local" => "answered by the local server",
            "ask-local" => "answered by the local server, although no member is known to serve it",
            "peers" => "proxied to a peer",
            "answer" => "discovery, answered for the whole cluster",
            "ask-any" => "answered by any member",
            "pass-404" => "404 that every member confirmed",
            "refuse" => "refused with 503",
            _ => "",
        };
        table.row([request.count.to_string(), clip(&request.name), meaning.to_owned()]);
    }
    table
}

fn apis(counts: &[ApiCount]) -> Table {
    let mut table = Table::new(["COUNT", "API", "ERROR"]);
    for api in counts {
        let name = match (&*api.group, &*api.version, &*api.resource) {
            ("", "", "") => "other APIs".to_owned(),
            ("", version, resource) => format!("{version} {resource}"),
            (group, version, resource) => format!("{group}/{version} {resource}"),
        };
        table.row([api.count.to_string(), clip(&name), clip(&api.kind)]);
    }
    table
}

fn certificates(status: &Status) -> Table {
    let mut table = Table::new(["FLAG", "FIRST EXPIRES IN"]);
    for certificate in &status.certificates {
        let left = certificate.days_left;
        table.row([Cell::from(clip(&certificate.flag)), days(left)]);
    }
    table
}

/// The days that a certificate has left.
pub(super) fn days(left: f64) -> Cell {
    let text = if left < 0.0 { "expired".to_owned() } else { age(left * 86_400.0) };
    let colour = match left {
        left if left < 7.0 => Colour::Red,
        left if left < 30.0 => Colour::Yellow,
        _ => Colour::None,
    };
    Cell::coloured(text, colour)
}

/// The start of a text that comes from elsewhere, on one line.
pub(super) fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(MAX_CELL).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    OneLine(&clipped).to_string()
}

/// A count with its noun.
pub(super) fn plural(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

/// A time in its largest units.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..172_800 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        172_800..315_360_000 => format!("{} days", whole / 86_400),
        _ => "over 10 years".to_owned(),
    }
}

/// A time as kubectl shows ages: short, for a table.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(super) fn age(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1}s", seconds.max(0.0)),
        10..60 => format!("{whole}s"),
        60..3600 => format!("{}m", whole / 60),
        3600..172_800 => format!("{}h{}m", whole / 3600, whole / 60 % 60),
        172_800..315_360_000 => format!("{}d", whole / 86_400),
        _ => ">10y".to_owned(),
    }
}

/// A text in lines of at most [`WIDTH`] characters, if its words allow it.
fn wrapped(text: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let mut lines = vec![margin.clone()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{margin}{word}"));
            continue;
        }
        if used > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join("\n")
}
