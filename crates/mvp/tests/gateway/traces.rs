//! `--tracing-endpoint`: traces of two gateways at a collector, and collectors that fail.

use std::sync::Arc;

use http::StatusCode;
use rustls::ServerConfig;
use testkit::certificates::Ca;
use testkit::otlp::{Behaviour, Received, Receiver};
use testkit::process::Signal;

use crate::cluster::{CONFIG_MAPS, Cluster, WIDGETS};
use crate::signals::ends;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::folder::Folder;
use crate::support::process::{Gateway, free_address};

/// OTLP's kind of a span of a request that is served.
const SERVER: i32 = 2;

fn flags(url: &str) -> Vec<String> {
    vec![format!("--tracing-endpoint={url}"), "--tracing-sampling-ratio=1".to_owned()]
}

/// The number of spans with this outcome, as the metric tells.
async fn counted(gateway: &Gateway, outcome: &str) -> u64 {
    let page = gateway.page("/metrics").await;
    let name = format!("mvp_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

fn is_for(span: &Received, path: &str) -> bool {
    span.kind == SERVER && span.attribute("url.path") == path
}

#[tokio::test]
async fn a_trace_goes_through_both_gateways_to_the_collector() {
    let collector = Receiver::start().await;
    let cluster = Cluster::with(&flags(&collector.url())).await;
    let b = &cluster.b.gateway;
    assert_eq!(Client::user(b.address).await.get(WIDGETS).await.0, StatusCode::OK);
    let both = |spans: &[Received]| spans.iter().filter(|span| is_for(span, WIDGETS)).count() == 2;
    let trace = collector.trace_with(both).await;
    let request = |instance: &str| {
        let is_of = |span: &&Received| span.resource["service.instance.id"] == instance;
        trace.iter().filter(is_of).find(|span| is_for(span, WIDGETS)).unwrap()
    };
    let (first, second) = (request("b"), request("a"));
    assert_eq!((first.service(), first.parent.as_str()), ("mvp", ""));
    let forward = trace.iter().find(|span| span.id == second.parent).unwrap();
    assert_eq!((forward.name.as_str(), &forward.parent), ("forward", &first.id));
    assert_eq!(forward.attribute("mvp.member"), "a");
    for request in [first, second] {
        for step in ["authenticate", "decide", "forward"] {
            let is_step = |span: &&Received| span.name == step && span.parent == request.id;
            assert_eq!(trace.iter().filter(is_step).count(), 1, "{step}: {trace:#?}");
        }
    }
    // Spans count as exported once the response of the collector is here, later than in the collector.
    eventually("the spans count as exported", async || match counted(b, "exported").await {
        4.. => Ok(()),
        fewer => Err(fewer),
    })
    .await;
    assert_eq!(counted(b, "failed").await, 0);
}

#[tokio::test]
async fn without_an_endpoint_there_is_no_metric() {
    let cluster = Cluster::start().await;
    assert!(!cluster.b.gateway.page("/metrics").await.contains("mvp_trace_spans"));
}

#[tokio::test]
async fn a_collector_that_fails_is_logged_once_and_disturbs_nobody() {
    let address = free_address();
    let cluster = Cluster::with(&flags(&format!("http://{address}"))).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    let mut failed = 0;
    // In two batches at least.
    for _ in 0..2 {
        for _ in 0..10 {
            assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
        }
        failed = eventually("a batch fails", async || match counted(b, "failed").await {
            more if more > failed => Ok(more),
            same => Err((same, b.log())),
        })
        .await;
    }
    let log = b.log();
    assert_eq!(log.matches("trace export fails").count(), 1, "{log}");
    assert!(log.contains(&format!("http://{address}")) && log.contains("refused"), "{log}");

    let collector = Receiver::at(&address.to_string(), None).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    b.logs("trace export works again").await;
    assert!(!collector.spans().is_empty());
}

#[tokio::test]
async fn waiting_spans_are_exported_at_shutdown_and_a_hanging_collector_does_not_hold_it_up() {
    for behaviour in [Behaviour::Takes, Behaviour::Hangs] {
        let collector = Receiver::start().await;
        collector.becomes(behaviour);
        let mut cluster = Cluster::with(&flags(&collector.url())).await;
        let client = Client::user(cluster.b.gateway.address).await;
        assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
        drop(client);
        cluster.b.gateway.signal(Signal::TERM);
        ends(&mut cluster.b.gateway).await;
        let arrived = collector.spans().iter().any(|span| is_for(span, CONFIG_MAPS));
        assert_eq!(arrived, behaviour == Behaviour::Takes);
    }
}

#[tokio::test]
async fn a_collector_with_tls_is_verified_and_a_new_ca_file_needs_no_restart() {
    let (ca, other) = (Ca::new("collectors"), Ca::new("others"));
    let pair = ca.server(&["127.0.0.1"]);
    let key = rustls_pki_types::pem::PemObject::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(pair.chain(), key)
        .unwrap();
    let collector = Receiver::with_tls(tls).await;
    let mut folder = Folder::new(&[("ca.crt", other.pem())]);
    let mut more = flags(&collector.url().replace("http:", "https:"));
    more.push(folder.flag("tracing-ca-file", "ca.crt"));
    let cluster = Cluster::with(&more).await;
    let b = &cluster.b.gateway;
    let client = Client::user(b.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    b.logs("trace export fails").await;
    let log = b.log();
    assert!(log.contains("--tracing-ca-file"), "{log}");
    folder.swap(&[("ca.crt", ca.pem())]);
    eventually("spans arrive", async || {
        assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
        if collector.spans().is_empty() { Err(b.log()) } else { Ok(()) }
    })
    .await;
}
