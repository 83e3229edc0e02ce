//! The exporter and a collector that takes spans, fails, hangs, floods, or is not there.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mvp_proxy::trace::{Kind, Sampling, Span, Tracer, Value};
use testkit::certificates::Ca;
use testkit::otlp::{Behaviour, Receiver};
use tokio::task::JoinHandle;
use tokio_rustls::rustls;

use super::*;

const SAMPLING: Sampling = Sampling { ratio: 1.0, client_requests_per_second: 0 };

struct Running {
    tracer: Tracer,
    counts: SpanCounts,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn towards(collector: &Collector) -> Running {
        let (tracer, spans) = Tracer::new(SAMPLING);
        let counts = spans.counts().clone();
        let resource = [("service.name", "mvp"), ("service.instance.id", "a")];
        let exporter = Exporter::new(spans, collector.clone(), &resource);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { exporter.run(stopped).await });
        Running { tracer, counts, stop, task }
    }

    fn push(&self, count: usize) {
        (0..count).for_each(|_| self.tracer.record(span()));
    }

    /// Waits for these counts: exported, failed, rejected, queue full.
    async fn counts(&self, expected: [u64; 4]) {
        let now = || {
            let SpanCounts { exported, failed, rejected, queue_full, .. } = &self.counts;
            [exported, failed, rejected, queue_full].map(|counter| counter.get())
        };
        let reached = async {
            while now() != expected {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let reached = timeout(Duration::from_secs(30), reached).await;
        assert!(reached.is_ok(), "{:?}, not {expected:?}", now());
    }

    async fn ends(self) {
        self.stop.cancel();
        timeout(Duration::from_secs(30), self.task).await.unwrap().unwrap();
    }
}

fn plain(receiver: &Receiver) -> Collector {
    Collector::new(&receiver.url().parse().unwrap(), None).unwrap()
}

fn span() -> Span {
    Span {
        trace_id: [0xab; 16],
        span_id: [0xcd; 8],
        parent: Some([0xef; 8]),
        parent_is_remote: true,
        state: Some("a=1".to_owned()),
        name: Cow::Borrowed("GET"),
        kind: Kind::Server,
        start: 1_000,
        end: 2_000,
        attributes: vec![
            ("url.path", Value::from("/api".to_owned())),
            ("http.response.status_code", Value::from(503_u16)),
        ],
        failed: true,
    }
}

#[tokio::test]
async fn spans_arrive_as_they_are() {
    let receiver = Receiver::start().await;
    let running = Running::towards(&plain(&receiver));
    running.push(1);
    running.tracer.record(Span { parent: None, parent_is_remote: false, failed: false, ..span() });
    running.counts([2, 0, 0, 0]).await;
    let spans = receiver.spans();
    let [first, second] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*first.trace, &*first.id), (&*"ab".repeat(16), &*"cd".repeat(8)));
    assert_eq!((&*first.parent, &*second.parent), (&*"ef".repeat(8), ""));
    assert_eq!((first.name.as_str(), first.kind, first.state.as_str()), ("GET", 2, "a=1"));
    assert_eq!((first.start, first.end), (1_000, 2_000));
    assert_eq!(first.attribute("url.path"), "/api");
    assert_eq!(first.attribute("http.response.status_code"), "503");
    assert_eq!((first.failed, second.failed), (true, false));
    assert_eq!((first.flags, second.flags), (0x301, 0x101));
    assert_eq!((first.service(), &*first.resource["service.instance.id"]), ("mvp", "a"));
    assert_eq!(receiver.calls(), 1, "one batch");
}

#[tokio::test]
async fn many_spans_are_sent_in_batches() {
    let receiver = Receiver::start().await;
    let running = Running::towards(&plain(&receiver));
    running.push(2 * BATCH + 1);
    running.counts([2 * BATCH as u64 + 1, 0, 0, 0]).await;
    assert_eq!(receiver.calls(), 3);
}

#[tokio::test]
async fn waiting_spans_are_sent_at_the_end() {
    let receiver = Receiver::start().await;
    let running = Running::towards(&plain(&receiver));
    running.push(BATCH + 1);
    let counts = running.counts.clone();
    running.ends().await;
    assert_eq!(counts.exported.get(), BATCH as u64 + 1);
    assert_eq!(receiver.spans().len(), BATCH + 1);
}

