//! Unusual and malformed requests get the same status through a gateway as from kube-apiserver.

mod h2spec;
mod sslyze;

use std::net::SocketAddr;

use anyhow::ensure;

use crate::client::{Outcome, http1_status, http2_outcome};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![case!(
        Mixed,
        "door/as-directly",
        as_directly,
        "odd paths, hosts, codings, expectations and trailers have the status that they have directly"
    )];
    cases.extend(sslyze::cases());
    cases.extend(h2spec::cases());
    cases
}

/// Paths in which kube-apiserver's `RequestInfo` finds a resource, although it routes few of them.
const PATHS: [(&str, &str); 12] = [
    ("GET", "//api/v1/namespaces"),
    ("GET", "///api/v1/namespaces"),
    ("GET", "/%2fapi/v1/namespaces"),
    ("GET", "//apis/apps/v1/deployments"),
    ("GET", "/api//v1/namespaces"),
    ("GET", "/api/v1//namespaces"),
    ("GET", "/api/v1/namespaces/default/pods/x/status/y"),
    ("GET", "/api/v1/namespaces/default/pods/x//status"),
    ("GET", "/api/v1/namespaces/default/status/y"),
    ("GET", "/api/v1/watch/pods/x"),
    ("GET", "/api/v1/watch/namespaces//pods/x/y/z"),
    ("DELETE", "/api/v1/namespaces/default/pods/x/eviction/y"),
];

/// Paths that some parsers would take for another one, below a resource that one of two servers lacks.
const CONFUSING: [&str; 34] = [
    "/apis/batch/v1/namespaces/default/jobs/../../../../../../api/v1/namespaces/default/secrets",
    "/apis/batch/v1/namespaces/default/jobs/..",
    "/apis/batch/v1/./namespaces/default/jobs",
    "/apis/batch/v1/namespaces/./jobs",
    "/apis/batch/../batch/v1/namespaces/default/jobs",
    "/./apis/batch/v1/namespaces/default/jobs",
    "/../apis/batch/v1/namespaces/default/jobs",
    "/healthz/../apis/batch/v1/namespaces/default/jobs",
    "/apis/batch/v1/%2e%2e/v1/namespaces/default/jobs",
    "/apis/batch/v1/%2e/namespaces/default/jobs",
    "/apis/batch/v1/namespaces/default%2fjobs",
    "/apis/batch/v1/namespaces/default%2Fjobs",
    "/apis/batch%2fv1/namespaces/default/jobs",
    "/apis%2fbatch%2fv1%2fnamespaces%2fdefault%2fjobs",
    "/%61pis/batch/v1/namespaces/default/jobs",
    "/apis/batch/v1/namespaces/default/%6aobs",
    "/apis/batch/v1/namespaces/default/jobs%3fwatch=1",
    "/apis/batch/v1/namespaces/default/jobs%20",
    "/apis/batch/v1/namespaces/default/jobs%00",
    "/apis/batch/v1/namespaces/default/jobs%0d%0aX-Remote-User:root",
    "/apis/batch/v1/namespaces/default/jobs/%c0%ae%c0%ae/x",
    "/apis/batch/v1/namespaces/default/jobs/%c0%af",
    "/apis/batch/v1/namespaces/default/jobs/%ff",
    "/apis/batch/v1/namespaces/default/jobs/%252e%252e",
    "/apis/batch/v1;a=b/namespaces/default/jobs",
    "/apis/batch/v1/namespaces/default/jobs;a=b",
    "/apis/batch/v1/namespaces/default/jobs;",
    "/apis\\batch\\v1\\namespaces\\default\\jobs",
    "/APIS/batch/v1/namespaces/default/jobs",
    "/apis/BATCH/v1/namespaces/default/jobs",
    "/apis/batch/v1/namespaces/default/Jobs",
    "/apis/batch/v1/namespaces/default/jobs/",
    "/apis/batch/v1/namespaces/default/jobs//",
    "/apis/batch/v1/namespaces/default/jobs??watch=0",
];

/// Headers after the request line of a GET.
const HEADS: [&str; 12] = [
    "",
    "Host: a\r\nHost: a\r\n",
    "Host: a b\r\n",
    "Host: a/b\r\n",
    "Host: user@a\r\n",
    "Host:\r\n",
    "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
    "Host: a\r\nTransfer-Encoding: chunked, gzip\r\n",
    "Host: a\r\nTransfer-Encoding: identity\r\n",
    "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Host: a\r\nExpect: bogus\r\n",
    "Host: a\r\nExpect: bogus, 100-continue\r\n",
];

