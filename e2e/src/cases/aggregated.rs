//! An aggregated API: an APIService with an extension server behind it, through every member, while
//! that server is up, down, and back. Its responses pass through as with kube-apiserver, also a 404
//! that looks unrouted.

use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use serde_json::{Value, json};
use testkit::process::{Process, Program, until};

use crate::client::{Answer, Client};
use crate::cluster::{Cluster, Server};
use crate::extension::{GROUP, KIND, LOST, RESOURCE, USER};
use crate::suite::Case;
use crate::tally::Tally;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "aggregated/passed-on",
            passed_on,
            "responses of an extension server pass through every member, also 404s"
        ),
        case!(
            full Mixed,
            "aggregated/up-and-down",
            up_and_down,
            "the extension server is killed and restarted: only its API is affected"
        ),
    ]
}

const NAMESPACE: &str = "aggregated";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Kubernetes checks extension servers periodically, and again after some seconds.
const NOTICED: Duration = Duration::from_secs(60);

/// The path of its objects.
pub(super) fn collection() -> String {
    format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{RESOURCE}")
}

/// Its responses are passed through.
async fn passed_on(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace(NAMESPACE).await?;
    forbid(cluster).await?;
    let _extension = start(cluster)?;
    register(cluster).await?;
    until_served(cluster).await?;
    for server in &cluster.servers {
        life(cluster, server).await.with_context(|| format!("through {}", server.name()))?;
    }
    // Without knowing the extension groups, a gateway withholds such a 404.
    let lost = format!("{}/{}", collection(), LOST.first().context("no name")?);
    let untold = cluster.admin.get(cluster.server("b")?.through(), &lost).await?;
    ensure!(untold.status == 503, "before the right is granted: {untold}");
    grant(cluster).await?;
    for name in LOST {
        let path = format!("{}/{name}", collection());
        for server in &cluster.servers {
            let directly = cluster.admin.get(server.direct(), &path).await?;
            directly.expect(404)?;
            let what = format!("{name} through {} is as directly", server.name());
            until(&what, Duration::from_secs(15), async || {
                same(&cluster.admin.get(server.through(), &path).await?, &directly).map(Some)
            })
            .await?;
        }
    }
    remove(cluster).await?;
    Ok("CRUD, watch, users and 404s of any shape through 3 members as directly".to_owned())
}

/// Its unavailability is passed through, and affects no other API.
async fn up_and_down(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut extension = up(cluster).await?;

    extension.kill();
    let mut meanwhile = Tally::default();
    let b = cluster.server("b")?;
    for server in &cluster.servers {
        let what = format!("{} notices that the extension server is gone", server.name());
        let directly = until(&what, NOTICED, async || {
            meanwhile.count(&cluster.admin.get(server.through(), &collection()).await);
            let answer = cluster.admin.get(server.direct(), &collection()).await?;
            // Until then the error names the address that it cannot reach.
            let settled = String::from_utf8_lossy(&answer.body).trim() == "service unavailable";
            Ok(settled.then_some(answer))
        })
        .await?;
        for path in [collection(), format!("{}/one", collection()), format!("/apis/{GROUP}/v1")] {
            let directly = cluster.admin.get(server.direct(), &path).await?;
            let through = cluster.admin.get(server.through(), &path).await?;
            same(&through, &directly).with_context(|| format!("{path} via {}", server.name()))?;
        }
        let object = gadget("while-it-is-down");
        let through = cluster.admin.create(server.through(), &collection(), &object).await?;
        same(&through, &directly).with_context(|| format!("POST via {}", server.name()))?;
    }
    meanwhile.only(&["503"])?;
    let kubectl = cluster.kubectl(b.through())?;
    kubectl.run(["get", "namespaces"], None).await.context("while it is down")?;

    let _extension = start(cluster)?;
    until_served(cluster).await?;
    for server in &cluster.servers {
        life(cluster, server).await.with_context(|| format!("{} again", server.name()))?;
    }
    // kubectl ignores groups that are marked as stale, until Kubernetes has checked them again.
    until("kubectl finds it again", NOTICED, async || {
        let kubectl = cluster.kubectl(b.through())?;
        let got = kubectl.run(["-n", NAMESPACE, "get", RESOURCE, "-o", "name"], None).await?;
        ensure!(got.trim().is_empty(), "kubectl printed {got}");
        Ok(Some(()))
    })
    .await?;
    remove(cluster).await?;
    Ok(format!("killed: {meanwhile} through 3 members, as directly; works after its return"))
}

/// Starts the extension server and waits until every member serves it as an extension group.
pub(super) async fn up(cluster: &Cluster) -> anyhow::Result<Process> {
    cluster.namespace(NAMESPACE).await?;
    grant(cluster).await?;
    let extension = start(cluster)?;
    register(cluster).await?;
    until_served(cluster).await?;
    Ok(extension)
}

/// The process of the extension server.
fn start(cluster: &Cluster) -> anyhow::Result<Process> {
    let pair = cluster.pki.service(NAMESPACE, "extension")?;
    let arguments = [
        "extension".into(),
        cluster.extension_address().to_string().into(),
        pair.certificate.into_os_string(),
        pair.key.into_os_string(),
        cluster.pki.files().front_proxy_ca().into_os_string(),
    ];
    let log = cluster.folder().join("extension.log");
    Program::new("extension", &std::env::current_exe()?).start(&log, arguments)
}

