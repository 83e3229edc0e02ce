//! A control plane under test: etcd, kube-apiservers, and a gateway beside each. Entry item:
//! [`Cluster::start`].

mod cable;
mod place;
mod server;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;

pub(crate) use cable::{Cable, ISOLATED};
pub(crate) use server::{Server, ServerSpec};

use crate::client::Client;
use crate::kubectl::{Kubectl, kubeconfig};
use crate::programs::Programs;
use place::Place;
use testkit::kubernetes::EtcdMember;
use testkit::pki::Pki;
use testkit::process::{Process, Program, until};

/// The ports of one more gateway beside a server.
const ANOTHER_PORT: u16 = 7443;
const ANOTHER_ADMIN_PORT: u16 = 7480;

/// The time limit until a server is ready.
const STARTUP: Duration = Duration::from_secs(180);

/// The configuration of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSpec {
    pub(crate) name: &'static str,
    pub(crate) servers: Vec<ServerSpec>,
    /// Whether kube-apiservers run Kubernetes' own proxy.
    pub(crate) native_proxy: bool,
    /// Whether the last server is on a host of its own, whose network can be cut.
    pub(crate) cable: bool,
}

/// A running control plane.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    pub(crate) programs: Programs,
    pub(crate) pki: Pki,
    pub(crate) admin: Client,
    /// The network connection of the last server, if it can be cut.
    pub(crate) cable: Option<Cable>,
    /// Whether gateways get their peers by flags; otherwise they find each other by Leases.
    listed: bool,
    folder: PathBuf,
    place: Place,
    etcd: Process,
}

impl Cluster {
    /// Starts a cluster and waits until every server and every gateway is ready.
    pub(crate) async fn start(
        spec: &ClusterSpec,
        programs: &Programs,
        folder: &Path,
    ) -> anyhow::Result<Cluster> {
        std::fs::create_dir_all(folder)?;
        let place = if spec.cable { Place::on_a_cable() } else { Place::take()? };
        let mut addresses = vec![place.etcd().ip()];
        addresses.extend((0..spec.servers.len()).map(|index| place.server(index)));
        let cable = match addresses.split_last().filter(|_| spec.cable) {
            Some((far, near)) => Some(Cable::lay(near, *far, folder).await?),
            None => None,
        };
        addresses.extend((0..spec.servers.len()).map(|index| place.behind(index)));
        addresses.extend((0..spec.servers.len()).map(Place::second));
        let pki = Pki::new(&folder.join("pki"), &addresses)?;
        let admin = pki.user("admin", &["system:masters"])?;
        let admin = Client::with_certificate(&pki.files().ca(), &admin)?;
        write_audit_policy(folder)?;

        let mut cluster = Cluster {
            servers: Vec::new(),
            etcd: start_etcd(programs, folder, &place)?,
            programs: programs.clone(),
            folder: folder.to_owned(),
            pki,
            admin,
            cable,
            listed: true,
            place,
        };
        for (index, server) in spec.servers.iter().enumerate() {
            let place = &cluster.place;
            let server = Server::new(server.clone(), place.server(index), place.behind(index));
            cluster.servers.push(server);
        }
        if let (Some(cable), Some(last)) = (&cluster.cable, cluster.servers.last_mut()) {
            last.move_to(cable.namespace());
        }
        for server in cluster.servers.iter_mut().filter(|_| spec.native_proxy) {
            server.join_native_proxy();
        }
        cluster.heal().await?;
        Ok(cluster)
    }

    /// Starts every process that is not running, and waits until all are ready.
    pub(crate) async fn heal(&mut self) -> anyhow::Result<()> {
        self.etcd.check()?;
        for index in 0..self.servers.len() {
            self.start_server(index)?;
        }
        for server in &mut self.servers {
            server.ready(&self.admin, STARTUP).await?;
        }
        for index in 0..self.servers.len() {
            self.start_gateway(index)?;
        }
        for server in self.servers.iter_mut().filter(|server| !server.spec.bare) {
            server.gateway_ready(STARTUP).await?;
        }
        self.agreed().await
    }

    /// Starts a kube-apiserver unless it is running.
    pub(crate) fn start_server(&mut self, index: usize) -> anyhow::Result<()> {
        let server = self.servers.get_mut(index).context("no such server")?;
        let folder = &self.folder;
        server.start(&self.programs, self.pki.files(), folder, self.place.etcd())
    }

