//! The identity of a caller is preserved through a gateway and over the hop to a peer. The audit
//! log of the destination proves it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::certificates::{Leaf, cn, o};
use testkit::process::until;

use super::objects;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            Mixed,
            "identity/certificate",
            certificate,
            "the destination sees the user, the groups and the client address"
        ),
        case!(
            Mixed,
            "identity/service-account",
            service_account,
            "a TokenRequest token is the same service account at the destination"
        ),
        case!(
            Mixed,
            "identity/impersonation",
            impersonation,
            "impersonation is allowed and denied as it is directly"
        ),
        case!(
            Mixed,
            "identity/names",
            names,
            "names beyond ASCII, certificates that name nobody, and X.509 v1 are judged as directly"
        ),
        case!(Mixed, "identity/denials", denials, "RBAC denials are passed through unchanged"),
    ]
}

/// Grants verbs on jobs in the namespace of the case.
async fn grant(
    cluster: &Cluster,
    namespace: &str,
    verbs: &[&str],
    subject: Value,
) -> anyhow::Result<()> {
    cluster.namespace(namespace).await?;
    let to = cluster.server("a")?.direct();
    let base = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "jobs"},
        "rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "jobs"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jobs"},
    });
    cluster.admin.create(to, &format!("{base}/roles"), &role).await?.expect(201)?;
    cluster.admin.create(to, &format!("{base}/rolebindings"), &binding).await?.expect(201)?;
    Ok(())
}

/// Waits until every server that serves jobs has the grant.
async fn granted(cluster: &Cluster, client: &Client, path: &str) -> anyhow::Result<()> {
    for name in ["a", "c"] {
        let to = cluster.server(name)?.direct();
        until("the role is known", Duration::from_secs(10), async || {
            client.get(to, path).await?.expect(200).map(Some)
        })
        .await?;
    }
    Ok(())
}

