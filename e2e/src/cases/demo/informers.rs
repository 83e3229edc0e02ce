//! Informers of real clients at `mvp demo` during a rolling upgrade of all its servers. They watch
//! Jobs through a server that lacks them: each sees every change once and in order, and its store
//! ends as the server's list.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use futures_util::StreamExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Config};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{DEADLINE, Demo};
use crate::cases::objects;
use crate::cluster::Cluster;
use crate::programs::{node_folder, python_folder};

/// The server that lacks Jobs until its upgrade. Informers watch through it.
const WATCHED: &str = "server-b";
const NAMESPACE: &str = "default";

pub(super) async fn kube_rs(cluster: &mut Cluster) -> anyhow::Result<String> {
    let demo = Demo::start(cluster).await?;
    let api = jobs(&demo, WATCHED).await?;
    follow(demo, Informer::Here(Here::start(api)), "kube-rs").await
}

pub(super) async fn python(cluster: &mut Cluster) -> anyhow::Result<String> {
    let demo = Demo::start(cluster).await?;
    let python = cluster.programs.clients.python()?;
    let informer = There::start(python, &python_folder().join("informer.py"), &demo)?;
    follow(demo, Informer::There(Box::new(informer)), "the Python client").await
}

pub(super) async fn node(cluster: &mut Cluster) -> anyhow::Result<String> {
    let demo = Demo::start(cluster).await?;
    // Modules are found beside the program.
    let modules = cluster.programs.clients.node()?;
    let program = modules.with_file_name("informer.js");
    std::fs::copy(node_folder().join("informer.js"), &program)?;
    let informer = There::start(Path::new("node"), &program, &demo)?;
    follow(demo, Informer::There(Box::new(informer)), "client-node").await
}

/// Upgrades all servers of a demo while Jobs change, and compares what an informer saw.
async fn follow(mut demo: Demo, mut informer: Informer, client: &str) -> anyhow::Result<String> {
    let mut writer = Writer::default();
    // The first one alone: an informer that lists later sees it, but not how it came to be.
    writer.create(&jobs(&demo, "server-a").await?).await?;
    informer.wait_for(&writer.expected).await.context("before the upgrade")?;
    for (upgraded, other) in
        [("server-a", "server-c"), ("server-b", "server-c"), ("server-c", "server-a")]
    {
        let api = jobs(&demo, other).await?;
        writer.change(&api).await?;
        demo.press_enter()?;
        // Changes while the server is away, and while its clients return.
        loop {
            writer.change(&api).await?;
            if let Some(restarted) = demo.restarted()? {
                ensure!(restarted == upgraded, "{restarted} restarted, not {upgraded}");
                break;
            }
        }
        writer.change(&api).await?;
        let what = || format!("after the upgrade of {upgraded}");
        informer.wait_for(&writer.expected).await.with_context(what)?;
    }
    let api = jobs(&demo, WATCHED).await?;
    let listed = api.list(&ListParams::default()).await?;
    let listed: BTreeMap<_, _> = listed.items.into_iter().filter_map(named).collect();
    let store = informer.end().await?;
    ensure!(store == listed, "the store is {store:?}, the server lists {listed:?}");
    demo.stop().await?;
    let (changes, left) = (writer.expected.len(), listed.len());
    Ok(format!(
        "{client}: {changes} changes during three upgrades, each seen once and in order; {left} Jobs \
         in its store"
    ))
}

/// A change of a Job, as an informer shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Seen {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    /// The resource version; empty for a removal.
    version: String,
}

impl Seen {
    /// Clients show different versions of a removed object.
    fn comparable(mut self) -> Seen {
        if self.kind == "DELETED" {
            self.version.clear();
        }
        self
    }
}

/// Changes Jobs, one after the other, and records what a watch must show.
#[derive(Default)]
struct Writer {
    count: usize,
    expected: Vec<Seen>,
}

impl Writer {
    /// Creates a Job, changes it and its predecessor, and deletes the one before that.
    async fn change(&mut self, api: &Api<DynamicObject>) -> anyhow::Result<()> {
        let newest = self.create(api).await?;
        for number in [Some(newest), newest.checked_sub(1)].into_iter().flatten() {
            let patch =
                json!({"metadata": {"labels": {"change": self.expected.len().to_string()}}});
            let patch = Patch::Merge(&patch);
            let changed = api.patch(&name(number), &PatchParams::default(), &patch).await?;
            self.record("MODIFIED", changed);
        }
        if let Some(number) = newest.checked_sub(2) {
            api.delete(&name(number), &DeleteParams::background()).await?;
            let (kind, version) = ("DELETED".to_owned(), String::new());
            self.expected.push(Seen { kind, name: name(number), version });
        }
        Ok(())
    }

    /// Creates a Job, and returns its number.
    async fn create(&mut self, api: &Api<DynamicObject>) -> anyhow::Result<usize> {
        let number = self.count;
        let object = serde_json::from_value(objects::job(NAMESPACE, &name(number)).object)?;
        let made = api.create(&PostParams::default(), &object).await?;
        self.record("ADDED", made);
        self.count += 1;
        Ok(number)
    }

