//! Certificates and CAs are replaced under load, and nothing is dropped.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use mvp_apiserver::Storage;
use mvp_net::{CertificateDer, ClientTls, ClientTrust, ServerTls};
use testkit::certificates::{Ca, FRONT_PROXY_NAME, Pair, SERVER_NAME, cn};
use testkit::process::Signal;
use tokio::net::TcpStream;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, make, serve};
use crate::signals::ends;
use crate::support::client::Client;
use crate::support::double::Double;
use crate::support::eventually;
use crate::support::folder::Folder;
use crate::support::load::Load;
use crate::support::process::{Gateway, free_address};

/// A gateway with files that can be changed, its server, and a bare peer.
struct World {
    servers: Ca,
    clients: Ca,
    proxies: Ca,
    folder: Folder,
    gateway: Gateway,
    local: Double,
    peer: Double,
}

impl World {
    async fn start() -> World {
        let [servers, clients, proxies] = ["servers", "clients", "proxies"].map(Ca::new);
        let serving = servers.server(&[SERVER_NAME]);
        let proxy = proxies.client(&[cn(FRONT_PROXY_NAME)]);
        let folder = Folder::new(&[
            ("server.crt", &serving.certificate),
            ("server.key", &serving.key),
            ("proxy.crt", &proxy.certificate),
            ("proxy.key", &proxy.key),
            ("ca.crt", servers.pem()),
            ("client-ca.crt", clients.pem()),
            ("proxy-ca.crt", proxies.pem()),
        ]);
        let storage = Storage::new();
        let local = serve(any(), api_server("b", storage.clone())).await;
        let peer = serve(any(), api_server("a", storage)).await;
        for server in [&local, &peer] {
            server.tls.replace(server_tls(&servers, proxies.pem()));
        }
        let flags = [
            format!("--peer=a=https://{},kind=bare", peer.address),
            folder.flag("tls-cert-file", "server.crt"),
            folder.flag("tls-private-key-file", "server.key"),
            folder.flag("peer-ca-file", "ca.crt"),
            folder.flag("client-ca-file", "client-ca.crt"),
            folder.flag("requestheader-client-ca-file", "proxy-ca.crt"),
            folder.flag("proxy-client-cert-file", "proxy.crt"),
            folder.flag("proxy-client-key-file", "proxy.key"),
        ];
        let gateway = Gateway::start(free_address(), "b", local.address, &flags).ready().await;
        World { servers, clients, proxies, folder, gateway, local, peer }
    }

    fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// A user of this CA, who believes servers of ours.
    fn user(&self, ca: &Ca) -> Arc<rustls::ClientConfig> {
        let user = ca.client(&[cn("alice")]);
        ClientTls::new(self.servers.pem().as_bytes(), Some(user.pem())).unwrap().config(&[b"h2"])
    }