/// Registers it: a Service with its address, and the APIService.
async fn register(cluster: &Cluster) -> anyhow::Result<()> {
    let address = cluster.extension_address();
    let to = cluster.server("a")?.direct();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "extension"},
        "spec": {"type": "ExternalName", "externalName": address.ip().to_string()},
    });
    let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
    cluster.admin.create(to, &services, &service).await?.expect(201)?;
    let authority = std::fs::read(cluster.pki.files().ca())?;
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": NAMESPACE, "name": "extension", "port": address.port()},
            "caBundle": base64::engine::general_purpose::STANDARD.encode(authority),
        },
    });
    cluster.admin.create(to, SERVICES, &api_service).await?.expect(201)?;
    Ok(())
}

/// Removes it, and waits until it is gone through every member.
pub(super) async fn remove(cluster: &Cluster) -> anyhow::Result<()> {
    let through = cluster.server("b")?.through();
    cluster.admin.delete(through, &format!("{SERVICES}/v1.{GROUP}")).await?.expect(200)?;
    let service = format!("/api/v1/namespaces/{NAMESPACE}/services/extension");
    cluster.admin.delete(through, &service).await?.expect(200)?;
    for server in &cluster.servers {
        let what = format!("404 through {} without the APIService", server.name());
        until(&what, NOTICED, async || {
            cluster.admin.get(server.through(), &collection()).await?.expect(404).map(Some)
        })
        .await?;
    }
    Ok(())
}

/// Waits until every server serves it, directly and through its gateway, and it is in discovery.
async fn until_served(cluster: &Cluster) -> anyhow::Result<()> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for server in &cluster.servers {
        until(&format!("{} serves the extension", server.name()), NOTICED, async || {
            cluster.admin.get(server.direct(), &collection()).await?.expect(200)?;
            cluster.admin.get(server.through(), &collection()).await?.expect(200)?;
            let listed = cluster.admin.get_as(server.through(), "/apis", accept).await?;
            Ok(listed.expect(200)?.to_string().contains(GROUP).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// The permissions of a gateway.
const RIGHTS: &str = include_str!("../../../deploy/rbac.yaml");

/// The default: RBAC does not let gateways list APIServices.
async fn forbid(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    kubectl.run(["delete", "--ignore-not-found", "-f", "-"], Some(RIGHTS)).await?;
    let gateway =
        Client::with_certificate(&cluster.pki.files().ca(), &cluster.pki.files().front_proxy())?
            .with_header("x-remote-user", "system:apiserver")?
            .with_header("x-remote-group", "system:authenticated")?;
    for server in &cluster.servers {
        until(&format!("{} forbids it", server.name()), Duration::from_secs(10), async || {
            gateway.get(server.direct(), SERVICES).await?.expect(403).map(Some)
        })
        .await?;
    }
    Ok(())
}

async fn grant(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.kubectl(cluster.server("a")?.direct())?;
    kubectl.run(["apply", "-f", "-"], Some(RIGHTS)).await.map(drop)
}

/// An object of it.
pub(super) fn gadget(name: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": KIND, "metadata": {"name": name}})
}

/// Creates, reads, watches and deletes an object through a member.
async fn life(cluster: &Cluster, server: &Server) -> anyhow::Result<()> {
    let (admin, to, path) = (&cluster.admin, server.through(), collection());
    let mut watch = admin.watch(to, &format!("{path}?watch=1")).await?;
    admin.create(to, &path, &gadget("one")).await?.expect(201)?;
    ensure!(watch.next_change().await? == "ADDED one", "no ADDED");
    let one = format!("{path}/one");
    for at in [to, server.direct()] {
        let alice = cluster.user("alice", &["system:masters"])?;
        let answer = alice.get(at, &one).await?;
        answer.expect(200)?;
        let user = answer.headers.get(USER).and_then(|user| user.to_str().ok());
        ensure!(user == Some("alice"), "the extension server was asked by {user:?}");
    }
    let patch = json!({"metadata": {"labels": {"patched": "yes"}}});
    let body = Some(("application/merge-patch+json", &patch));
    admin.send(to, http::Method::PATCH, &one, body).await?.expect(200)?;
    ensure!(watch.next_change().await? == "MODIFIED one", "no MODIFIED");
    admin.delete(to, &one).await?.expect(200)?;
    ensure!(watch.next_change().await? == "DELETED one", "no DELETED");
    // An object that does not exist.
    let directly = admin.get(server.direct(), &one).await?;
    directly.expect(404)?;
    same(&admin.get(to, &one).await?, &directly)
}

/// The same status, type and body.
fn same(through: &Answer, directly: &Answer) -> anyhow::Result<()> {
    let key = |answer: &Answer| {
        let content_type = answer.headers.get(http::header::CONTENT_TYPE).cloned();
        (answer.status, content_type, answer.body.clone())
    };
    ensure!(key(through) == key(directly), "directly {directly}; through mvp {through}");
    Ok(())
}