/// The audit entry of a request at its destination, found by its path.
async fn audited(cluster: &Cluster, marker: &str) -> anyhow::Result<(&'static str, Value)> {
    until("the destination's audit log names the request", Duration::from_secs(10), async || {
        for name in ["a", "c"] {
            let found = cluster.server(name)?.audit()?.into_iter().find(|entry| {
                entry
                    .get("requestURI")
                    .and_then(Value::as_str)
                    .is_some_and(|uri| uri.contains(marker))
            });
            if let Some(entry) = found {
                return Ok(Some((name, entry)));
            }
        }
        Ok(None)
    })
    .await
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn ensure_from_client(cluster: &Cluster, entry: &Value) -> anyhow::Result<()> {
    let expected = cluster.client_address().to_string();
    let first = text(entry, "/sourceIPs/0");
    ensure!(first == expected, "the client's address is {expected}, the log says {entry}");
    Ok(())
}

async fn certificate(cluster: &mut Cluster) -> anyhow::Result<String> {
    let namespace = "identity-certificate";
    let subject =
        json!({"kind": "Group", "name": "builders", "apiGroup": "rbac.authorization.k8s.io"});
    grant(cluster, namespace, &["get", "list", "create"], subject).await?;
    let alice = cluster.user("alice", &["builders", "readers"])?.from(cluster.client_address());
    let job = objects::job(namespace, "made-by-alice");
    let path = &job.collection;
    granted(cluster, &alice, path).await?;

    let through = cluster.server("b")?.through();
    alice.create(through, &format!("{path}?pretty=e2e-alice"), &job.object).await?.expect(201)?;
    let (destination, entry) = audited(cluster, "pretty=e2e-alice").await?;
    ensure!(text(&entry, "/user/username") == "alice", "the log says {entry}");
    let groups = entry.pointer("/user/groups").cloned().unwrap_or_default();
    for group in ["builders", "readers", "system:authenticated"] {
        let has = groups.as_array().is_some_and(|all| all.contains(&json!(group)));
        ensure!(has, "group {group} is missing: {groups}");
    }
    let credential = entry
        .pointer("/user/extra/authentication.kubernetes.io~1credential-id/0")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ensure!(credential.starts_with("X509SHA256="), "no credential-id: {entry}");
    ensure_from_client(cluster, &entry)?;
    ensure!(
        cluster
            .server("b")?
            .audit()?
            .iter()
            .all(|entry| { !text(entry, "/requestURI").contains("e2e-alice") }),
        "the server that cannot serve it was asked, too"
    );

    // The audit entry of a direct request describes the same user.
    let direct = cluster.server(destination)?.direct();
    alice.get(direct, &format!("{path}?pretty=e2e-direct")).await?.expect(200)?;
    let (_, directly) = audited(cluster, "pretty=e2e-direct").await?;
    let (ours, theirs) = (entry.get("user"), directly.get("user"));
    ensure!(ours == theirs, "through mvp {ours:?}, directly {theirs:?}");
    Ok(format!(
        "alice of builders, readers, with credential-id, from {}, at {destination}: as directly",
        cluster.client_address()
    ))
}

async fn service_account(cluster: &mut Cluster) -> anyhow::Result<String> {
    let namespace = "identity-token";
    let subject = json!({"kind": "ServiceAccount", "name": "robot", "namespace": namespace});
    grant(cluster, namespace, &["get", "list"], subject).await?;
    let through = cluster.server("b")?.through();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    cluster.admin.create(through, &accounts, &account).await?.expect(201)?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let made = cluster.admin.create(through, &format!("{accounts}/robot/token"), &request).await?;
    let made = made.expect(201)?;
    let token = text(&made, "/status/token");
    ensure!(!token.is_empty(), "no token: {made}");

    let robot = cluster.nobody()?.with_token(token)?.from(cluster.client_address());
    let path = objects::job(namespace, "none").collection;
    granted(cluster, &robot, &path).await?;
    robot.get(through, &format!("{path}?pretty=e2e-robot")).await?.expect(200)?;
    let (destination, entry) = audited(cluster, "pretty=e2e-robot").await?;
    let user = format!("system:serviceaccount:{namespace}:robot");
    ensure!(text(&entry, "/user/username") == user, "the log says {entry}");
    ensure_from_client(cluster, &entry)?;
    let denied = robot.delete(through, &format!("{path}/none")).await?.expect(403)?;
    ensure!(text(&denied, "/message").contains(&user), "the denial says {denied}");

    // An unknown token is 401, and does not disturb the connections of others.
    let forged = format!("{token}x");
    let answer = cluster.nobody()?.with_token(&forged)?.get(through, &path).await?;
    ensure!(answer.status == 401, "a forged token: {answer}");
    let kept = robot.get(through, &path).await?;
    ensure!(kept.status == 200, "after a forged token: {kept}");
    Ok(format!("{user} at {destination}; its delete 403; a forged token 401"))
}

async fn impersonation(cluster: &mut Cluster) -> anyhow::Result<String> {
    let namespace = "identity-impersonation";
    let subject = json!({"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"});
    grant(cluster, namespace, &["list"], subject).await?;
    let through = cluster.server("b")?.through();
    let path = objects::job(namespace, "none").collection;
    let as_carol = cluster.admin.with_header("impersonate-user", "carol")?;
    granted(cluster, &as_carol, &path).await?;

    as_carol.get(through, &format!("{path}?pretty=e2e-carol")).await?.expect(200)?;
    let (destination, entry) = audited(cluster, "pretty=e2e-carol").await?;
    let (user, acting) =
        (text(&entry, "/user/username"), text(&entry, "/impersonatedUser/username"));
    ensure!((user, acting) == ("admin", "carol"), "the log says {entry}");
    // The admin may not do as carol what carol may not do.
    let denied = as_carol.delete(through, &format!("{path}/none")).await?.expect(403)?;
    ensure!(text(&denied, "/message").contains("User \"carol\""), "the denial says {denied}");
    // Impersonation without permission is rejected.
    let dave = cluster.user("dave", &[])?;
    let dave = dave
        .with_header("impersonate-user", "admin")?
        .with_header("impersonate-group", "system:masters")?;
    let denied = dave.get(through, &path).await?.expect(403)?;
    ensure!(text(&denied, "/message").contains("cannot impersonate"), "the denial says {denied}");
    Ok(format!("admin as carol at {destination}; carol's limits hold; dave cannot impersonate"))
}

async fn denials(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("identity-denials").await?;
    let job = objects::job("identity-denials", "one");
    let (through, capable) = (cluster.server("b")?.through(), cluster.server("a")?.direct());
    let callers = [
        ("eve by certificate", cluster.user("eve", &["nobodies"])?, 403),
        ("anonymous", cluster.nobody()?, 403),
        ("a bad token", cluster.nobody()?.with_token("not-a-token")?, 401),
    ];
    let mut compared = 0;
    for (who, client, status) in callers {
        let one = format!("{}/one", job.collection);
        for method in ["GET", "DELETE", "POST", "PATCH"] {
            let body = match method {
                "POST" => Some(("application/json", &job.object)),
                "PATCH" => Some(("application/merge-patch+json", &job.object)),
                _ => None,
            };
            let path = if method == "POST" { &job.collection } else { &one };
            let method = http::Method::from_bytes(method.as_bytes())?;
            let ours = client.send(through, method.clone(), path, body).await?;
            let theirs = client.send(capable, method.clone(), path, body).await?;
            let context = || format!("{method} of {who}");
            let (ours, theirs) = (ours.expect(status), theirs.expect(status));
            let (ours, theirs) = (ours.with_context(context)?, theirs.with_context(context)?);
            ensure!(ours == theirs, "{}: through mvp {ours}, directly {theirs}", context());
            compared += 1;
        }
    }
    Ok(format!("{compared} denials, the same Status as from a server that serves it"))
}

async fn names(cluster: &mut Cluster) -> anyhow::Result<String> {
    let server = cluster.server("a")?;
    let (direct, through) = (server.direct(), server.through());
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let named = ["jörg", "名前", "\u{a0}system:admin"];
    for name in named {
        let user = cluster.user(name, &["Ärzte"])?;
        let theirs = user.create(direct, reviews, &review).await?.expect(201)?;
        let ours = user.create(through, reviews, &review).await?.expect(201)?;
        let (theirs, ours) = (theirs.pointer("/status"), ours.pointer("/status"));
        ensure!(ours == theirs, "{name}: directly {theirs:?}, through mvp {ours:?}");
        let seen = ours.map_or("", |status| text(status, "/userInfo/username"));
        ensure!(seen == name, "{name} is {seen}");
    }
    let ca = cluster.pki.files().ca();
    let proxy = cluster.pki.files().front_proxy();
    let nobodies = [
        ("no common name", cluster.user("", &["system:masters"])?),
        ("a front proxy without a user", Client::with_certificate(&ca, &proxy)?),
    ];
    for (who, client) in nobodies {
        for path in ["/version", "/api/v1/namespaces"] {
            let theirs = client.get(direct, path).await?;
            let ours = client.get(through, path).await?;
            ensure!(
                ours.status == theirs.status && ours.status == 401,
                "{who}: directly {theirs}, through mvp {ours}"
            );
        }
    }
    version_1(cluster, direct, through).await?;
    Ok(format!(
        "{}, vera by X.509 v1 as directly; no common name, a front proxy without a user: 401",
        named.join(", ")
    ))
}

/// A user with a certificate of X.509 version 1, as tutorials issue it with `openssl x509 -req`. Our own
/// client cannot present it, but kubectl can.
async fn version_1(
    cluster: &Cluster,
    direct: SocketAddr,
    through: SocketAddr,
) -> anyhow::Result<()> {
    let vera = Leaf::new(&[o("dev"), o("ops"), cn("vera")]).of_version_1();
    cluster.pki.of_cluster("vera", vera)?;
    let user = async |to| {
        let kubeconfig = cluster.kubeconfig("vera", to)?;
        let kubectl = Kubectl::new(&cluster.programs.kubectl(), &kubeconfig, cluster.folder())?;
        let review = kubectl.run(["auth", "whoami", "--output=json"], None).await?;
        let review: Value = serde_json::from_str(&review)?;
        review.pointer("/status/userInfo").cloned().context("a review without a user")
    };
    let (theirs, ours) = (user(direct).await?, user(through).await?);
    ensure!(ours == theirs, "directly {theirs}, through mvp {ours}");
    ensure!(text(&ours, "/username") == "vera", "vera is {ours}");
    let groups = json!(["dev", "ops", "system:authenticated"]);
    ensure!(ours.pointer("/groups") == Some(&groups), "vera is {ours}");
    Ok(())
}
