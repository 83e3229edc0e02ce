//! `mvp skew`, checked against legacy discovery: one document for each version, from each server by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::process::until;
use tokio::process::Command;

use crate::cases::discovery::{items, text};
use crate::cases::membership::keep_endpoints;
use crate::client::plain;
use crate::cluster::Cluster;

/// Resources and subresources as `GROUP/VERSION/NAME`, with their verbs.
type Served = BTreeMap<String, BTreeSet<String>>;

/// The differences, by the gateway of a server and by kubectl; what is lost without a server.
pub(super) async fn differences(cluster: &mut Cluster) -> anyhow::Result<String> {
    let mut served = BTreeMap::new();
    for server in &cluster.servers {
        served.insert(server.name(), legacy(cluster, server.name()).await?);
    }
    let expected = differ(&served);
    ensure!(expected.iter().any(|api| api == "batch/v1/jobs"), "{expected:?}");

    // The members that a gateway knows. Their IDs are not their names.
    let admin = cluster.server("b")?.gateway_admin().to_string();
    // A member that a case before this one stopped may be back since a moment ago.
    let known = until("every member answers the gateway", Duration::from_secs(30), async || {
        let (code, known) = skew(&cluster.programs.mvp, &["--admin-address", &admin]).await?;
        Ok((code == 0).then_some(known))
    })
    .await?;
    same(&expected, &names(&known, "/apis")).context("through the gateway")?;

    // kubectl, with a context for each server.
    let kubectl = Plugin::new(cluster)?;
    let config = contexts(cluster)?;
    let config = config.to_str().context("a path")?;
    let (code, found) = kubectl.skew(&["--kubeconfig", config, "--all-contexts"]).await?;
    ensure!(code == 0, "exit code {code}: {found}");
    same(&expected, &names(&found, "/apis")).context("by kubectl")?;
    for api in items(&found, "/apis") {
        for (server, served) in &served {
            let name = name(api);
            let told = api.pointer(&format!("/servers/{server}")).context("no column")?;
            let verbs = told
                .as_array()
                .map(|verbs| verbs.iter().filter_map(Value::as_str).map(str::to_owned).collect());
            ensure!(verbs == served.get(&name).cloned(), "{name} of {server}: {told}");
        }
    }

    let lost = without_a(cluster, &kubectl, config, &served).await?;
    let upgrade = ["--kubeconfig", config, "--context", "b", "--with", "1.36"];
    let (_, next) = kubectl.skew(&upgrade).await?;
    next_release(&served, &next)?;
    Ok(format!(
        "{} APIs differ between three servers, also for kubectl; without a, {lost}",
        expected.len()
    ))
}

/// What only a serves, with its objects and its callers.
async fn without_a(
    cluster: &Cluster,
    kubectl: &Plugin,
    config: &str,
    served: &BTreeMap<&str, Served>,
) -> anyhow::Result<String> {
    let others: Vec<&Served> =
        served.iter().filter(|(name, _)| **name != "a").map(|(_, served)| served).collect();
    let own = served.get("a").context("no a")?;
    let only: BTreeSet<String> = own
        .keys()
        .filter(|api| {
            !api_parts(api).1.contains('/') && others.iter().all(|o| !o.contains_key(*api))
        })
        .cloned()
        .collect();
    // One of them has a caller, whom a gateway with an admin socket records.
    let called = "networking.k8s.io/v1beta1/servicecidrs";
    let (mut gateway, through) = cluster.another_gateway("a", |_| ())?;
    until("the gateway is ready", Duration::from_secs(30), async || {
        gateway.check()?;
        let ready = plain(SocketAddr::new(through.ip(), 7480), "/readyz").await?;
        Ok(ready.status.is_success().then_some(()))
    })
    .await?;
    cluster.admin.get(through, &format!("/apis/{called}")).await?.expect(200)?;
    let socket = format!("--admin-socket={}", cluster.another_socket().display());
    let flags = ["--kubeconfig", config, "--all-contexts", "--without", "a", &socket];
    let (code, lost) = kubectl.skew(&flags).await?;
    ensure!(code == 3, "exit code {code}: {lost}");
    let whole = |api: &&Value| api["subresource"].is_null() && api["verbs"].is_null();
    let found: Vec<&Value> = items(&lost, "/without/lost").filter(whole).collect();
    same(&only, &found.iter().map(|api| name(api)).collect()).context("without a")?;
    let mut counted = 0;
    for api in found {
        let name = name(api);
        if !own.get(&name).is_some_and(|verbs| verbs.contains("list")) {
            continue;
        }
        let (version, resource) = api_parts(&name);
        let path = format!("/apis/{version}/{resource}");
        let list = cluster.admin.get(cluster.server("a")?.direct(), &path).await?.expect(200)?;
        let objects = items(&list, "/items").count();
        ensure!(api["objects"] == json!(objects), "{objects} objects of {name}: {api}");
        counted += objects;
    }
    ensure!(counted > 0, "no object was counted");
    let callers = items(&lost, "/without/lost").find(|api| name(api) == called);
    let callers = callers.and_then(|api| api.pointer("/callers/0")).and_then(Value::as_str);
    ensure!(callers.is_some_and(|caller| caller.starts_with("admin")), "{callers:?}: {lost}");
    Ok(format!("{} are lost, with {counted} objects and a caller", only.len()))
}