    /// `mvp_reload_total` with both results, and `mvp_reload_failing`.
    async fn reloads(&self, flag: &str) -> (u64, u64, u64) {
        let metrics = self.gateway.page("/metrics").await;
        let value = |start: String| -> u64 {
            let line = metrics.lines().find(|line| line.starts_with(&start));
            let line = line.unwrap_or_else(|| panic!("no {start} in\n{metrics}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let total =
            |result| value(format!("mvp_reload_total{{flag=\"{flag}\",result=\"{result}\"}}"));
        (total("ok"), total("failed"), value(format!("mvp_reload_failing{{flag=\"{flag}\"}}")))
    }

    async fn reloaded(&self, flag: &str, expected: (u64, u64, u64)) {
        eventually(flag, async || match self.reloads(flag).await {
            counts if counts == expected => Ok(()),
            counts => Err(counts),
        })
        .await;
    }
}

/// What a server of the cluster serves with, believing these proxies.
fn server_tls(ca: &Ca, proxies: &str) -> ServerTls {
    let pair = ca.server(&[SERVER_NAME]);
    let names = vec![FRONT_PROXY_NAME.to_owned()];
    let trust = ClientTrust::new(None, Some(proxies.as_bytes()), names).unwrap();
    ServerTls::new(pair.pem().0, pair.pem().1, trust).unwrap()
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    pair.chain().remove(0)
}

const PATHS: [&str; 3] = [CONFIG_MAPS, WIDGETS, "/apis"];

#[tokio::test]
async fn the_serving_certificate_is_replaced() {
    let mut world = World::start().await;
    let user = world.user(&world.clients);
    let load = Load::start(world.address(), &user, &PATHS);
    let (client, first) = Client::with(world.address(), Arc::clone(&user)).await.unwrap();
    let mut watch = client.watch(&format!("{WIDGETS}?watch=true")).await;

    let new = world.servers.server(&[SERVER_NAME]);
    world.folder.swap(&[("server.crt", &new.certificate), ("server.key", &new.key)]);
    let address = world.address();
    let shown = async || Client::with(address, Arc::clone(&user)).await.unwrap().1;
    let other = eventually("another certificate is shown", async || match shown().await {
        other if other == first => Err("the old one is"),
        other => Ok(other),
    })
    .await;
    assert_eq!(other, der(&new));
    world.reloaded("tls-cert-file", (1, 0, 0)).await;

    // A pair that does not fit, then one that cannot be read: the last good one stays.
    let other = world.servers.server(&[SERVER_NAME]);
    world.folder.swap(&[("server.crt", &other.certificate)]);
    world.reloaded("tls-cert-file", (1, 1, 1)).await;
    world.folder.swap(&[("server.crt", &other.certificate[..80]), ("server.key", &other.key)]);
    world.reloaded("tls-cert-file", (1, 2, 1)).await;
    assert_eq!(shown().await, der(&new));
    let complaints = eventually("both are logged", async || {
        let log = world.gateway.log();
        let lines = log.lines().filter(|line| line.contains("not reloaded"));
        let lines = lines.map(str::to_owned).collect::<Vec<_>>();
        if lines.len() < 2 { Err(log) } else { Ok(lines) }
    })
    .await;
    assert_eq!(complaints.len(), 2, "each once: {complaints:#?}");
    assert!(complaints[0].contains("is not the key of"), "{}", complaints[0]);
    assert!(complaints.iter().all(|line| line.contains("\"WARN\"")), "{complaints:#?}");

    world.folder.swap(&[("server.crt", &other.certificate)]);
    world.gateway.signal(Signal::HUP);
    world.reloaded("tls-cert-file", (2, 2, 0)).await;
    assert_eq!(shown().await, der(&other));
    let metrics = world.gateway.page("/metrics").await;
    for flag in ["tls-cert-file", "client-ca-file", "proxy-client-cert-file", "peer-ca-file"] {
        let line = format!("mvp_certificate_expiration_timestamp_seconds{{flag=\"{flag}\"}} ");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }

    make(&client, "one").await;
    assert_eq!(watch.next_name().await, ("ADDED".to_owned(), "one".to_owned()));
    load.was_answered().await;
}

#[tokio::test]
async fn the_client_ca_is_replaced() {
    let mut world = World::start().await;
    let old = world.user(&world.clients);
    let others = Ca::new("clients");
    let new = world.user(&others);
    let (client, _) = Client::with(world.address(), Arc::clone(&old)).await.unwrap();
    let (newcomer, _) = Client::with(world.address(), Arc::clone(&new)).await.unwrap();
    assert_eq!(newcomer.get(CONFIG_MAPS).await.0, StatusCode::UNAUTHORIZED);

    let load = Load::start(world.address(), &old, &PATHS);
    world.folder.swap(&[("client-ca.crt", &[world.clients.pem(), others.pem()].concat())]);
    world.reloaded("client-ca-file", (1, 0, 0)).await;
    load.was_answered().await;
    // A 401 ended the first connection.
    let (newcomer, _) = Client::with(world.address(), Arc::clone(&new)).await.unwrap();
    assert_eq!(newcomer.get(CONFIG_MAPS).await.0, StatusCode::OK);

    let load = Load::start(world.address(), &new, &PATHS);
    world.folder.swap(&[("client-ca.crt", others.pem())]);
    world.reloaded("client-ca-file", (2, 0, 0)).await;
    load.was_answered().await;
    // This connection is the same all along, and judged anew.
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_proxy_certificate_and_its_ca_are_replaced() {
    let mut world = World::start().await;
    let user = world.user(&world.clients);
    let (client, _) = Client::with(world.address(), Arc::clone(&user)).await.unwrap();
    let mut watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
    let old = world.peer.shown().remove(0);
    let load = Load::start(world.address(), &user, &PATHS);

    // One that nobody would believe is refused, whatever the servers say.
    let others = Ca::new("proxies");
    let both = [world.proxies.pem(), others.pem()].concat();
    let new = others.client(&[cn(FRONT_PROXY_NAME)]);
    world.folder.swap(&[("proxy.crt", &new.certificate), ("proxy.key", &new.key)]);
    world.reloaded("proxy-client-cert-file", (0, 1, 1)).await;

    // The servers first, then we.
    for server in [&world.local, &world.peer] {
        server.tls.replace(server_tls(&world.servers, &both));
    }
    world.folder.swap(&[("proxy-ca.crt", &both)]);
    world.reloaded("proxy-client-cert-file", (1, 1, 0)).await;
    for server in [&world.local, &world.peer] {
        eventually("the new certificate is shown", async || {
            if server.connected(&der(&new)) > 0 { Ok(()) } else { Err("it is not") }
        })
        .await;
    }
    // Of the old connections one is left, for the watch.
    eventually("old connections end", async || match world.peer.connected(&old) {
        1 => Ok(()),
        other => Err(other),
    })
    .await;
    for server in [&world.local, &world.peer] {
        server.tls.replace(server_tls(&world.servers, others.pem()));
    }
    world.folder.swap(&[("proxy-ca.crt", others.pem())]);
    world.reloaded("requestheader-client-ca-file", (2, 0, 0)).await;

    make(&client, "one").await;
    assert_eq!(watch.next_name().await, ("ADDED".to_owned(), "one".to_owned()));
    drop(watch);
    eventually("the last old connection ends", async || match world.peer.connected(&old) {
        0 => Ok(()),
        other => Err(other),
    })
    .await;
    load.was_answered().await;
}

#[tokio::test]
async fn the_server_ca_is_replaced() {
    let mut world = World::start().await;
    let user = world.user(&world.clients);
    let (client, _) = Client::with(world.address(), Arc::clone(&user)).await.unwrap();
    let mut watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
    let load = Load::start(world.address(), &user, &PATHS);
    let others = Ca::new("servers");
    world.folder.swap(&[("ca.crt", &[world.servers.pem(), others.pem()].concat())]);
    world.reloaded("peer-ca-file", (1, 0, 0)).await;
    for server in [&world.local, &world.peer] {
        server.tls.replace(server_tls(&others, world.proxies.pem()));
    }
    let before = world.peer.accepted();
    world.folder.swap(&[("ca.crt", others.pem())]);
    world.reloaded("peer-ca-file", (2, 0, 0)).await;
    eventually("there are new connections", async || {
        if world.peer.accepted() > before { Ok(()) } else { Err(before) }
    })
    .await;
    make(&client, "one").await;
    assert_eq!(watch.next_name().await, ("ADDED".to_owned(), "one".to_owned()));
    load.was_answered().await;
}

#[tokio::test]
async fn idle_connections_with_old_certificates_are_closed() {
    let mut world = World::start().await;
    let user = world.user(&world.clients);
    let (client, _) = Client::with(world.address(), user).await.unwrap();
    for path in [CONFIG_MAPS, WIDGETS] {
        assert_eq!(client.get(path).await.0, StatusCode::OK);
    }
    let old = world.peer.shown().remove(0);
    let new = world.proxies.client(&[cn(FRONT_PROXY_NAME)]);
    world.folder.swap(&[("proxy.crt", &new.certificate), ("proxy.key", &new.key)]);
    world.reloaded("proxy-client-cert-file", (1, 0, 0)).await;
    // Nobody asks for anything meanwhile.
    for server in [&world.local, &world.peer] {
        eventually("old connections end", async || match server.connected(&old) {
            0 => Ok(()),
            other => Err(other),
        })
        .await;
    }
}

#[tokio::test]
async fn files_are_watched_until_shutdown_ends() {
    let mut world = World::start().await;
    let user = world.user(&world.clients);
    let (client, _) = Client::with(world.address(), user).await.unwrap();
    let watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
    world.gateway.signal(Signal::TERM);
    let address = world.address();
    eventually("it drains", async || match TcpStream::connect(address).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => Err(other),
    })
    .await;
    world.folder.swap(&[("client-ca.crt", Ca::new("clients").pem())]);
    world.reloaded("client-ca-file", (1, 0, 0)).await;
    world.gateway.signal(Signal::HUP);
    drop((watch, client));
    assert_eq!(ends(&mut world.gateway).await, Some(0));
}