    /// Starts a gateway unless it is running.
    pub(crate) fn start_gateway(&mut self, index: usize) -> anyhow::Result<()> {
        let all = self.listed.then(|| self.members());
        let server = self.servers.get_mut(index).context("no such server")?;
        server.start_gateway(&self.programs, self.pki.files(), &self.folder, all.as_deref())
    }

    /// Sets whether gateways get their peers by flags, from their next start on.
    pub(crate) fn list_members(&mut self, listed: bool) {
        if self.listed != listed {
            self.servers.iter_mut().for_each(Server::kill_gateway);
        }
        self.listed = listed;
    }

    /// Starts one more gateway beside a server, with changed flags.
    pub(crate) fn another_gateway(
        &self,
        beside: &str,
        change: impl FnOnce(&mut Vec<String>),
    ) -> anyhow::Result<(Process, SocketAddr)> {
        let server = self.server(beside)?;
        let mut arguments = self.another_arguments(beside)?;
        change(&mut arguments);
        let log = self.folder.join(format!("{beside}.another.mvp.log"));
        let process = Program::new("mvp-another", &self.programs.mvp)
            .with_host_name()
            .start(&log, arguments)?;
        Ok((process, SocketAddr::new(server.through().ip(), ANOTHER_PORT)))
    }

    /// The arguments of [`another_gateway`](Self::another_gateway): `serve` and its flags.
    pub(crate) fn another_arguments(&self, beside: &str) -> anyhow::Result<Vec<String>> {
        let (pki, members) = (self.pki.files(), self.members());
        let server = self.server(beside)?;
        let mut arguments =
            server.gateway_arguments(pki, Some(&members), ANOTHER_PORT, ANOTHER_ADMIN_PORT);
        arguments.retain(|flag| !flag.starts_with("--admin-socket="));
        arguments.push(format!("--admin-socket={}", self.another_socket().display()));
        Ok(arguments)
    }

    /// The admin socket of [`another_gateway`](Self::another_gateway).
    pub(crate) fn another_socket(&self) -> PathBuf {
        self.folder.join("another.sock")
    }

    fn members(&self) -> Vec<(String, String)> {
        self.servers.iter().map(|server| (server.id(), server.as_peer())).collect()
    }

    /// Waits until every gateway knows every other, and all return the same discovery.
    pub(crate) async fn agreed(&self) -> anyhow::Result<()> {
        until("the gateways know each other", Duration::from_secs(30), async || {
            for (server, other) in self.pairs() {
                let known = server.knows(other.through()).await?;
                let present = known.get("present").is_some_and(|present| present == true);
                ensure!(present, "{} of {}: {known}", server.name(), other.name());
            }
            Ok(Some(()))
        })
        .await?;
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        until("the gateways agree on /apis", Duration::from_secs(30), async || {
            let mut seen = Vec::new();
            for server in self.servers.iter().filter(|server| !server.spec.bare) {
                let answer = self.admin.get_as(server.through(), "/apis", accept).await?;
                answer.expect(200)?;
                seen.push(answer.body);
            }
            Ok(seen.windows(2).all(|pair| matches!(pair, [a, b] if a == b)).then_some(()))
        })
        .await
    }

    /// Every pair of gateways.
    fn pairs(&self) -> impl Iterator<Item = (&Server, &Server)> {
        let gateways = || self.servers.iter().filter(|server| !server.spec.bare);
        let others = move |one: &Server| {
            let name = one.name();
            gateways().filter(move |other| other.name() != name)
        };
        gateways().flat_map(move |one| others(one).map(move |other| (one, other)))
    }

    /// The server of that name.
    pub(crate) fn server(&self, name: &str) -> anyhow::Result<&Server> {
        self.servers.iter().find(|server| server.name() == name).context("no such server")
    }

    /// The index of the server of that name.
    pub(crate) fn index(&self, name: &str) -> anyhow::Result<usize> {
        let found = self.servers.iter().position(|server| server.name() == name);
        found.context("no such server")
    }