const TRAILERS: [&str; 9] = [
    "Connection",
    "TE",
    "Upgrade",
    "Keep-Alive",
    "Transfer-Encoding",
    "Authorization",
    "Content-Length",
    "Host",
    "X-Harmless",
];

async fn as_directly(cluster: &mut Cluster) -> anyhow::Result<String> {
    let server = cluster.server("a")?;
    let (direct, through) = (server.direct(), server.through());
    let without_jobs = cluster.server("b")?.through();
    let mut differences = Vec::new();
    let requests = requests();
    for (what, request) in &requests {
        let theirs = http1_status(&cluster.admin, direct, request.as_bytes()).await?;
        let ours = http1_status(&cluster.admin, through, request.as_bytes()).await?;
        if ours != theirs || ours.is_none() {
            differences.push(format!("{what}: {theirs:?} directly, {ours:?} through mvp"));
        }
    }
    for (method, path) in PATHS {
        let theirs = over_http2(cluster, direct, method, path).await?;
        let ours = over_http2(cluster, through, method, path).await?;
        if ours != theirs {
            differences.push(format!("{path}: {theirs:?} directly, {ours:?} through mvp"));
        }
    }
    // A peer's resource, at a path that the peer does not have.
    let more = "/apis/batch/v1/namespaces/default/jobs/x/status/y";
    let theirs = over_http2(cluster, direct, "GET", more).await?;
    let ours = over_http2(cluster, without_jobs, "GET", more).await?;
    if ours != theirs || ours != Outcome::Status(404) {
        differences.push(format!("{more}: {theirs:?} directly, {ours:?} through mvp"));
    }
    // One server has the resource, a peer does not: both gateways decide as kube-apiserver does.
    for path in CONFUSING {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let theirs = http1_status(&cluster.admin, direct, request.as_bytes()).await?;
        for (to, name) in [(through, "a"), (without_jobs, "b")] {
            let ours = http1_status(&cluster.admin, to, request.as_bytes()).await?;
            if ours != theirs || ours.is_none() {
                differences.push(format!("{path}: {theirs:?} directly, {ours:?} through {name}"));
            }
        }
    }
    // kube-apiserver has no limit of its own here.
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(70_000));
    let status = http1_status(&cluster.admin, through, long.as_bytes()).await?;
    ensure!(status == Some(414), "a target of 70,000 bytes: {status:?}");
    ensure!(differences.is_empty(), "{}", differences.join("; "));
    let sent = requests.len() + PATHS.len() + 2 * CONFUSING.len() + 1;
    Ok(format!("{sent} requests, each with the same status; a target of 70,000 bytes 414"))
}

fn requests() -> Vec<(String, String)> {
    let mut requests = Vec::new();
    for (method, path) in PATHS {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        requests.push((format!("{method} {path}"), request));
    }
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}"#;
    let (length, size) = (body.len(), format!("{:x}", body.len()));
    requests.push((
        "POST of a review with a name".to_owned(),
        format!(
            "POST {review}/x HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    ));
    for head in HEADS {
        let request = format!("GET /api/v1/namespaces HTTP/1.1\r\n{head}\r\n");
        requests.push((format!("{head:?}"), request));
    }
    requests.push(("HTTP/1.0".to_owned(), "GET /api/v1/namespaces HTTP/1.0\r\n\r\n".to_owned()));
    let many: String = (0..1099).map(|index| format!("X-{index}: 1\r\n")).collect();
    let many = format!("GET /api/v1/namespaces HTTP/1.1\r\nHost: a\r\n{many}\r\n");
    requests.push(("1,100 headers".to_owned(), many));
    for name in TRAILERS {
        let request = format!(
            "POST {review} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Transfer-Encoding: chunked\r\n\r\n{size}\r\n{body}\r\n0\r\n{name}: 1\r\n\r\n"
        );
        requests.push((format!("trailer {name}"), request));
    }
    requests
}

async fn over_http2(
    cluster: &Cluster,
    to: SocketAddr,
    method: &str,
    path: &str,
) -> anyhow::Result<Outcome> {
    let headers = [(":method", method), (":scheme", "https"), (":authority", "a"), (":path", path)];
    http2_outcome(&cluster.admin, to, &headers).await
}
