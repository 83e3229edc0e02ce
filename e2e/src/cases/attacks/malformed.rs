//! Malformed requests: each is 400 at the gateway, deletes nothing, and ejects no server.

use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::json;

use super::others::{NAMESPACE, Others, Subject, metric};
use crate::client::{Outcome, http1_status, http2_outcome};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "attacks/malformed",
        malformed,
        "malformed requests return 400, delete nothing, and eject no peer"
    )]
}

/// The requests over HTTP/1.1 and HTTP/2, for a collection and an address.
struct Malformed {
    what: &'static str,
    http1: Option<String>,
    http2: Option<Vec<(&'static str, String)>>,
    /// Whether a stream reset is accepted instead.
    reset: bool,
}

async fn malformed(cluster: &mut Cluster) -> anyhow::Result<String> {
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let jobs = Subject::of_peers().collection;
    let server = cluster.server("b")?;
    let (to, admin) = (server.through(), server.gateway_admin());
    let others = Others::start(cluster, to, vec![Subject::local(), Subject::of_peers()]).await?;
    for name in ["keep1", "keep2"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let made = cluster.admin.create(to, &secrets, &secret).await?;
        ensure!(matches!(made.status.as_u16(), 201 | 409), "{made}");
        let job = super::super::objects::job(NAMESPACE, name);
        let made = cluster.admin.create(to, &job.collection, &job.object).await?;
        ensure!(matches!(made.status.as_u16(), 201 | 409), "{made}");
    }
    let before = trouble(admin).await?;
    let mut wrong = Vec::new();
    let mut sent = 0;
    for collection in [&secrets, &jobs] {
        for request in requests(collection, to) {
            for outcome in send(cluster, to, &request).await? {
                sent += 1;
                wrong.extend(outcome.map(|outcome| format!("{collection} {outcome}")));
            }
        }
    }
    let mut lost = Vec::new();
    for collection in [&secrets, &jobs] {
        for name in ["keep1", "keep2"] {
            let one = format!("{collection}/{name}");
            let answer = cluster.admin.get(cluster.server("a")?.direct(), &one).await?;
            let deleted = answer.json().pointer("/metadata/deletionTimestamp").is_some();
            if answer.status != 200 || deleted {
                lost.push(one);
            }
        }
    }
    let after = trouble(admin).await?;
    let harm = others.end(cluster.server("c")?.direct()).await?;
    let trouble = after - before;
    let figures = format!("{sent} requests; {trouble} failovers and ejections; {harm}");
    ensure!(
        lost.is_empty(),
        "deleted: {}; not 400: {}; {figures}",
        lost.join(", "),
        wrong.join(", ")
    );
    ensure!(wrong.is_empty(), "not 400: {}; {figures}", wrong.join(", "));
    ensure!(trouble < 0.5, "{figures}");
    harm.none()?;
    Ok(figures)
}

fn requests(collection: &str, to: SocketAddr) -> Vec<Malformed> {
    let http1 = |line: String| Some(format!("{line} HTTP/1.1\r\nHost: {to}\r\n\r\n"));
    let http2 = |method: &str, path: &str, authority: &str| {
        let text = str::to_owned;
        Some(vec![
            (":method", text(method)),
            (":scheme", text("https")),
            (":authority", text(authority)),
            (":path", text(path)),
        ])
    };
    let own = to.to_string();
    let user = format!("admin:secret@{to}");
    let absolute = format!("https://{to}{collection}");
    vec![
        Malformed {
            what: "%zz",
            http1: http1(format!("GET {collection}/%zz")),
            http2: http2("GET", &format!("{collection}/%zz"), &own),
            reset: false,
        },
        Malformed {
            what: "userinfo",
            http1: http1(format!("GET https://{user}{collection}")),
            http2: http2("GET", collection, &user),
            reset: false,
        },
        Malformed {
            what: "CONNECT",
            http1: http1(format!("CONNECT {to}")),
            http2: Some(vec![(":method", "CONNECT".to_owned()), (":authority", own.clone())]),
            reset: false,
        },
        Malformed {
            what: "# in a DELETE",
            http1: http1(format!("DELETE {collection}#keep1")),
            http2: http2("DELETE", &format!("{collection}#keep1"), &own),
            reset: true,
        },
        Malformed {
            what: "absolute :path",
            http1: None,
            http2: http2("GET", &absolute, &own),
            reset: true,
        },
    ]
}

/// The unexpected responses, for each protocol.
async fn send(
    cluster: &Cluster,
    to: SocketAddr,
    request: &Malformed,
) -> anyhow::Result<Vec<Option<String>>> {
    let what = request.what;
    let mut outcomes = Vec::new();
    if let Some(text) = &request.http1 {
        let status = http1_status(&cluster.admin, to, text.as_bytes()).await?;
        let wrong = status != Some(400);
        outcomes.push(wrong.then(|| format!("{what} over HTTP/1.1: {status:?}")));
    }
    if let Some(headers) = &request.http2 {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let outcome = http2_outcome(&cluster.admin, to, &headers).await?;
        let right = match outcome {
            Outcome::Status(status) => status == 400,
            Outcome::Reset(_) => request.reset,
            Outcome::Closed => false,
        };
        outcomes.push((!right).then(|| format!("{what} over HTTP/2: {outcome:?}")));
    }
    Ok(outcomes)
}

async fn trouble(admin: SocketAddr) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for name in ["mvp_failovers_total", "mvp_ejections_total", "mvp_retry_budget_refusals_total"] {
        sum += metric(admin, name).await?;
    }
    Ok(sum)
}
