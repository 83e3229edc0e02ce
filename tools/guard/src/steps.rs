//! The steps of the data path that need no socket, in a cluster of five members with 2,000 groups.

use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;

use anyhow::Context;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use mvp_core::{RequestInfo, Snapshot, decide};
use mvp_net::{ConnectionInfo, UnixTime};
use mvp_proxy::{Body, Member};
use tower::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

use crate::cluster::{self, ASKED, LIST_PODS, Wire};
use crate::hop::worker;
use crate::pki::Pki;

/// The inputs of the snapshot. All peers share the documents of the first one: valgrind parses
/// slowly.
pub(crate) fn inputs() -> mvp_core::snapshot::Inputs {
    let [local, peer] = [0, 1].map(|member| cluster::view(&cluster::documents(member)));
    let mut views = vec![local];
    views.resize(cluster::MEMBERS, peer);
    cluster::inputs(&views)
}

fn parse(wire: Wire) -> RequestInfo<'static> {
    RequestInfo::parse(black_box(wire.method), black_box(wire.path), black_box(wire.query))
}

pub(crate) fn resolve(wire: Wire, times: usize) {
    for _ in 0..times {
        black_box(&parse(wire));
    }
}

pub(crate) fn resolve_and_decide(wire: Wire, times: usize) {
    let snapshot = Snapshot::build(inputs(), None);
    for _ in 0..times {
        let request = parse(wire);
        black_box(&decide(&request, &snapshot, black_box(ASKED)));
    }
}

/// Authentication by certificate and all header work, then the layer, before a service that answers
/// at once.
pub(crate) fn layer(times: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pki = Pki::new();
        let inputs = inputs();
        let id = inputs.local.clone().context("a local server")?;
        let member = Member::builder(&id, pki.outbound()?).record_callers(true);
        let worker = worker(member, Snapshot::build(inputs, None))?;
        let inner = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
        });
        let mut service = worker.authenticate().layer(worker.layer().layer(inner));
        let connection = connection(&pki)?;
        for _ in 0..times {
            let request = list_pods(&connection)?;
            let response = ServiceExt::<Request<Full<Bytes>>>::ready(&mut service)
                .await?
                .call(request)
                .await?;
            response.into_body().collect().await.ok().context("a body that broke off")?;
        }
        Ok(())
    })
}

/// The request of [`layer`] alone, which the client of the layer makes.
pub(crate) fn request(times: usize) -> anyhow::Result<()> {
    let connection = connection(&Pki::new())?;
    for _ in 0..times {
        black_box(list_pods(&connection)?);
    }
    Ok(())
}

/// The connection of a user with a certificate.
fn connection(pki: &Pki) -> anyhow::Result<ConnectionInfo> {
    let judgement = pki.trust()?.judge(&pki.user_chain(), UnixTime::now());
    let remote = SocketAddr::from(([127, 0, 0, 1], 50_000));
    Ok(ConnectionInfo::new(remote, pki.user_chain(), judgement).over_http2())
}

/// A list request as kubectl sends it.
fn list_pods(connection: &ConnectionInfo) -> anyhow::Result<Request<Full<Bytes>>> {
    let Wire { method, path, query } = LIST_PODS;
    Ok(Request::builder()
        .method(method)
        .uri(format!("{path}?{}", query.unwrap_or_default()))
        .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .header(ACCEPT_ENCODING, "gzip")
        .header(USER_AGENT, "kubectl/v1.36.4 (linux/amd64) kubernetes/0000000")
        .header("kubectl-command", "kubectl get")
        .header("kubectl-session", "0f6f3a5e-34a1-4a1c-9a53-7f6d1b0b6c3d")
        .extension(connection.clone())
        .body(Full::default())?)
}
