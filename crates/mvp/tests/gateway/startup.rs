//! Errors that only appear at startup: nothing is served, and one line says why.

use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

use crate::cluster::any;
use crate::support::eventually;
use crate::support::process::{Gateway, flags, free_address};

#[tokio::test]
async fn a_port_in_use_is_named_with_its_flag() {
    let taken = TcpListener::bind(any()).unwrap();
    let taken = (taken.local_addr().unwrap(), taken);
    let (one, other) = (free_address(), free_address());
    for (address, admin, flag, free) in
        [(taken.0, one, "--secure-port", one), (other, taken.0, "--admin-bind-address", other)]
    {
        for workers in ["--workers=1", "--workers=2"] {
            let sentence = fails(address, admin, workers).await;
            assert!(sentence.contains(flag), "{sentence}");
            assert!(sentence.contains(&taken.0.to_string()), "{sentence}");
            assert!(TcpStream::connect(free).is_err(), "{free} is served");
        }
    }
}

#[tokio::test]
async fn an_address_of_another_host_is_named_with_its_flag() {
    // TEST-NET-1: no host has this address.
    let elsewhere: SocketAddr = "192.0.2.1:16443".parse().unwrap();
    let sentence = fails(elsewhere, free_address(), "--workers=2").await;
    assert!(sentence.contains("--bind-address"), "{sentence}");
    assert!(sentence.contains("192.0.2.1:16443"), "{sentence}");
}

#[tokio::test]
async fn a_port_chosen_by_the_system_is_logged() {
    let more = ["--secure-port=0".to_owned(), "--admin-bind-address=127.0.0.1:0".to_owned()];
    let flags = flags(any(), any(), "a", free_address(), &more);
    let gateway = Gateway::with_flags(any(), any(), &flags);
    let line = eventually("it serves", async || {
        let log = gateway.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["message"] == "serving").ok_or(log)
    })
    .await;
    for place in ["listen", "admin"] {
        let address: SocketAddr = line[place].as_str().unwrap().parse().unwrap();
        assert_ne!(address.port(), 0, "{place}: nobody can know where it serves: {line}");
        assert!(TcpStream::connect(address).is_ok(), "{place}: {line}");
    }
}

#[tokio::test]
async fn limits_that_are_off_are_logged_as_zero() {
    let more = ["--secure-port=0".to_owned(), "--admin-bind-address=127.0.0.1:0".to_owned()];
    let flags = flags(any(), any(), "a", free_address(), &more);
    let gateway = Gateway::with_flags(any(), any(), &flags);
    let line = eventually("the limits", async || {
        let log = gateway.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["message"] == "limits").ok_or(log)
    })
    .await;
    assert_eq!(line["max_client_connections_per_address"], 0, "{line}");
    assert_eq!(line["goaway_chance"], 0.0, "{line}");
    assert_eq!(line["max_client_handshakes"], 4096, "{line}");
    assert_eq!(line["client_idle_seconds"], 90, "{line}");
    assert_eq!(line["max_peer_requests"], 2000, "{line}");
    assert_eq!(line["max_peer_watches"], 100_000, "{line}");
    assert_eq!(line["max_request_header_bytes"], 131_072, "{line}");
    assert!(line["max_client_connections"].as_u64() > Some(0), "{line}");
}

/// The one line that it ends with.
async fn fails(address: SocketAddr, admin: SocketAddr, workers: &str) -> String {
    let flags = flags(address, admin, "a", free_address(), &[workers.to_owned()]);
    let mut gateway = Gateway::with_flags(address, admin, &flags);
    let status = eventually("its end", async || gateway.exit_status().ok_or("it runs")).await;
    let log = gateway.log();
    assert_eq!(status.code(), Some(1), "{log}");
    let mut lines = log.lines();
    let (Some(line), None) = (lines.next(), lines.next()) else { panic!("not one line:\n{log}") };
    line.strip_prefix("error: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}
