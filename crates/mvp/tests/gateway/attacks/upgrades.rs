//! Requests behind an upgrade that the server refuses, or that nobody but the client believes in.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::target::{LAST, SMUGGLED, Target};
use crate::support::client::connect;
use crate::support::pki::PKI;
use crate::support::soon;

/// Headers that ask for an upgrade. The server answers all of them with 200.
const UPGRADES: [&str; 8] = [
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n",
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
    "Connection: HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
    "Connection: Upgrade\r\nUpgrade: TLS/1.3\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
    "Upgrade: websocket\r\n",
];

/// What follows after the refusal is read as a request, with the rights of the caller and no other.
#[tokio::test]
async fn after_a_refused_upgrade_there_is_no_tunnel() {
    let target = Target::start().await;
    for upgrade in UPGRADES {
        let before = target.seen();
        let mut stream =
            connect(target.gateway.address, PKI.client(false, b"http/1.1")).await.unwrap();
        let request = format!("GET /x/first HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n");
        soon(stream.write_all(request.as_bytes())).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"{}") {
            answer.push(soon(stream.read_u8()).await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{upgrade:?}");
        // It names another user, as those do who believe in a tunnel to the server.
        soon(stream.write_all(SMUGGLED.as_bytes())).await.unwrap();
        let mut rest = Vec::new();
        let _ = soon(stream.read_to_end(&mut rest)).await;
        // This asserts that neither names a user.
        let mut seen = target.since(&before);
        seen.sort();
        assert_eq!(seen, ["GET /x/first ", "GET /x/smuggled "], "{upgrade:?}");
    }
    assert!(target.seen().iter().any(|seen| seen.all("upgrade") == ["websocket"]));
    for seen in target.seen() {
        let protocols = seen.all("upgrade");
        let known = ["websocket", "SPDY/3.1"];
        assert!(protocols.iter().all(|protocol| known.contains(protocol)), "{seen:?}");
        assert_eq!(seen.all("http2-settings"), [""; 0], "{seen:?}");
    }
}

/// Nobody can say yet whether it is a part of the tunnel or a request.
#[tokio::test]
async fn what_comes_with_a_request_for_an_upgrade_is_never_served() {
    let target = Target::start().await;
    for upgrade in UPGRADES {
        let before = target.seen();
        let request = format!("GET /x/first HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n{SMUGGLED}{LAST}");
        let statuses = target.send(request.as_bytes(), 1 << 20).await;
        assert!(statuses.len() <= 1, "{upgrade:?}: {statuses:?}");
        let seen = target.since(&before);
        assert!(seen.iter().all(|seen| seen.starts_with("GET /x/first")), "{upgrade:?}: {seen:?}");
    }
}