    /// The server of that name, mutable.
    pub(crate) fn server_mut(&mut self, name: &str) -> anyhow::Result<&mut Server> {
        self.servers.iter_mut().find(|server| server.name() == name).context("no such server")
    }

    /// A source address for clients, which no server has.
    pub(crate) fn client_address(&self) -> IpAddr {
        self.place.client()
    }

    /// An address in the server certificates that no server has.
    pub(crate) fn spare_address(&self) -> IpAddr {
        self.place.etcd().ip()
    }

    /// An IPv6 address in the server certificates that no interface has yet.
    pub(crate) fn second_address(&self, index: usize) -> IpAddr {
        Place::second(index)
    }

    /// The address for an extension server.
    pub(crate) fn extension_address(&self) -> SocketAddr {
        self.place.extension()
    }

    /// A client with a certificate.
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> anyhow::Result<Client> {
        Client::with_certificate(&self.pki.files().ca(), &self.pki.user(name, groups)?)
    }

    /// A client without credentials.
    pub(crate) fn nobody(&self) -> anyhow::Result<Client> {
        Client::nobody(&self.pki.files().ca())
    }

    /// kubectl as admin, for the server at that address.
    pub(crate) fn kubectl(&self, to: SocketAddr) -> anyhow::Result<Kubectl> {
        Kubectl::new(&self.programs.kubectl(), &self.kubeconfig("admin", to)?, &self.folder)
    }

    /// Writes the kubeconfig of a user that [`Pki::user`] created.
    pub(crate) fn kubeconfig(&self, user: &str, to: SocketAddr) -> anyhow::Result<PathBuf> {
        kubeconfig(self.pki.files(), user, to, &self.folder)
    }

    /// Starts kube-controller-manager with one controller, for the server at that address. The name
    /// is for its log.
    pub(crate) fn controller(
        &self,
        controller: &str,
        name: &str,
        to: SocketAddr,
    ) -> anyhow::Result<Process> {
        self.controllers(controller, name, to, &[])
    }

    fn controllers(
        &self,
        which: &str,
        name: &str,
        to: SocketAddr,
        flags: &[String],
    ) -> anyhow::Result<Process> {
        let user = "system:kube-controller-manager";
        self.pki.user(user, &["system:masters"])?;
        let mut arguments = vec![
            format!("--kubeconfig={}", self.kubeconfig(user, to)?.display()),
            format!("--controllers={which}"),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--v=2".to_owned(),
        ];
        arguments.extend_from_slice(flags);
        let log = self.folder.join(format!("{name}.kube-controller-manager.log"));
        Program::new(name, &self.programs.kube_controller_manager())
            .with_host_name()
            .start(&log, arguments)
    }

    /// Starts kube-controller-manager with every controller except the one that watches kubelets, for
    /// the server at that address.
    pub(crate) fn all_controllers(&self, name: &str, to: SocketAddr) -> anyhow::Result<Process> {
        let ca = format!("--root-ca-file={}", self.pki.files().ca().display());
        self.controllers("*,-node-lifecycle-controller", name, to, &[ca])
    }

    /// Creates a namespace.
    pub(crate) async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let server = self.servers.first().context("no server")?;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let answer = self.admin.create(server.direct(), "/api/v1/namespaces", &object).await?;
        ensure!(matches!(answer.status.as_u16(), 201 | 409), "cannot make {name}: {answer}");
        Ok(())
    }

    /// The URL of etcd.
    pub(crate) fn etcd_url(&self) -> String {
        format!("http://{}", self.place.etcd())
    }

    pub(crate) fn etcd(&self) -> &Process {
        &self.etcd
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn start_etcd(programs: &Programs, folder: &Path, place: &Place) -> anyhow::Result<Process> {
    let member = EtcdMember {
        name: "etcd",
        data: &folder.join("etcd"),
        clients: &format!("http://{}", place.etcd()),
        peers: &format!("http://{}", place.etcd_peers()),
        cluster: "",
    };
    Program::new("etcd", &programs.etcd()).start(&folder.join("etcd.log"), member.flags())
}

/// Logs every resource request with its user, source address and impersonated user.
fn write_audit_policy(folder: &Path) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager"]},
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "Metadata"},
        ],
    });
    Ok(std::fs::write(folder.join("audit-policy.json"), policy.to_string())?)
}