    fn record(&mut self, kind: &str, object: DynamicObject) {
        let (name, version) = named(object).unwrap_or_default();
        self.expected.push(Seen { kind: kind.to_owned(), name, version });
    }
}

fn name(number: usize) -> String {
    format!("job-{number}")
}

/// An informer under test.
enum Informer {
    Here(Here),
    There(Box<There>),
}

impl Informer {
    /// Waits until it has seen these changes, and nothing else.
    async fn wait_for(&mut self, expected: &[Seen]) -> anyhow::Result<()> {
        let waiting = async {
            while self.seen().len() < expected.len() {
                let next = match self {
                    Informer::Here(here) => here.events.recv().await.context("it ended")?,
                    Informer::There(there) => serde_json::from_str(&there.line().await?)?,
                };
                self.seen().push(next.comparable());
            }
            anyhow::Ok(())
        };
        let outcome = timeout(DEADLINE, waiting).await;
        let seen = self.seen();
        let same =
            seen.iter().zip(expected).take_while(|(seen, expected)| seen == expected).count();
        ensure!(
            same == expected.len() && seen.len() == same,
            "after {same} of {} changes, it saw {:?} and not {:?} ({outcome:?})",
            expected.len(),
            seen.get(same),
            expected.get(same)
        );
        Ok(())
    }

    fn seen(&mut self) -> &mut Vec<Seen> {
        match self {
            Informer::Here(here) => &mut here.seen,
            Informer::There(there) => &mut there.seen,
        }
    }

    /// Its store at the end: names and versions. There is no further event.
    async fn end(self) -> anyhow::Result<BTreeMap<String, String>> {
        match self {
            Informer::Here(mut here) => {
                here.task.abort();
                ensure!(here.events.try_recv().is_err(), "an event that nothing caused");
                let objects = here.store.state();
                Ok(objects.iter().filter_map(|job| named(DynamicObject::clone(job))).collect())
            }
            Informer::There(mut there) => {
                drop(there.process.stdin.take());
                #[derive(Deserialize)]
                struct Store {
                    store: BTreeMap<String, String>,
                }
                let line = there.line().await?;
                let said: Result<Store, _> = serde_json::from_str(&line);
                Ok(said.with_context(|| format!("not its store: {line}"))?.store)
            }
        }
    }
}

/// A reflector of kube-rs in this process.
struct Here {
    store: reflector::Store<DynamicObject>,
    events: mpsc::UnboundedReceiver<Seen>,
    task: JoinHandle<()>,
    seen: Vec<Seen>,
}

impl Here {
    fn start(api: Api<DynamicObject>) -> Here {
        let (sender, events) = mpsc::unbounded_channel();
        let writer = reflector::store::Writer::new(resource());
        let store = writer.as_reader();
        let events_of = watcher(api, watcher::Config::default()).default_backoff();
        let mut stream = reflector(writer, events_of).boxed();
        let task = tokio::spawn(async move {
            let mut known = std::collections::BTreeSet::new();
            while let Some(event) = stream.next().await {
                use watcher::Event::{Apply, Delete, InitApply};
                let (object, deleted) = match event {
                    Ok(Apply(object) | InitApply(object)) => (object, false),
                    Ok(Delete(object)) => (object, true),
                    // It tries again by itself.
                    Ok(_) | Err(_) => continue,
                };
                let Some((name, version)) = named(object) else { continue };
                let kind = match (deleted, known.contains(&name)) {
                    (true, _) => "DELETED",
                    (false, true) => "MODIFIED",
                    (false, false) => "ADDED",
                };
                if deleted {
                    known.remove(&name)
                } else {
                    known.insert(name.clone())
                };
                let _ = sender.send(Seen { kind: kind.to_owned(), name, version });
            }
        });
        Here { store, events, task, seen: Vec::new() }
    }
}

/// An informer in a program of its own.
struct There {
    process: Child,
    lines: BufReader<ChildStdout>,
    seen: Vec<Seen>,
}

impl There {
    fn start(interpreter: &Path, program: &Path, demo: &Demo) -> anyhow::Result<There> {
        let mut process = Command::new(interpreter)
            .arg(program)
            .arg(&demo.kubeconfig)
            .args([WATCHED, NAMESPACE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {interpreter:?}"))?;
        let lines = BufReader::new(process.stdout.take().context("no standard output")?);
        Ok(There { process, lines, seen: Vec::new() })
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        match timeout(DEADLINE, self.lines.read_line(&mut line)).await.context("it is silent")?? {
            0 => bail!("the informer ended: {:?}", self.process.wait().await?),
            _ => Ok(line),
        }
    }
}

/// The Jobs of the demo through one of its servers.
async fn jobs(demo: &Demo, server: &str) -> anyhow::Result<Api<DynamicObject>> {
    let kubeconfig = Kubeconfig::read_from(&demo.kubeconfig)?;
    let options =
        KubeConfigOptions { context: Some(server.to_owned()), ..KubeConfigOptions::default() };
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?;
    Ok(Api::namespaced_with(client, NAMESPACE, &resource()))
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"))
}

fn named(object: DynamicObject) -> Option<(String, String)> {
    Some((object.metadata.name?, object.metadata.resource_version?))
}
