//! A new process takes the port over from an old one, and no client notices.

use mvp_apiserver::Storage;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, serve};
use crate::support::eventually;
use crate::support::load::Load;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, flags, free_address};

const GENERATIONS: usize = 4;

#[tokio::test]
async fn nobody_is_refused_while_a_new_process_takes_over() {
    let storage = Storage::new();
    let local = serve(any(), api_server("b", storage.clone())).await;
    let peer = serve(any(), api_server("a", storage)).await;
    let (address, admin) = (free_address(), free_address());
    let more = [
        format!("--peer=a=https://{},kind=bare", peer.address),
        "--permit-port-sharing".to_owned(),
    ];
    let flags = flags(address, admin, "b", local.address, &more);
    let mut current = Gateway::with_flags(address, admin, &flags).ready().await;
    let config = PKI.client(true, b"h2");
    let paths = [CONFIG_MAPS, WIDGETS, "/apis"];
    let load = Load::of_new_connections(address, &config, &paths, 6);
    for _ in 0..GENERATIONS {
        load.goes_on(20).await;
        let next = Gateway::with_flags(address, admin, &flags);
        eventually("the new one serves", async || {
            let log = next.log();
            if log.contains("\"serving\"") { Ok(()) } else { Err(log) }
        })
        .await;
        current.signal("TERM");
        let status =
            eventually("the old one ends", async || current.ended().ok_or("it runs")).await;
        assert_eq!(status.code(), Some(0), "{}", current.log());
        current = next;
    }
    load.was_answered().await;
}
