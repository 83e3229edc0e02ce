//! Requests of the gateway itself: what it reads from the cluster to protect callers, and its place
//! in the server's priority and fairness.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use testkit::process::until;

use crate::client::{Answer, Client, plain};
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "identity/server-headers",
            server_headers,
            "a header in which only the server reads groups gives a caller no group"
        ),
        case!(
            Mixed,
            "identity/flow-schema",
            flow_schema,
            "the gateway's own requests do not share a priority level with users"
        ),
    ]
}

const SOON: Duration = Duration::from_secs(60);

/// `b` reads groups also from `X-Auth-Group`, which no flag of its gateway names.
async fn server_headers(cluster: &mut Cluster) -> anyhow::Result<String> {
    let b = cluster.server("b")?.direct();
    let kubectl = cluster.kubectl(b)?;
    let eve = cluster.user("eve-headers", &["nobodies"])?;
    let mallory = eve.with_header("x-auth-group", "system:masters")?;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    // The server ignores the header of anyone but a front proxy.
    mallory.get(b, secrets).await?.expect(403).context("directly")?;

    let (mut process, through) = cluster.another_gateway("b", |_| ())?;
    let admin = std::net::SocketAddr::new(through.ip(), 7480);
    process
        .ready(SOON, async || plain(admin, "/readyz").await?.expect(200).map(drop))
        .await
        .context("a gateway that may not read the ConfigMap is ready")?;
    until("the gateway logs the missing right", SOON, async || {
        let log = std::fs::read_to_string(process.log())?;
        let line = log.lines().find(|line| line.contains("extension-apiserver-authentication"));
        Ok(line.filter(|line| line.contains(" WARN ")).map(drop))
    })
    .await?;
    // The problem: our certificate makes the server believe the header.
    mallory.get(through, secrets).await?.expect(200).context("without rights of the gateway")?;
    eve.get(through, secrets).await?.expect(403)?;

    kubectl.run(&on("apply", "rbac.yaml"), None).await?;
    let granted = Instant::now();
    until("the header gives no group", SOON, async || {
        Ok((mallory.get(through, secrets).await?.status == 403).then_some(()))
    })
    .await?;
    let after = granted.elapsed();
    for name in ["X-AUTH-GROUP", "x_auth_group", "X-Auth_Group"] {
        let spelled = eve.with_header(name, "system:masters")?;
        spelled.get(through, secrets).await?.expect(403).context(name)?;
    }
    let log = std::fs::read_to_string(process.log())?;
    let named = log.lines().filter(|line| line.contains("X-Auth-Group")).count();
    ensure!(named == 1, "the header is logged {named} times");
    // The ConfigMap has every header that we send, and no server reads UIDs.
    let ready = plain(admin, "/readyz?verbose").await?;
    ready.expect(200)?;
    let ready = String::from_utf8_lossy(&ready.body).into_owned();
    ensure!(ready.contains("[+]request-headers ok, but no API server reads the UID"), "{ready}");
    // Later cases grant rights by themselves.
    kubectl.run(&on("delete", "rbac.yaml"), None).await?;
    Ok(format!(
        "x-auth-group: system:masters lists secrets through a gateway without rights, and is removed \
         {:.1} s after they are granted",
        after.as_secs_f64()
    ))
}

/// What the gateway asks for.
const OWN: [&str; 9] = [
    "/api",
    "/apis",
    "/apis/apps/v1",
    "/version",
    "/openapi/v3",
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "/apis/apiregistration.k8s.io/v1/apiservices",
];

async fn flow_schema(cluster: &mut Cluster) -> anyhow::Result<String> {
    let ca = cluster.pki.files().ca();
    let front_proxy = Client::with_certificate(&ca, &cluster.pki.files().front_proxy())?;
    let own = front_proxy
        .with_header("x-remote-user", "system:apiserver")?
        .with_header("x-remote-group", "system:authenticated")?;
    let eve = cluster.user("eve-flows", &["nobodies"])?;
    let a = cluster.server("a")?.direct();
    let kubectl = cluster.kubectl(a)?;
    let before = uid_of(cluster, "global-default").await?;
    let asked = own.get(a, "/apis").await?;
    ensure!(flow_of(&asked) == before, "before, our requests are not those of ordinary users");

    kubectl.run(&on("apply", "flowschema.yaml"), None).await?;
    let uid = uid_of(cluster, "mixed-version-proxy").await?;
    for name in ["a", "b"] {
        let to = cluster.server(name)?.direct();
        until("the server uses the FlowSchema", SOON, async || {
            Ok((flow_of(&own.get(to, "/apis").await?) == uid).then_some(()))
        })
        .await?;
        for path in OWN {
            let answer = own.get(to, path).await?;
            ensure!(flow_of(&answer) == uid, "{path} at {name}: another FlowSchema, {answer}");
        }
        // Nothing else matches.
        for (who, path) in
            [(&own, "/api/v1/pods"), (&own, "/metrics"), (&eve, "/apis"), (&eve, "/version")]
        {
            let answer = who.get(to, path).await?;
            ensure!(flow_of(&answer) != uid, "{path} at {name} matches, too");
        }
    }
    // The gateways' own requests: nobody else uses it by now.
    let started = dispatched(cluster).await?;
    until("the gateways use it", SOON, async || {
        let now = dispatched(cluster).await?;
        Ok((now > started + 2.0).then_some(()))
    })
    .await?;
    kubectl.run(&on("delete", "flowschema.yaml"), None).await?;
    Ok(format!("{} kinds of requests in priority level system on 1.34 and 1.36", OWN.len()))
}

/// The arguments of kubectl for a file of the folder `deploy`.
fn on(verb: &str, file: &str) -> [String; 3] {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    [verb.to_owned(), "-f".to_owned(), file.display().to_string()]
}

async fn uid_of(cluster: &Cluster, schema: &str) -> anyhow::Result<String> {
    let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}");
    let found = cluster.admin.get(cluster.server("a")?.direct(), &path).await?.expect(200)?;
    let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
    Ok(uid.context("a FlowSchema without UID")?.to_owned())
}

/// The UID of the FlowSchema that a request matched.
fn flow_of(answer: &Answer) -> String {
    let uid = answer.headers.get("x-kubernetes-pf-flowschema-uid");
    uid.and_then(|uid| uid.to_str().ok()).unwrap_or_default().to_owned()
}

/// How many requests of our FlowSchema `a` has served.
async fn dispatched(cluster: &Cluster) -> anyhow::Result<f64> {
    let metrics = cluster.admin.get(cluster.server("a")?.direct(), "/metrics").await?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let name = "apiserver_flowcontrol_dispatched_requests_total{";
    let ours = text.lines().find(|line| {
        line.starts_with(name) && line.contains("flow_schema=\"mixed-version-proxy\"")
    });
    let value = ours.and_then(|line| line.rsplit(' ').next());
    Ok(value.context("no such metric")?.parse()?)
}
