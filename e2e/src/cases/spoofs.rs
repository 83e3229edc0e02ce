//! No caller can act as another: every known technique against real servers, for a local API and
//! for an API of peers.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::objects;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::suite::Case;

/// The cases of this group, in the order in which they run.
pub(super) fn cases() -> Vec<Case> {
    vec![case!(
        Mixed,
        "identity/spoofs",
        spoofs,
        "no header or certificate lets a caller act as another user"
    )]
}

/// Identity headers.
const PRETENCES: [&[(&str, &str)]; 6] = [
    &[("x-remote-user", "admin"), ("x-remote-group", "system:masters")],
    &[
        ("X-Remote-User", "system:admin"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Uid", "1"),
    ],
    &[("x-remote-user", "admin"), ("x-remote-group", "dev"), ("x-remote-group", "system:masters")],
    &[
        ("x-remote-extra-scopes", "all"),
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
    ],
    &[
        ("x-kubernetes-peer-proxied", "true"),
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
    ],
    // A spelling that some frameworks treat as the same name.
    &[("x_remote_user", "admin"), ("x_remote_group", "system:masters")],
];

async fn spoofs(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.namespace("spoofs").await?;
    let through = cluster.server("b")?.through();
    let nobody = cluster.nobody()?;
    let ca = cluster.pki.files().ca();
    let eve = cluster.user("eve", &["nobodies"])?;
    let padded = cluster.user("padded", &[" system:masters"])?;
    let speaker = Client::with_certificate(&ca, &cluster.pki.front_proxy_client("somebody-else")?)?;
    let stranger = cluster.pki.untrusted_user("admin", &["system:masters"])?;
    let stranger = Client::with_certificate(&ca, &stranger)?;
    // The permissions of each caller without spoofing, as the status of lists of secrets and jobs.
    let callers = [
        ("anonymous", &nobody, 403),
        ("eve", &eve, 403),
        ("a bad token", &nobody.with_token("not-a-token")?, 401),
        ("a front proxy of another name", &speaker, 401),
        ("a certificate of nobody", &stranger, 401),
        ("a padded group", &padded, 401),
    ];
    let paths = ["/api/v1/namespaces/spoofs/secrets", "/apis/batch/v1/namespaces/spoofs/jobs"];
    let mut tried = 0;
    for (who, client, expected) in callers {
        for path in paths {
            for pretence in PRETENCES {
                let mut client = client.clone();
                for (name, value) in pretence {
                    client = client.with_header(name, value)?;
                }
                let answer = client.get(through, path).await;
                let answer = answer.with_context(|| format!("{who} with {pretence:?}"))?;
                ensure!(
                    answer.status.as_u16() == expected,
                    "{who} with {pretence:?} at {path}: {expected} expected, {answer}"
                );
                tried += 1;
            }
        }
    }
    // A permitted caller that marks its request as proxied is not proxied.
    let marked = cluster.admin.with_header("x-kubernetes-peer-proxied", "true")?;
    let answer = marked.get(through, paths[1]).await?;
    let refusal = answer.expect(503).context("a marked request of a client")?;
    ensure!(refusal.pointer("/reason") == Some(&json!("ServiceUnavailable")), "{refusal}");

    // The allowed front proxy is trusted, as in kube-apiserver.
    let front_proxy = Client::with_certificate(&ca, &cluster.pki.files().front_proxy())?;
    let as_admin = front_proxy
        .with_header("x-remote-user", "admin")?
        .with_header("x-remote-group", "system:masters")?;
    as_admin.get(through, paths[1]).await?.expect(200).context("the front proxy")?;

    // SelfSubjectReview at a server with the API, and through one that needs the hop.
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let asked = eve.with_header("x-remote-user", "admin")?;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let said = asked.create(through, path, &review).await?.expect(201)?;
    let name = said.pointer("/status/userInfo/username").and_then(Value::as_str);
    ensure!(name == Some("eve"), "the server says {said}");
    let job = objects::job("spoofs", "one");
    let answer = asked.create(through, &job.collection, &job.object).await?;
    ensure!(answer.status == 403, "eve made a job: {answer}");
    Ok(format!("{tried} spoofing attempts, all answered as without them"))
}
