//! One line for each member, and what needs action below. Entry: [`draw`].

use super::findings::{Finding, findings};
use super::screen::{age, clip, days, listed, state};
use crate::operator::terminal::{Cell, Colour, Paint, Table};
use crate::report::{Answered, Gateways, Kind, Status, ViewOf};

/// The overview.
pub(super) fn draw(gateways: &Gateways, paint: Paint) -> String {
    let members = &gateways.gateways;
    let mut table = Table::new([
        "ID", "STATE", "RELEASE", "MVP", "UP", "FRESH", "PEERS", "AVERTED", "REFUSED", "CERT",
    ]);
    for member in members {
        table.row(row(member));
    }
    if gateways.left_out > 0 {
        table.row([format!("and {} more, not asked: too many members", gateways.left_out)]);
    }
    let mut text = table.render(paint);
    let found = members.iter().map(|member| listed(&found(member), &whose(member), paint));
    let found: String = found.collect();
    if !found.is_empty() {
        text.push('\n');
        text.push_str(&found);
    }
    text
}

fn row(member: &Answered<Status>) -> Vec<Cell> {
    let id = Cell::from(member.id.as_deref().map_or_else(|| "load balancer".to_owned(), clip));
    let release = Cell::from(member.release.as_deref().map(clip).unwrap_or_default());
    let Some(status) = &member.status else {
        let state = match (member.kind, member.left) {
            (_, true) => Cell::coloured("left", Colour::Yellow),
            (Kind::Bare, _) => Cell::from("no gateway"),
            (Kind::Mvp | Kind::Unknown, _) => Cell::coloured("no answer", Colour::Red),
        };
        return vec![id, state, release];
    };
    let peers = status.requests.iter().filter(|count| count.name == "peers");
    let peers = peers.fold(0_u64, |sum, count| sum.saturating_add(count.count));
    let refused = status.refusals.iter().fold(0_u64, |sum, count| sum.saturating_add(count.count));
    let fresh = status.members.iter().filter(|member| member.view == ViewOf::Fresh).count();
    let known = status.members.len();
    let first = status.certificates.iter().map(|certificate| certificate.days_left);
    let first = first.reduce(f64::min);
    vec![
        id,
        state(status),
        release,
        Cell::from(clip(&status.version)),
        Cell::from(status.uptime_seconds.map(age).unwrap_or_default()),
        Cell::coloured(
            format!("{fresh}/{known}"),
            if fresh == known { Colour::None } else { Colour::Red },
        ),
        Cell::from(peers.to_string()),
        Cell::from(status.averted.total.map_or_else(|| "-".to_owned(), |total| total.to_string())),
        Cell::coloured(
            refused.to_string(),
            if refused == 0 { Colour::None } else { Colour::Yellow },
        ),
        first.map_or_else(|| Cell::from("-"), days),
    ]
}

fn whose(member: &Answered<Status>) -> String {
    format!("{}: ", member.id.as_deref().map_or_else(|| "load balancer".to_owned(), clip))
}

fn found(member: &Answered<Status>) -> Vec<Finding> {
    let Some(status) = &member.status else {
        let why = member.no_answer.as_deref().unwrap_or("no reason");
        let what = format!("no answer: {why}");
        return match (member.kind, member.left) {
            (Kind::Mvp | Kind::Unknown, false) => {
                vec![Finding::urgent(what, "run mvp status on that host")]
            }
            (Kind::Bare, _) | (_, true) => Vec::new(),
        };
    };
    let mut all = findings(status);
    // A member cannot speak for another one.
    if status.id != member.id {
        let says = status.id.as_deref().unwrap_or("a load balancer");
        let what = format!("its gateway says that it is {says}");
        let advice = "correct the ID or the address of this member in its source of members";
        all.insert(0, Finding::urgent(what, advice));
    }
    all
}
