//! Upgraded connections over the hop to a peer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::objects;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "upgrade/websocket-watch",
            websocket_watch,
            "a watch over WebSocket of an API that only peers serve"
        ),
        case!(
            Native,
            "upgrade/kubernetes-own",
            kubernetes_own,
            "comparison: the same WebSocket watch with the Kubernetes proxy"
        ),
    ]
}

type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// Requests a watch over WebSocket. Returns the status, and the connection after a 101.
async fn websocket(
    client: &Client,
    to: SocketAddr,
    path: &str,
) -> anyhow::Result<(StatusCode, Option<Upgraded>)> {
    let client = client
        .with_header("connection", "Upgrade")?
        .with_header("upgrade", "websocket")?
        .with_header("sec-websocket-version", "13")?
        .with_header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")?
        .with_header("origin", "https://example.com")?;
    let mut connection = client.connect(to).await?;
    let response = connection.start(Method::GET, path, None).await?;
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok((status, None));
    }
    let accept = response.headers().get("sec-websocket-accept");
    // What RFC 6455 gives for this key.
    ensure!(
        accept.is_some_and(|accept| accept == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "no handshake: {:?}",
        response.headers()
    );
    Ok((status, Some(TokioIo::new(hyper::upgrade::on(response).await?))))
}

/// The next event: an unmasked text frame of the server.
async fn event(stream: &mut Upgraded) -> anyhow::Result<Value> {
    let read = async {
        let mut head = [0; 2];
        stream.read_exact(&mut head).await?;
        let [first, length] = head;
        let length = match length {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            short => u64::from(short),
        };
        ensure!(first & 0x0f == 1 && length < 1 << 20, "no text frame: {first:#x}, {length} bytes");
        let mut payload = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut payload).await?;
        Ok(serde_json::from_slice(&payload)?)
    };
    timeout(Duration::from_secs(30), read).await.context("no event came")?
}

async fn watch_over_websocket(
    cluster: &Cluster,
    namespace: &str,
    client: &Client,
) -> anyhow::Result<()> {
    let (to, job) = (cluster.server("b")?.through(), objects::job(namespace, "seen"));
    let path = format!("{}?watch=1", job.collection);
    let (status, stream) = websocket(client, to, &path).await?;
    let mut stream = stream.with_context(|| format!("{status} in place of 101"))?;
    let named = |event: &Value, kind: &str| {
        event.get("type") == Some(&json!(kind))
            && event.pointer("/object/metadata/name") == Some(&json!("seen"))
    };
    cluster.admin.create(to, &job.collection, &job.object).await?.expect(201)?;
    let added = event(&mut stream).await?;
    ensure!(named(&added, "ADDED"), "{added}");
    let one = format!("{}/seen?propagationPolicy=Background", job.collection);
    cluster.admin.delete(to, &one).await?.expect(200)?;
    let deleted = event(&mut stream).await?;
    ensure!(named(&deleted, "DELETED"), "{deleted}");
    Ok(())
}

async fn websocket_watch(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("upgrade").await?;
    watch_over_websocket(cluster, "upgrade", &cluster.admin).await.context("by certificate")?;

    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}});
    let (to, accounts) =
        (cluster.server("b")?.through(), "/api/v1/namespaces/upgrade/serviceaccounts");
    cluster.admin.create(to, accounts, &account).await?.expect(201)?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let made = cluster.admin.create(to, &format!("{accounts}/viewer/token"), &request).await?;
    let made = made.expect(201)?;
    let token = made.pointer("/status/token").and_then(Value::as_str).context("no token")?;
    let viewer = cluster.nobody()?.with_token(token)?;
    let path = objects::job("upgrade", "").collection;
    let (status, _) = websocket(&viewer, to, &format!("{path}?watch=1")).await?;
    ensure!(status == StatusCode::FORBIDDEN, "a token without rights: {status}");
    Ok("ADDED and DELETED of a peer's API, by certificate; a token without rights 403".to_owned())
}

async fn kubernetes_own(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("upgrade").await?;
    let path = format!("{}?watch=1", objects::job("upgrade", "").collection);
    let direct = cluster.server("b")?.direct();
    let (theirs, _) = websocket(&cluster.admin, direct, &path).await?;
    ensure!(
        theirs != StatusCode::SWITCHING_PROTOCOLS,
        "Kubernetes' own does it now: mend the docs"
    );
    watch_over_websocket(cluster, "upgrade", &cluster.admin).await?;
    Ok(format!("Kubernetes' own: {}; mvp: 101 and every event", theirs.as_u16()))
}