/// What 1.36 changes for b, a 1.34: the two servers of 1.36 have it or not. a has every API but
/// autoscaling/v2, c those of a server without flags but policy/v1. b has batch/v1 switched off.
fn next_release(served: &BTreeMap<&str, Served>, next: &Value) -> anyhow::Result<()> {
    let of = |name: &str| served.get(name).context("no such server");
    let (a, b, c) = (of("a")?, of("b")?, of("c")?);
    let is_off = |api: &str, version: &str| api_parts(api).0 == version;
    let has_parent = |served: &Served, api: &str| {
        let (version, resource) = api_parts(api);
        resource
            .split_once('/')
            .is_none_or(|(parent, _)| served.contains_key(&format!("{version}/{parent}")))
    };
    let new = c.keys().filter(|api| !b.contains_key(*api) && !is_off(api, "batch/v1"));
    let new = new.filter(|api| has_parent(b, api));
    same(&new.cloned().collect(), &names(next, "/with/added")).context("added by 1.36")?;
    let gone = b.keys().filter(|api| !a.contains_key(*api) && !is_off(api, "autoscaling/v2"));
    let gone = gone.filter(|api| has_parent(a, api));
    same(&gone.cloned().collect(), &names(next, "/with/removed")).context("removed by 1.36")
}

/// One context, all servers.
pub(super) async fn endpoints(cluster: &mut Cluster) -> anyhow::Result<String> {
    keep_endpoints(cluster).await?;
    let config = cluster.kubeconfig("admin", cluster.server("b")?.direct())?;
    let config = config.to_str().context("a path")?;
    let (code, found) = Plugin::new(cluster)?.skew(&["--kubeconfig", config]).await?;
    ensure!(code == 0, "exit code {code}: {found}");
    let asked: BTreeSet<&str> =
        items(&found, "/servers").map(|server| text(server, "/name")).collect();
    let addresses: Vec<String> =
        cluster.servers.iter().map(|server| server.direct().to_string()).collect();
    ensure!(
        asked == addresses.iter().map(String::as_str).collect(),
        "{asked:?}, not {addresses:?}"
    );
    Ok(format!("{} endpoints are found and asked", asked.len()))
}

/// `GROUP/VERSION`, and the resource.
fn api_parts(name: &str) -> (String, String) {
    let mut parts = name.splitn(3, '/');
    let mut next = || parts.next().unwrap_or_default();
    (format!("{}/{}", next(), next()), next().to_owned())
}

/// What differs. A missing resource stands for its subresources.
fn differ(served: &BTreeMap<&str, Served>) -> BTreeSet<String> {
    let all: BTreeSet<&String> = served.values().flat_map(BTreeMap::keys).collect();
    let differs = |api: &&&String| {
        let (version, resource) = api_parts(api);
        let parent = resource.split('/').next().unwrap_or_default();
        let parent = format!("{version}/{parent}");
        let able = served.values().filter(|it| parent == ***api || it.contains_key(&parent));
        able.map(|it| it.get(**api)).collect::<BTreeSet<_>>().len() > 1
    };
    all.iter().filter(differs).map(|api| (**api).clone()).collect()
}

