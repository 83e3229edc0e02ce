//! Traces through two gateways and into kube-apiserver's own spans, at one receiver.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use testkit::otlp::{Received, Receiver};
use testkit::process::until;

use crate::cases::callers;
use crate::cluster::Cluster;

/// Served by `a` alone.
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies";
/// Served by both.
const NAMESPACES: &str = "/api/v1/namespaces";
/// OTLP's kind of a span of a request that is served.
const SERVER: i32 = 2;
/// The servers that take part, with their gateways.
const TRACED: [&str; 2] = ["a", "b"];

pub(super) async fn into_the_servers(cluster: &mut Cluster) -> anyhow::Result<String> {
    let frank = callers::by_certificate(cluster).await?;
    let address = SocketAddr::new(cluster.client_address(), 4317);
    let collector = Receiver::at(&address.to_string(), None).await;
    // Of its own accord kube-apiserver records nothing.
    let config = cluster.folder().join("tracing.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {address}\n\
         samplingRatePerMillion: 0\n"
    );
    std::fs::write(&config, text)?;
    for name in TRACED {
        let server = cluster.server_mut(name)?;
        server.spec.flags.push(format!("--tracing-config-file={}", config.display()));
        server.spec.gateway_flags = vec![
            format!("--tracing-endpoint=http://{address}"),
            "--tracing-sampling-ratio=0".to_owned(),
        ];
        server.kill();
    }
    cluster.heal().await?;
    let shown = traced(cluster, &collector, &frank).await;
    // The cases that follow have the cluster as it was.
    for name in TRACED {
        let server = cluster.server_mut(name)?;
        server.spec.flags.pop();
        server.spec.gateway_flags.clear();
        server.kill();
    }
    cluster.heal().await?;
    shown
}

async fn traced(
    cluster: &Cluster,
    collector: &Receiver,
    frank: &crate::client::Client,
) -> anyhow::Result<String> {
    let through = cluster.server("b")?.through();
    let caller = "b7ad6b7169203331";
    let trace = |number: u8| format!("0af7651916cd43dd8448eb211c8031{number:02x}");
    let context = |number| format!("00-{}-{caller}-01", trace(number));

    // The user of a certificate without these groups comes first: its spans are there before those below.
    let ordinary = frank.with_header("traceparent", &context(1))?;
    ordinary.get(through, POLICIES).await?.expect(200)?;
    let own = |spans: &[Received]| {
        spans.iter().filter(|span| span.service() == "mvp" && span.kind == SERVER).count()
    };
    arrives(collector, &trace(1), |spans| own(spans) == 2).await?;

    for (number, path, gateways) in [(2, POLICIES, 2), (3, NAMESPACES, 1)] {
        let admin = cluster.admin.with_header("traceparent", &context(number))?;
        admin.get(through, path).await?.expect(200)?;
        let of_server = |span: &&Received| span.service() == "apiserver" && span.kind == SERVER;
        let whole =
            |spans: &[Received]| own(spans) == gateways && spans.iter().any(|s| of_server(&s));
        let spans = arrives(collector, &trace(number), whole).await?;
        // From kube-apiserver's span up to the caller's: each has a parent.
        let mut names = Vec::new();
        let mut span = spans.iter().find(of_server);
        let mut top = String::new();
        while let Some(below) = span {
            names.push(format!("{} {}", below.service(), below.name));
            top.clone_from(&below.parent);
            span = spans.iter().find(|span| span.id == below.parent);
        }
        ensure!(top == caller, "the chain ends at {top}: {names:?}");
        ensure!(names.len() == 1 + 2 * gateways, "{names:?}");
        let sends = names.iter().filter(|name| *name == "mvp forward").count();
        ensure!(sends == gateways, "{names:?}");
    }
    let foreign = collector
        .spans()
        .into_iter()
        .filter(|span| span.trace == trace(1) && span.service() != "mvp");
    ensure!(foreign.count() == 0, "kube-apiserver follows the context of an ordinary user");
    Ok("kube-apiserver's spans (1.36 behind two gateways, 1.34 behind one) are children of ours for \
        system:masters; for other users the trace ends at the gateway"
        .to_owned())
}

/// Waits for spans of a trace that fit, and returns all of it.
async fn arrives(
    collector: &Receiver,
    trace: &str,
    fits: impl Fn(&[Received]) -> bool,
) -> anyhow::Result<Vec<Received>> {
    until("the trace arrives", Duration::from_secs(60), async || {
        let mut spans = collector.spans();
        spans.retain(|span| span.trace == trace);
        let missing = || {
            let names: Vec<_> =
                spans.iter().map(|s| format!("{} {}", s.service(), s.name)).collect();
            anyhow::anyhow!("only {names:?}")
        };
        if fits(&spans) { Ok(Some(spans)) } else { Err(missing()) }
    })
    .await
}
