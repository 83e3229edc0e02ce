//! What the flags switch off: without a CA of peers, or without the feature gate, a server is alone.

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
    let listed = listed(&apis);
    ensure!(listed.iter().all(|name| server.own().contains(name)), "{listed:?}");
    end(cluster).await?;
    Ok(format!("404 for jobs, and {} resources of its own groups", listed.len()))
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
        let gateway = Gateway::start(&files, &cluster, flags).await?;
        seen.push(gateway.look(trial).await?);
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

impl Gateway {
    async fn start(
        files: &Files,
        cluster: &Cluster,
        flags: Vec<String>,
    ) -> anyhow::Result<Gateway> {
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
        let mut gateway = Gateway { process, address };
        gateway.is_ready().await?;
        Ok(gateway)
    }

    async fn is_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + STARTS;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            ensure!(self.process.try_wait()?.is_none(), "mvp serve has ended");
            ensure!(Instant::now() < deadline, "mvp serve does not listen within 15 s");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The status of a request for Jobs, and whether discovery has them. A gateway that starts
    /// answers 503 until it has seen every member.
    async fn look(&self, trial: &Trial) -> anyhow::Result<(StatusCode, bool)> {
        let deadline = Instant::now() + STARTS;
        let admin = Client::admin(&trial.certificates)?;
        let accept = [("accept", AGGREGATED)];
        loop {
            let jobs = admin.send_to(self.address, Method::GET, JOBS, &[], None).await?;
            let apis = admin.send_to(self.address, Method::GET, "/apis", &accept, None).await?;
            let starting = |status| status == StatusCode::SERVICE_UNAVAILABLE;
            if !starting(jobs.status) && !starting(apis.status) {
                let merged = listed(&apis).contains("jobs.v1.batch");
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
