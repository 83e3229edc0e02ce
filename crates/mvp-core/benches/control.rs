//! The cost of the control loop in time and memory, in a cluster of five members with 2,000 groups of
//! custom resources each, and the allocations of the data path. It reports and never fails.
//!
//! ```sh
//! cargo bench -p mvp-core --bench control
//! ```
//!
//! Times are medians of interleaved rounds; a ratio is the median of the ratios within a round. The
//! counting allocator makes allocations slightly more expensive than in the program.

#![allow(missing_docs, clippy::expect_used)]

mod cluster;

use std::hint::black_box;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use bytes::Bytes;
use cluster::{Documents, Wire};
use mvp_core::decide::Action;
use mvp_core::discovery::negotiate::Form;
use mvp_core::member::View;
use mvp_core::request::DiscoveryPath;
use mvp_core::{RequestInfo, Snapshot, decide};

const ROUNDS: usize = 21;
/// The target for merging and building, relative to parsing.
const MAX_TIME_RATIO: f64 = 3.0;
/// The target for a snapshot with its views, relative to the documents' bytes.
const MAX_MEMORY_RATIO: f64 = 4.0;

fn main() {
    // `cargo test` runs benches too, but without this argument; there are no tests here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let documents: Vec<_> = (0..cluster::MEMBERS).map(cluster::documents).collect();
    let mut report = Report::default();
    sizes(&documents, &mut report);
    times(&documents, &mut report);
    memory(&documents, &mut report);
    allocations(&documents, &mut report);
    report.print();
}

fn sizes(documents: &[Documents], report: &mut Report) {
    let total = total_bytes(documents);
    report.note("documents, all members", mebibytes(total));
    let groups = cluster::MEMBERS * cluster::GROUPS;
    report.note("a group", format!("{:.0} B", total / groups as f64));
}

fn times(documents: &[Documents], report: &mut Report) {
    let views = parse(documents);
    let with_apis = |member: usize, apis: Bytes| {
        let mut documents = documents.to_vec();
        if let Some(documents) = documents.get_mut(member) {
            documents.apis = apis;
        }
        documents
    };
    // One document is replaced: a few groups are added, removed and changed.
    let changed = with_apis(2, cluster::apis_document(cluster::MEMBERS, false));
    let last = cluster::MEMBERS - 1;
    let reversed = parse(&with_apis(last, cluster::apis_document(last, true)));
    let previous = Snapshot::build(cluster::inputs(&views), None);

    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut one_changed = views.clone();
        let parse_all = timed(|| parse(documents));
        let parse_one = timed(|| {
            let view = changed.get(2).map(cluster::view);
            one_changed.splice(2..3, view);
        });
        let parse_changes = timed(|| {
            let pair = changed.get(2).zip(views.get(2));
            pair.map(|(documents, known)| cluster::view_after(documents, known))
        });
        let build = |views: &[View], previous: Option<&Snapshot>| {
            let inputs = cluster::inputs(views);
            timed(|| Snapshot::build(inputs, previous))
        };
        rounds.push([
            parse_all,
            build(&views, None),
            parse_one,
            parse_changes,
            build(&one_changed, Some(&previous)),
            build(&views, Some(&previous)),
            build(&reversed, None),
        ]);
    }

    let [parsing, building, parsing_one, parsing_changes, one, nothing, contradicting] =
        [0, 1, 2, 3, 4, 5, 6].map(|column| Column { rounds: &rounds, column });
    let rate = total_bytes(documents) / parsing.median().as_secs_f64();
    let rate = format!("{} ({}/s)", milliseconds(parsing.median()), mebibytes(rate));
    report.note("parse all documents", rate);
    report.timed("merge and build", &building, &parsing);
    report.timed("the same, orders contradict", &contradicting, &parsing);
    report.note("parse a changed document", milliseconds(parsing_one.median()));
    let changes = milliseconds(parsing_changes.median());
    report.note("the same, only what changed", changes);
    report.timed("rebuild, one member changed", &one, &parsing);
    report.timed("rebuild, nothing changed", &nothing, &parsing);
}

fn memory(documents: &[Documents], report: &mut Report) {
    let total = total_bytes(documents);
    let mut kept = None;
    let built = measure(|| {
        let copy = |bytes: &Bytes| Bytes::from(bytes.to_vec());
        let documents: Vec<_> = documents
            .iter()
            .map(|documents| Documents { api: copy(&documents.api), apis: copy(&documents.apis) })
            .collect();
        let views = parse(&documents);
        kept = Some(Snapshot::build(cluster::inputs(&views), None));
    });
    let Some(snapshot) = kept else { return };
    report.sized("snapshot with its views", built.bytes_current as f64, total);

    let names: Vec<_> = snapshot
        .members()
        .flat_map(|member| [&member.view.api, &member.view.apis])
        .flatten()
        .flat_map(|seen| &seen.list.groups)
        .flat_map(|group| {
            let version = |version| (group.name.clone(), version);
            group.versions.iter().map(move |v| version(v.name.clone()))
        })
        .collect();
    let mut written = 0;
    let asked = measure(|| {
        let mut ask = |path, form| {
            let document = black_box(snapshot.document(&path, form));
            written += usize::from(document.is_some());
        };
        for form in [Form::AggregatedV2, Form::AggregatedV2beta1, Form::Legacy] {
            ask(DiscoveryPath::Api, form);
            ask(DiscoveryPath::Apis, form);
        }
        for (group, version) in &names {
            let (group, version) = (&**group, &**version);
            ask(DiscoveryPath::Group(group.into()), Form::Legacy);
            let path = DiscoveryPath::GroupVersion(group.into(), version.into());
            ask(path, Form::Legacy);
        }
    });
    assert!(written > cluster::GROUPS, "documents must be there");
    let whole = built.bytes_current + asked.bytes_current;
    report.sized("the same, every document written", whole as f64, total);

    let views = snapshot.members().map(|member| member.view.clone());
    let mut views: Vec<_> = views.collect();
    let changed = Documents {
        apis: cluster::apis_document(cluster::MEMBERS, false),
        ..cluster::documents(2)
    };
    let mut next = None;
    let rebuilt = measure(|| {
        views.splice(2..3, [cluster::view(&changed)]);
        next = Some(Snapshot::build(cluster::inputs(&views), Some(&snapshot)));
    });
    let (peak, kept) = (rebuilt.bytes_max as f64, rebuilt.bytes_current as f64);
    let value = format!("{}, kept {}", mebibytes(peak), mebibytes(kept));
    report.note("rebuild, one member changed: peak", value);
}