/// What a server serves, from the legacy document of every version whose path any server has. The lists
/// of groups at `/apis` come from shared APIServices, which servers of different versions change.
async fn legacy(cluster: &Cluster, server: &str) -> anyhow::Result<Served> {
    let to = cluster.server(server)?.direct();
    let mut versions = BTreeSet::from(["/api/v1".to_owned()]);
    for server in &cluster.servers {
        let root = cluster.admin.get(server.direct(), "/").await?.expect(200)?;
        let paths = items(&root, "/paths").filter_map(Value::as_str);
        let is_version = |path: &&str| path.starts_with("/apis/") && path.split('/').count() == 4;
        versions.extend(paths.filter(is_version).map(str::to_owned));
    }
    let mut served = Served::new();
    for path in versions {
        let answer = cluster.admin.get(to, &path).await?;
        if answer.status == 404 {
            continue;
        }
        let prefix = path.strip_prefix("/apis/").unwrap_or("/v1").to_owned();
        for resource in items(&answer.expect(200)?, "/resources") {
            let verbs = items(resource, "/verbs").filter_map(Value::as_str).map(str::to_owned);
            served.insert(format!("{prefix}/{}", text(resource, "/name")), verbs.collect());
        }
    }
    Ok(served)
}

fn same(expected: &BTreeSet<String>, found: &BTreeSet<String>) -> anyhow::Result<()> {
    let different: Vec<&String> = expected.symmetric_difference(found).collect();
    ensure!(different.is_empty(), "{different:?} of {expected:?}");
    Ok(())
}

fn name(api: &Value) -> String {
    let (group, version) = (text(api, "/group"), text(api, "/version"));
    let part = api.pointer("/subresource").and_then(Value::as_str);
    let part = part.map(|part| format!("/{part}")).unwrap_or_default();
    format!("{group}/{version}/{}{part}", text(api, "/resource"))
}

fn names(document: &Value, pointer: &str) -> BTreeSet<String> {
    items(document, pointer).map(name).collect()
}

/// A kubeconfig with a context for each server.
fn contexts(cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let file = cluster.kubeconfig("admin", cluster.server("a")?.direct())?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let list = |of: &dyn Fn(&crate::cluster::Server) -> Value| {
        cluster.servers.iter().map(of).collect::<Vec<_>>()
    };
    let clusters = list(&|server| {
        json!({"name": server.name(), "cluster": {
            "server": format!("https://{}", server.direct()),
            "certificate-authority": cluster.pki.files().ca(),
        }})
    });
    let contexts = list(
        &|server| json!({"name": server.name(), "context": {"cluster": server.name(), "user": "it"}}),
    );
    let fields = config.as_object_mut().context("no object")?;
    fields.insert("clusters".to_owned(), json!(clusters));
    fields.insert("contexts".to_owned(), json!(contexts));
    let path = cluster.folder().join("contexts.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// kubectl, which finds `mvp` as its plugin.
struct Plugin {
    kubectl: PathBuf,
    folder: tempfile::TempDir,
}

impl Plugin {
    fn new(cluster: &Cluster) -> anyhow::Result<Plugin> {
        let folder = tempfile::tempdir_in(cluster.folder())?;
        std::os::unix::fs::symlink(&cluster.programs.mvp, folder.path().join("kubectl-mvp"))?;
        Ok(Plugin { kubectl: cluster.programs.kubectl(), folder })
    }

    async fn skew(&self, flags: &[&str]) -> anyhow::Result<(i32, Value)> {
        let mut command = Command::new(&self.kubectl);
        command.env("PATH", self.folder.path()).env("HOME", self.folder.path());
        run(command.arg("mvp"), flags).await
    }
}

async fn skew(mvp: &Path, flags: &[&str]) -> anyhow::Result<(i32, Value)> {
    run(&mut Command::new(mvp), flags).await
}

/// The exit code and the JSON of `skew`.
async fn run(command: &mut Command, flags: &[&str]) -> anyhow::Result<(i32, Value)> {
    let output = command.arg("skew").args(flags).args(["-o", "json"]).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let found = serde_json::from_slice(&output.stdout).with_context(|| errors.to_string())?;
    Ok((output.status.code().context("a signal ended it")?, found))
}
