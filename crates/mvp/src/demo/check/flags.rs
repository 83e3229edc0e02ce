//! What the flags switch off: without a CA of peers, or without the feature gate, a server is alone.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use http::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::discovery::{end, listed};
use super::{AGGREGATED, Check, JOBS, Outcome, Trial, check, expect, plans};
use crate::demo::client::Client;
use crate::demo::cluster::{Cluster, Mode};
use crate::demo::files::Files;
use crate::demo::server::Server;

pub(super) async fn all(trial: &Trial) -> Vec<Check> {
    let gateways = gateways(trial).await;
    let told = |place: usize, detail: &str| match &gateways {
        Ok(seen) => seen.judge(place).map(|()| detail.to_owned()),
        Err(error) => Err(anyhow::anyhow!("{error:#}")),
    };
    vec![
        check("no peer CA: local APIs only", no_peer_ca(trial).await),
        check(
            "no --peer-ca-file: mvp serve is local",
            told(1, "404 and local discovery; with the flag 200 and the cluster's"),
        ),
        check(
            "the feature gate switches it off",
            told(2, "UnknownVersionInteroperabilityProxy=false: a plain reverse proxy"),
        ),
    ]
}

/// The layer without TLS towards peers.
async fn no_peer_ca(trial: &Trial) -> Outcome {
    let cluster = trial.another(plans(), Mode::NoPeerCa).await?;
    let server = cluster.at(1)?;
    let answer = trial.admin.get(server, JOBS).await?;
    expect(&answer, StatusCode::NOT_FOUND)?;
    ensure!(answer.is_unrouted(), "{}", answer.message());
    let accept = [("accept", AGGREGATED)];
    let apis = trial.admin.send(server, Method::GET, "/apis", &accept, None).await?;
    expect(&apis, StatusCode::OK)?;
    let listed = listed(&apis);
    ensure!(listed == of_groups(server), "{listed:?}");
    end(cluster).await?;
    Ok(format!("404 for jobs, and {} resources of its own groups", listed.len()))
}

/// What a server serves itself below `/apis`.
fn of_groups(server: &Server) -> BTreeSet<String> {
    let has_group = |name: &String| name.split('.').count() > 2;
    server.own().into_iter().filter(has_group).collect()
}

/// What three gateways beside the same server answered: as usual, without `--peer-ca-file`, and with
/// the gate off.
struct Seen(Vec<(StatusCode, bool)>);

impl Seen {
    fn judge(&self, place: usize) -> anyhow::Result<()> {
        let usual = self.0.first().context("no gateway")?;
        ensure!(*usual == (StatusCode::OK, true), "even as usual: {usual:?}");
        let off = self.0.get(place).context("no gateway")?;
        ensure!(*off == (StatusCode::NOT_FOUND, false), "status and merged discovery: {off:?}");
        Ok(())
    }
}

/// Runs `mvp serve` in front of a server without Jobs, with different flags.
async fn gateways(trial: &Trial) -> anyhow::Result<Seen> {
    let cluster = trial.another(plans(), Mode::Alone).await?;
    let files = Files::for_gateways(&trial.certificates)?;
    let ca = format!("--peer-ca-file={}", files.folder.join("ca.crt").display());
    let peer = format!("--peer=server-a={},kind=bare", cluster.at(0)?.url());
    let gate = "--feature-gates=UnknownVersionInteroperabilityProxy=false".to_owned();
    let mut seen = Vec::new();
    for flags in [vec![ca.clone(), peer.clone()], vec![], vec![ca, peer, gate]] {
        let gateway = Gateway::start(&files, &cluster, &flags).await?;
        seen.push(gateway.look(trial, &of_groups(cluster.at(1)?)).await?);
    }
    end(cluster).await?;
    Ok(Seen(seen))
}

/// A running `mvp serve`, killed when dropped.
struct Gateway {
    process: Child,
    address: SocketAddr,
}

/// The time for a gateway to start.
const STARTS: Duration = Duration::from_secs(15);
/// How often a gateway is started until it gets its port.
const ATTEMPTS: u32 = 3;

impl Gateway {
    /// Starts a gateway. Somebody else may take its port before it does: then it gets another one.
    async fn start(files: &Files, cluster: &Cluster, flags: &[String]) -> anyhow::Result<Gateway> {
        let mut attempts = 1;
        loop {
            let mut gateway = Gateway::spawn(files, cluster, flags).await?;
            match gateway.is_ready().await {
                Ok(()) => return Ok(gateway),
                Err(_) if attempts < ATTEMPTS && gateway.has_ended()? => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn spawn(files: &Files, cluster: &Cluster, flags: &[String]) -> anyhow::Result<Gateway> {
        // The port is free again when the gateway takes it.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let file =
            |flag: &str, name: &str| format!("--{flag}={}", files.folder.join(name).display());
        let program: PathBuf = std::env::current_exe().context("cannot find this program")?;
        let process = Command::new(program)
            .arg("serve")
            .args([
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={}", address.port()),
                "--admin-bind-address=127.0.0.1:0".to_owned(),
                "--admin-socket=".to_owned(),
                "--membership=static".to_owned(),
                "--server-id=server-b".to_owned(),
                "--workers=1".to_owned(),
                format!("--local-server={}", cluster.at(1)?.url()),
                file("local-ca-file", "ca.crt"),
                file("client-ca-file", "ca.crt"),
                file("requestheader-client-ca-file", "front-proxy-ca.crt"),
                "--requestheader-allowed-names=front-proxy-client".to_owned(),
                file("tls-cert-file", "server.crt"),
                file("tls-private-key-file", "server.key"),
                file("proxy-client-cert-file", "proxy.crt"),
                file("proxy-client-key-file", "proxy.key"),
            ])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start mvp serve")?;
        Ok(Gateway { process, address })
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    async fn is_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + STARTS;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            ensure!(!self.has_ended()?, "mvp serve has ended");
            ensure!(Instant::now() < deadline, "mvp serve does not listen within 15 s");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The status of a request for Jobs, and whether discovery has them and `own`, which its server
    /// serves, or `own` alone. A gateway that starts answers 503 until it has seen every member.
    async fn look(
        &self,
        trial: &Trial,
        own: &BTreeSet<String>,
    ) -> anyhow::Result<(StatusCode, bool)> {
        let deadline = Instant::now() + STARTS;
        let admin = Client::admin(&trial.certificates)?;
        let accept = [("accept", AGGREGATED)];
        loop {
            let jobs = admin.send_to(self.address, Method::GET, JOBS, &[], None).await?;
            let apis = admin.send_to(self.address, Method::GET, "/apis", &accept, None).await?;
            let starting = |status| status == StatusCode::SERVICE_UNAVAILABLE;
            if !starting(jobs.status) && !starting(apis.status) {
                expect(&apis, StatusCode::OK)?;
                let listed = listed(&apis);
                let merged = listed.contains("jobs.v1.batch") && listed.is_superset(own);
                ensure!(merged || listed == *own, "neither merged nor local: {listed:?}");
                return Ok((jobs.status, merged));
            }
            ensure!(Instant::now() < deadline, "mvp serve answers 503 for 15 s");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