fn allocations(documents: &[Documents], report: &mut Report) {
    let views = parse(documents);
    let snapshot = Snapshot::build(cluster::inputs(&views), None);
    for (name, wire) in [
        ("list pods of a namespace", cluster::LIST_PODS),
        ("get an object of group 1234", cluster::GET_CUSTOM),
        ("watch a collection", cluster::WATCH),
        ("put a status", cluster::PUT_STATUS),
        ("create in a peer's group", cluster::CREATE_ON_PEER),
        ("discovery", cluster::DISCOVERY),
        ("health", cluster::HEALTHZ),
    ] {
        let Wire { method, path, query } = wire;
        let mut action = "";
        let counted = measure(|| {
            let request = RequestInfo::parse(method, path, query);
            let decision = decide(&request, &snapshot, cluster::ASKED);
            action = match decision.action {
                Action::Peers(peers) if peers.iter().next().is_some() => "a peer",
                Action::Peers(_) | Action::Refuse => "refused",
                Action::Answer => "answered",
                Action::Local { .. } => "local",
                Action::AskLocal | Action::AskAny | Action::PassNotFound => "not found",
            };
        });
        report.row(
            name,
            format!("{} allocations, {action}", counted.count_total),
            "0",
            Some(counted.count_total == 0),
        );
    }
}

fn parse(documents: &[Documents]) -> Vec<View> {
    documents.iter().map(cluster::view).collect()
}

fn total_bytes(documents: &[Documents]) -> f64 {
    let bytes = |documents: &Documents| documents.api.len() + documents.apis.len();
    documents.iter().map(bytes).sum::<usize>() as f64
}

/// The time of some work; its result is dropped after the clock has stopped.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let left = black_box(work());
    let elapsed = start.elapsed();
    drop(left);
    elapsed
}

/// One kind of work, over all rounds.
struct Column<'a> {
    rounds: &'a [[Duration; 7]],
    column: usize,
}

impl Column<'_> {
    fn values(&self) -> impl Iterator<Item = Duration> {
        let column = self.column;
        self.rounds.iter().filter_map(move |round| round.get(column).copied())
    }

    fn median(&self) -> Duration {
        Duration::from_secs_f64(median(self.values().map(|value| value.as_secs_f64())))
    }

    fn ratio_to(&self, other: &Column<'_>) -> f64 {
        let pairs = self.values().zip(other.values());
        median(pairs.map(|(ours, theirs)| ours.as_secs_f64() / theirs.as_secs_f64()))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1e3;
    if milliseconds < 1.0 {
        format!("{:.1} µs", milliseconds * 1e3)
    } else {
        format!("{milliseconds:.1} ms")
    }
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

/// The table.
#[derive(Default)]
struct Report(Vec<[String; 4]>);

impl Report {
    fn row(&mut self, figure: &str, value: String, target: &str, ok: Option<bool>) {
        let ok = match ok {
            None => "",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        self.0.push([figure.into(), value, target.into(), ok.into()]);
    }

    /// A figure without a target.
    fn note(&mut self, figure: &str, value: String) {
        self.row(figure, value, "", None);
    }

    fn timed(&mut self, figure: &str, work: &Column<'_>, parsing: &Column<'_>) {
        let ratio = work.ratio_to(parsing);
        let value = format!("{}, {ratio:.2}× parsing", milliseconds(work.median()));
        let target = format!("≤ {MAX_TIME_RATIO}×");
        self.row(figure, value, &target, Some(ratio <= MAX_TIME_RATIO));
    }

    fn sized(&mut self, figure: &str, bytes: f64, documents: f64) {
        let ratio = bytes / documents;
        let value = format!("{}, {ratio:.2}× documents", mebibytes(bytes));
        let target = format!("≤ {MAX_MEMORY_RATIO}×");
        self.row(figure, value, &target, Some(ratio <= MAX_MEMORY_RATIO));
    }

    fn print(&self) {
        let head = ["figure", "value", "target", "ok"].map(str::to_owned);
        for [figure, value, target, ok] in [&head].into_iter().chain(&self.0) {
            println!("{figure:<36} | {value:<32} | {target:<6} | {ok}");
        }
    }
}
