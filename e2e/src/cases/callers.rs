//! Callers who may by RBAC, and not because of a group that every server lets through: a server that
//! starts forbids them what they may do until it has read its rules.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::until;

use crate::client::Client;
use crate::cluster::Cluster;

/// Known by a certificate.
pub(super) async fn by_certificate(cluster: &Cluster) -> anyhow::Result<Client> {
    let group = "rbac.authorization.k8s.io";
    grant(cluster, "frank", json!({"apiGroup": group, "kind": "User", "name": "frank"})).await?;
    let frank = cluster.user("frank", &[])?;
    known(cluster, &frank).await?;
    Ok(frank)
}

/// Known by the token of a service account.
pub(super) async fn by_token(cluster: &Cluster) -> anyhow::Result<Client> {
    by_token_of(cluster, "robin").await
}

/// The same, of a service account of that name.
pub(super) async fn by_token_of(cluster: &Cluster, name: &str) -> anyhow::Result<Client> {
    let client = cluster.nobody()?.with_token(&token_of(cluster, name).await?)?;
    known(cluster, &client).await?;
    Ok(client)
}

/// The token alone.
pub(super) async fn token_of(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let namespace = "default";
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    grant(cluster, name, subject).await?;
    let to = cluster.servers.first().context("no server")?.direct();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    let made = cluster.admin.create(to, &accounts, &account).await?;
    ensure!(matches!(made.status.as_u16(), 201 | 409), "{made}");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7200},
    });
    let made = cluster.admin.create(to, &format!("{accounts}/{name}/token"), &request).await?;
    let made = made.expect(201)?;
    let token = made.pointer("/status/token").and_then(Value::as_str).context("no token")?;
    Ok(token.to_owned())
}

/// Everything may be done by that subject.
async fn grant(cluster: &Cluster, name: &str, subject: Value) -> anyhow::Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("e2e-{name}")},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [subject],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let to = cluster.servers.first().context("no server")?.direct();
    let made = cluster.admin.create(to, bindings, &binding).await?;
    ensure!(matches!(made.status.as_u16(), 201 | 409), "{made}");
    Ok(())
}

/// Waits until every server knows what was granted.
async fn known(cluster: &Cluster, client: &Client) -> anyhow::Result<()> {
    for server in &cluster.servers {
        until("the binding is known", Duration::from_secs(10), async || {
            let path = "/api/v1/namespaces/default/configmaps";
            client.get(server.direct(), path).await?.expect(200).map(Some)
        })
        .await?;
    }
    Ok(())
}
