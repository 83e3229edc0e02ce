//! What is left of a gateway that crashes: no memory image, which would contain its keys.

use std::os::unix::process::ExitStatusExt;

use mvp_apiserver::Storage;
use testkit::process::Signal;

use crate::cluster::{any, api_server, serve};
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

#[tokio::test]
async fn a_crash_writes_no_core_dump() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let flags = [];
    let mut gateway =
        Gateway::with_core_dumps(free_address(), "b", server.address, &flags).ready().await;
    let limit = gateway.limit("Max core file size");
    assert!(["0", "1"].contains(&&*limit), "{limit}");
    gateway.signal(Signal::ABORT);
    let status = eventually("it ends", async || gateway.exit_status().ok_or("it still runs")).await;
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    assert!(!status.core_dumped(), "{status}");
}
