//! The embedded control plane: `mvp demo` as a user starts it, with three servers in one process.
//! Its memory at rest, then with many objects, then with many watches of a changing object.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;
use testkit::process::{Process, Program, Signal, until};

use super::{EMBEDDED, Run};
use crate::cores::Cores;
use crate::load::{Figures, Kind, Order, Protocol};
use crate::pki::ADMIN;
use crate::plan::Plan;
use crate::targets::Programs;
use crate::usage::{Usage, proportional_bytes};

pub(crate) const CASE: &str = "three servers in one process";
pub(crate) const AT_REST: &str = "at rest";
const OBJECTS: &str = "10,000 objects, lists of all and in pages of 500";
const WATCHES: &str = "and 1,000 watches on 10 connections, 20 writes/s";

const STARTUP: Duration = Duration::from_secs(60);
/// The time until memory use is stable.
const REST: Duration = Duration::from_secs(5);
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

pub(super) async fn run(
    run: &mut Run,
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
) -> anyhow::Result<()> {
    for round in 0..plan.embedded_rounds {
        let log = folder.join(format!("demo-{round}.log"));
        let mut demo = Demo::start(programs, &log).await?;
        run.note(EMBEDDED, CASE, AT_REST, round, Ok(demo.at_rest().await));
        let objects = Kind::Objects { count: 10_000, page: 500 };
        run.note(EMBEDDED, CASE, OBJECTS, round, demo.measure(plan, objects).await);
        let [_, other, _] = demo.servers;
        // A write at one server is an event at another.
        let watches = Kind::Deliveries { server: other, writes_per_second: 20.0 };
        run.note(EMBEDDED, CASE, WATCHES, round, demo.measure(plan, watches).await);
        demo.stop().await?;
    }
    Ok(())
}

/// A running demo.
struct Demo {
    process: Process,
    servers: [SocketAddr; 3],
    /// The folder of its certificates.
    pki: PathBuf,
}

/// What the demo says about itself.
#[derive(Debug, Deserialize)]
struct Introduction {
    kubeconfig: PathBuf,
    servers: [Server; 3],
}

#[derive(Debug, Deserialize)]
struct Server {
    url: String,
}

impl Demo {
    async fn start(programs: &Programs, log: &Path) -> anyhow::Result<Demo> {
        let arguments = ["demo", "--output=json", "--port-base=0"];
        let mut process = Program::new("mvp demo", &programs.mvp).start(log, arguments)?;
        let said = until("the demo says its addresses", STARTUP, async || {
            process.check()?;
            introduction(&std::fs::read_to_string(log)?).map(Some)
        });
        let said = said.await?;
        let pki = said.kubeconfig.parent().context("a kubeconfig without a folder")?.to_owned();
        let [first, second, third] = said.servers.map(|server| address(&server.url));
        Ok(Demo { process, servers: [first?, second?, third?], pki })
    }

    /// Waits, and measures the memory and the CPU of a demo that nobody asks.
    async fn at_rest(&self) -> Figures {
        let processes = [self.process.id()];
        tokio::time::sleep(REST).await;
        let (before, started) = (Usage::of(&processes), Instant::now());
        tokio::time::sleep(REST).await;
        let cpu = Usage::of(&processes).cpu_seconds - before.cpu_seconds;
        let percent = cpu * 100.0 / started.elapsed().as_secs_f64();
        let mut figures = Figures::from([("idle_cpu_percent".to_owned(), percent)]);
        self.add_memory(&mut figures);
        figures
    }

    /// Runs a load, and adds the memory after it.
    async fn measure(&self, plan: &Plan, kind: Kind) -> anyhow::Result<Figures> {
        let [to, ..] = self.servers;
        let order = Order {
            to,
            path: COLLECTION.to_owned(),
            accept: "application/json".to_owned(),
            etag: None,
            protocol: Protocol::Http2,
            connections: 10,
            streams: 100,
            warm_up_seconds: 0.0,
            seconds: plan.embedded_seconds,
            processes: vec![self.process.id()],
            pki: self.pki.clone(),
            user: ADMIN.to_owned(),
            kind,
        };
        let mut figures = order.carry_out(Cores::Any).await?;
        self.add_memory(&mut figures);
        Ok(figures)
    }

    fn add_memory(&self, figures: &mut Figures) {
        let id = self.process.id();
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        figures.insert("rss_mib".to_owned(), mib(Usage::of(&[id]).resident_bytes));
        figures.insert("pss_mib".to_owned(), mib(proportional_bytes(id)));
    }

    /// Asks the demo to end, so that it removes its files.
    async fn stop(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::TERM)?;
        self.process.exited(Duration::from_secs(10)).await.map(drop)
    }
}

/// The introduction in the output so far.
fn introduction(output: &str) -> anyhow::Result<Introduction> {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    let mut found = lines.filter_map(|line| serde_json::from_str(line).ok());
    found.next().context("no introduction yet")
}

fn address(url: &str) -> anyhow::Result<SocketAddr> {
    let address = url.strip_prefix("https://").and_then(|rest| rest.parse().ok());
    address.with_context(|| format!("not an address: {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_says_where_its_servers_and_files_are() {
        let servers: Vec<_> = (1..=3)
            .map(|port| serde_json::json!({"id": "a", "url": format!("https://127.0.0.1:{port}")}))
            .collect();
        let line = serde_json::json!({"servers": servers, "kubeconfig": "/x/kubeconfig"});
        let said = introduction(&format!("a warning\n{line}\n")).expect("an introduction");
        let ports = said.servers.map(|server| address(&server.url).expect("an address").port());
        assert_eq!(ports, [1, 2, 3]);
        assert!(introduction("a warning\n{\"servers\"").is_err());
        assert!(address("http://127.0.0.1:1").is_err());
    }
}
