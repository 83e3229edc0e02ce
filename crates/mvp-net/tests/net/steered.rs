//! Connections that were handed over from the port of another process.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mvp_net::{Limits, Listener, PassThrough, ReloadableTls, bind, bind_steered, serve};
use rustls_pki_types::ServerName;
use testkit::certificates::SERVER_NAME;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::support::{Authorities, Gateway, H2, soon};

const OWN_NAME: &str = "apiserver-loopback-client";

/// The first message of a client that asks for this server name.
fn hello(authorities: &Authorities, name: &'static str) -> Vec<u8> {
    let config = authorities.client_tls(None).config(&[H2]);
    let name = ServerName::try_from(name).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(&config), name).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// A gateway whose server expects connections to itself.
async fn beside_a_server() -> (Gateway, TcpListener) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Gateway::start(Limits::default());
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let pass_through = Some(PassThrough {
        server_name: OWN_NAME,
        server: server.local_addr().unwrap(),
        source: IpAddr::from([127, 0, 0, 2]),
    });
    let listener = Listener { socket, pass_through, handed_over: true };
    let tls = ReloadableTls::new(gateway.authorities.server_tls());
    let service = tower::service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::from("ours")))
    });
    tokio::spawn(serve(listener, tls, Limits::default(), service, CancellationToken::new()));
    (Gateway { address, ..gateway }, server)
}

#[tokio::test]
async fn a_connection_of_the_server_to_itself_reaches_it_byte_for_byte() {
    let (gateway, server) = beside_a_server().await;
    let bytes = hello(&gateway.authorities, OWN_NAME);
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    // In two parts: the first one alone does not tell the name.
    let (first, second) = bytes.split_at(20);
    client.write_all(first).await.unwrap();
    tokio::task::yield_now().await;
    client.write_all(second).await.unwrap();
    let (mut accepted, from) = soon(server.accept()).await.unwrap();
    assert_eq!(from.ip(), IpAddr::from([127, 0, 0, 2]), "a source that is never steered");
    let mut seen = vec![0; bytes.len()];
    soon(accepted.read_exact(&mut seen)).await.unwrap();
    assert_eq!(seen, bytes);
    accepted.write_all(b"answer").await.unwrap();
    drop(accepted);
    let mut answer = Vec::new();
    soon(client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"answer");
}

#[tokio::test]
async fn other_names_and_other_hosts_are_served() {
    let (gateway, _server) = beside_a_server().await;
    // Another name, from the same address.
    let config = gateway.authorities.client_tls(None).config(&[H2]);
    soon(gateway.try_connect(config)).await.unwrap();
    // The server's name, from another address: it gets our handshake, which fails for this name.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 9], 0))).unwrap();
    let mut client = soon(socket.connect(gateway.address)).await.unwrap();
    client.write_all(&hello(&gateway.authorities, OWN_NAME)).await.unwrap();
    let mut first = [0; 3];
    soon(client.read_exact(&mut first)).await.unwrap();
    assert_eq!(first, [22, 3, 3], "a handshake of ours");
    assert_ne!(OWN_NAME, SERVER_NAME);
}

#[tokio::test]
async fn garbage_from_the_own_address_ends_that_connection_only() {
    let (gateway, _server) = beside_a_server().await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = soon(client.read_to_end(&mut rest)).await;
    let config = gateway.authorities.client_tls(None).config(&[H2]);
    soon(gateway.try_connect(config)).await.unwrap();
}

#[test]
fn every_worker_has_a_socket_for_each_family_on_loopback() {
    let workers = bind_steered(3).unwrap();
    assert_eq!(workers.len(), 3);
    for family in 0..workers[0].len() {
        let addresses: Vec<_> =
            workers.iter().map(|sockets| sockets[family].local_addr().unwrap()).collect();
        for address in &addresses {
            assert!(address.ip().is_loopback() && address.is_ipv6() == (family == 1));
            // Nobody can join it to get a part of its connections.
            let same = addresses.iter().filter(|other| *other == address).count();
            assert_eq!(same, 1, "{addresses:?}");
            assert_eq!(bind(*address, true).unwrap_err().kind(), ErrorKind::AddrInUse);
        }
    }
}
