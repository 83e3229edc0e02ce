//! Connections to peers through HTTP CONNECT proxies.

use http::StatusCode;
use mvp_apiserver::Storage;
use testkit::connect_proxy::ConnectProxy;

use crate::cluster::{WIDGETS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::double::Double;
use crate::support::eventually;
use crate::support::folder::Folder;
use crate::support::process::{Gateway, free_address};

/// A gateway with one bare peer, which alone has widgets.
struct World {
    gateway: Gateway,
    peer: Double,
    _local: Double,
    client: Client,
}

impl World {
    async fn start(flags: &[String], more: impl Fn(&Double) -> Vec<String>) -> World {
        let storage = Storage::new();
        let local = serve(any(), api_server("b", storage.clone())).await;
        let peer = serve(any(), api_server("a", storage)).await;
        let flags = [flags, &more(&peer)].concat();
        let gateway = Gateway::start(free_address(), "b", local.address, &flags);
        let gateway = gateway.ready().await;
        let client = Client::user(gateway.address).await;
        World { gateway, peer, _local: local, client }
    }

    async fn becomes(&self, expected: StatusCode) {
        eventually(WIDGETS, async || match self.client.get(WIDGETS).await.0 {
            code if code == expected => Ok(()),
            code => Err((code, self.gateway.log())),
        })
        .await;
    }
}

fn selector(connection: &str) -> String {
    format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n\
         egressSelections:\n- name: controlplane\n  connection: {connection}\n\
         - name: cluster\n  connection: {{proxyProtocol: GRPC, transport: {{uds: {{udsName: /x}}}}}}\n"
    )
}

fn as_peer(peer: &Double) -> Vec<String> {
    vec![format!("--peer=a=https://{},kind=bare", peer.address)]
}

#[tokio::test]
async fn peers_are_reached_through_the_proxy_of_the_controlplane_selection() {
    let mut folder = Folder::new(&[("egress.yaml", "")]);
    let path = std::env::temp_dir().join(format!("mvp-egress-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let unix = ConnectProxy::unix(&path).unwrap();
    let tcp = ConnectProxy::tcp().await.unwrap();
    let through_unix = format!(
        "{{proxyProtocol: HTTPConnect, transport: {{uds: {{udsName: {}}}}}}}",
        path.display()
    );
    folder.swap(&[("egress.yaml", &selector(&through_unix))]);
    let flags = [folder.flag("egress-selector-config-file", "egress.yaml")];
    let world = World::start(&flags, as_peer).await;
    let peer = world.peer.address.to_string();
    world.becomes(StatusCode::OK).await;
    assert!(!unix.asked().is_empty() && unix.asked().iter().all(|asked| *asked == peer));

    // The file is reloaded, and later connections use the new way.
    let through_tcp = format!(
        "{{proxyProtocol: HTTPConnect, transport: {{tcp: {{url: 'http://{}'}}}}}}",
        tcp.address().unwrap()
    );
    folder.swap(&[("egress.yaml", &selector(&through_tcp))]);
    eventually("the other proxy is used", async || match tcp.asked().len() {
        0 => Err(world.gateway.log()),
        _ => Ok(()),
    })
    .await;
    drop(unix);
    world.becomes(StatusCode::OK).await;

    folder.swap(&[("egress.yaml", &selector("{proxyProtocol: GRPC}"))]);
    eventually("the mistake is told", async || {
        let log = world.gateway.log();
        let told = log.contains("not reloaded") && log.contains("GRPC is not supported");
        if told { Ok(()) } else { Err(log) }
    })
    .await;
    world.becomes(StatusCode::OK).await;
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_peer_has_a_proxy_of_its_own_in_the_peers_file() {
    let proxy = ConnectProxy::tcp().await.unwrap();
    let mut folder = Folder::new(&[("peers.yaml", "peers: []")]);
    let flag = folder.flag("peers-file", "peers.yaml");
    let world = World::start(&[flag], |_| Vec::new()).await;
    let peers = |proxy: &str| {
        let address = world.peer.address;
        format!("peers:\n- id: a\n  address: https://{address}\n  kind: bare\n  {proxy}\n")
    };
    let url = format!("proxy-url: http://{}", proxy.address().unwrap());
    folder.swap(&[("peers.yaml", &peers(&url))]);
    world.becomes(StatusCode::OK).await;
    assert_eq!(proxy.asked().first(), Some(&world.peer.address.to_string()));

    folder.swap(&[("peers.yaml", &peers("proxy-url: direct"))]);
    eventually("no proxy is on the way", async || {
        proxy.answer(Some(b""));
        let asked = proxy.asked().len();
        let code = world.client.get(WIDGETS).await.0;
        let direct = code == StatusCode::OK && proxy.asked().len() == asked;
        if direct { Ok(()) } else { Err((code, asked)) }
    })
    .await;
}

#[tokio::test]
async fn a_hostile_proxy_is_no_more_than_an_unreachable_peer() {
    let proxy = ConnectProxy::tcp().await.unwrap();
    let mut folder = Folder::new(&[("egress.yaml", "")]);
    let connection = format!(
        "{{proxyProtocol: HTTPConnect, transport: {{tcp: {{url: 'http://{}'}}}}}}",
        proxy.address().unwrap()
    );
    folder.swap(&[("egress.yaml", &selector(&connection))]);
    let flags = [folder.flag("egress-selector-config-file", "egress.yaml")];
    let world = World::start(&flags, as_peer).await;
    world.becomes(StatusCode::OK).await;
    let endless = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &[b'x'; 1 << 20]].concat();
    let answers: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "answers CONNECT"),
        (&endless, "no HTTP response head of at most 8 KiB"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "sent data of its own"),
        (b"", "no connection within 2 s through proxy http://"),
    ];
    for (answer, what) in answers {
        proxy.answer(Some(answer));
        world.becomes(StatusCode::SERVICE_UNAVAILABLE).await;
        eventually(what, async || {
            let snapshot = world.gateway.page("/debug/snapshot").await;
            if snapshot.contains(what) { Ok(()) } else { Err(snapshot) }
        })
        .await;
        proxy.answer(None);
        world.becomes(StatusCode::OK).await;
    }
}