#[tokio::test]
async fn a_collector_that_is_down_costs_spans_and_comes_back() {
    let receiver = Receiver::start().await;
    let (address, collector) = (receiver.address.to_string(), plain(&receiver));
    drop(receiver);
    let running = Running::towards(&collector);
    running.push(3);
    running.counts([0, 3, 0, 0]).await;
    let receiver = Receiver::at(&address, None).await;
    running.push(2);
    running.counts([2, 3, 0, 0]).await;
    receiver.becomes(Behaviour::Fails);
    running.push(1);
    running.counts([2, 4, 0, 0]).await;
}

#[tokio::test]
async fn rejected_spans_are_counted_as_far_as_they_can_be_true() {
    let receiver = Receiver::start().await;
    let running = Running::towards(&plain(&receiver));
    receiver.becomes(Behaviour::Rejects(2));
    running.push(3);
    running.counts([1, 0, 2, 0]).await;
    receiver.becomes(Behaviour::Rejects(i64::MAX));
    running.push(3);
    running.counts([1, 0, 5, 0]).await;
    receiver.becomes(Behaviour::Rejects(-1));
    running.push(3);
    running.counts([4, 0, 5, 0]).await;
}

#[tokio::test]
async fn a_response_without_end_is_not_read() {
    let receiver = Receiver::start().await;
    let running = Running::towards(&plain(&receiver));
    receiver.becomes(Behaviour::Floods);
    running.push(1);
    running.counts([0, 1, 0, 0]).await;
    receiver.becomes(Behaviour::Takes);
    running.push(1);
    running.counts([1, 1, 0, 0]).await;
}

/// The queue fills while a batch waits for its response; requests notice nothing. When the wait is
/// over, the others are sent.
#[tokio::test]
async fn a_collector_that_hangs_fills_the_queue_and_not_more() {
    let receiver = Receiver::start().await;
    receiver.becomes(Behaviour::Hangs);
    let running = Running::towards(&plain(&receiver));
    running.push(1);
    is_called(&receiver).await;
    running.push(5_000);
    assert_eq!(running.counts.queue_full.get(), 5_000 - 4_096);
    receiver.becomes(Behaviour::Takes);
    running.counts([4_096, 1, 0, 5_000 - 4_096]).await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_collector_that_hangs() {
    let receiver = Receiver::start().await;
    receiver.becomes(Behaviour::Hangs);
    let running = Running::towards(&plain(&receiver));
    running.push(1);
    is_called(&receiver).await;
    running.push(1);
    let ends = timeout(LIMIT / 2, running.ends()).await;
    assert!(ends.is_ok(), "it waits for the response");
}

async fn is_called(receiver: &Receiver) {
    let called = async {
        while receiver.calls() == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), called).await.unwrap();
}

#[tokio::test]
async fn tls_verifies_the_collector() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (ca, other) = (Ca::new("collectors"), Ca::new("others"));
    let pair = ca.server(&["127.0.0.1"]);
    let key = rustls_pki_types::pem::PemObject::from_pem_slice(pair.key.as_bytes()).unwrap();
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(pair.chain(), key)
        .unwrap();
    let receiver = Receiver::with_tls(server).await;
    let url: http::Uri = receiver.url().replace("http:", "https:").parse().unwrap();
    for (ca, counts) in [(&other, [0, 1, 0, 0]), (&ca, [1, 0, 0, 0])] {
        let pem = ca.pem().to_owned();
        let tls: Tls = Arc::new(move || {
            let tls = mvp_net::ClientTls::new(pem.as_bytes(), None);
            Ok(tls.map_err(std::io::Error::other)?.config(&[b"h2"]))
        });
        let running = Running::towards(&Collector::new(&url, Some(tls)).unwrap());
        running.push(1);
        running.counts(counts).await;
    }
    assert_eq!(receiver.spans().len(), 1);
}

#[test]
fn only_urls_of_collectors_are_taken() {
    let tls = || -> Option<Tls> { Some(Arc::new(|| Err(std::io::Error::other("unused")))) };
    let shown = |url: &str, tls| {
        Collector::new(&url.parse().unwrap(), tls).map(|collector| collector.to_string())
    };
    assert_eq!(shown("http://host", None).unwrap(), "http://host:4317");
    assert_eq!(shown("https://[::1]:1/", tls()).unwrap(), "https://[::1]:1");
    for (url, tls) in [
        ("https://host", None),
        ("http://host", tls()),
        ("http://host/v1/traces", None),
        ("http://host/?a", None),
        ("http://user@host", None),
        ("grpc://host", None),
        ("host:4317", None),
    ] {
        assert_eq!(shown(url, tls), Err(InvalidCollector), "{url}");
    }
}
