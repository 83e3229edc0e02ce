//! A new process takes the port over from an old one, and no client notices.

use mvp_apiserver::Storage;
use testkit::process::Signal;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, serve};
use crate::support::eventually;
use crate::support::load::Load;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, flags, free_address};

const GENERATIONS: usize = 4;

#[tokio::test]
async fn no_request_fails_while_a_new_process_takes_over() {
    let storage = Storage::new();
    let local = serve(any(), api_server("b", storage.clone())).await;
    let peer = serve(any(), api_server("a", storage)).await;
    let (address, admin) = (free_address(), free_address());
    let more = [
        format!("--peer=a=https://{},kind=bare", peer.address),
        "--permit-port-sharing".to_owned(),
    ];
    let flags = flags(address, admin, "b", local.address, &more);
    let first = Gateway::with_flags(address, admin, &flags).ready().await;
    let paths = [CONFIG_MAPS, WIDGETS, "/apis"];
    let load = Load::of_new_connections(address, &PKI.client(true, b"h2"), &paths, 6);
    let _last = change_hands(first, &flags, &load).await;
    load.was_answered().await;
}

#[tokio::test]
async fn requests_through_a_peer_succeed_while_a_new_process_takes_over() {
    let storage = Storage::new();
    let a_server = serve(any(), api_server("a", storage.clone())).await;
    let b_server = serve(any(), api_server("b", storage)).await;
    let (a, a_admin, b) = (free_address(), free_address(), free_address());
    let more = [format!("--peer=b=https://{b}"), "--permit-port-sharing".to_owned()];
    let flags = flags(a, a_admin, "a", a_server.address, &more);
    let first = Gateway::with_flags(a, a_admin, &flags);
    let peer = format!("--peer=a=https://{a}");
    let _b_gateway = Gateway::start(b, "b", b_server.address, &[peer]).ready().await;
    let first = first.ready().await;
    let load = Load::start(b, &PKI.client(true, b"h2"), &[WIDGETS]);
    let _last = change_hands(first, &flags, &load).await;
    load.was_answered().await;
}

/// Starts a new process and ends the old one, several times. Gives the last.
async fn change_hands(mut current: Gateway, flags: &[String], load: &Load) -> Gateway {
    for _ in 0..GENERATIONS {
        load.goes_on(20).await;
        let next = Gateway::with_flags(current.address, current.admin, flags);
        eventually("the new one serves", async || {
            let log = next.log();
            if log.contains("\"serving\"") { Ok(()) } else { Err(log) }
        })
        .await;
        current.signal(Signal::TERM);
        let status =
            eventually("the old one ends", async || current.exit_status().ok_or("it runs"));
        assert_eq!(status.await.code(), Some(0), "{}", current.log());
        current = next;
    }
    current
}
