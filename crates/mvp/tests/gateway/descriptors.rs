//! When file descriptors are short.

use std::time::Duration;

use mvp_apiserver::Storage;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::cluster::{any, api_server, serve};
use crate::memory::enough_files;
use crate::support::eventually;
use crate::support::process::{Gateway, flags, free_address};

const DESCRIPTORS: usize = 256;
const IDLE: usize = 600;
/// A connection without a handshake is closed after 10 s: the answer must not wait for that.
const BEFORE_ANY_IS_CLOSED: Duration = Duration::from_secs(8);

#[tokio::test]
async fn idle_connections_do_not_block_the_admin_endpoint() {
    enough_files(IDLE as u64 + 200);
    let server = serve(any(), api_server("b", Storage::new())).await;
    let (address, admin) = (free_address(), free_address());
    let flags = flags(address, admin, "b", server.address, &[]);
    let gateway = Gateway::with_descriptors(address, admin, &flags, DESCRIPTORS).ready().await;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let (mut last, mut since) = (0, Instant::now());
    eventually("it takes no more of them", async || {
        let open = gateway.descriptors();
        if open != last {
            (last, since) = (open, Instant::now());
        }
        if since.elapsed() > Duration::from_millis(300) { Ok(()) } else { Err(open) }
    })
    .await;
    let ask = async {
        for _ in 0..20 {
            assert_eq!(gateway.ask("/livez").await, Some((200, "ok".to_owned())), "of {last}");
        }
    };
    timeout(BEFORE_ANY_IS_CLOSED, ask).await.expect("an answer before a connection is closed");
    drop(idle);
}

#[tokio::test]
async fn a_connection_limit_above_the_descriptor_limit_is_rejected() {
    let (address, admin) = (free_address(), free_address());
    let more = ["--max-client-connections=200".to_owned()];
    let flags = flags(address, admin, "b", free_address(), &more);
    let mut gateway = Gateway::with_descriptors(address, admin, &flags, DESCRIPTORS);
    let status = eventually("its end", async || gateway.exit_status().ok_or("it runs")).await;
    let log = gateway.log();
    assert_eq!(status.code(), Some(1), "{log}");
    let sentence = "error: --max-client-connections: 200 needs 464 file descriptors, two for each \
                    connection and 64 more, but the limit is 256; raise the limit (ulimit -n, \
                    LimitNOFILE=), or give at most 96\n";
    assert_eq!(log, sentence);
}
