//! `mvp adopt` without a gateway and without rights.

use std::net::{TcpListener, TcpStream};

use crate::folder::Folder;

#[test]
fn errors_in_flags_are_named() {
    let place = Folder::new();
    for (flag, sentence) in [
        ("--secure-port=0", "--secure-port: \"0\" is not a port; give a number from 1 to 65535"),
        (
            "--idle=1",
            "--idle: \"1\" is not a time with a unit; give a time from 100ms to 1h, such as 1s",
        ),
        (
            "--timeout=25h",
            "--timeout: \"25h\" is out of bounds; give a time from 1s to 24h, such as 5m",
        ),
        ("--rate=0", "--rate: \"0\" is not a rate; give connections per second from 1 to 1000"),
    ] {
        place.mvp(&["adopt", flag]).is_mistake(2, sentence);
    }
}

#[test]
fn nothing_is_ended_if_no_gateway_steers() {
    let place = Folder::new();
    let outcome = place.mvp(&["adopt", "--admin-socket=none.sock"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    let expected = "error: nothing is ended, because clients would only come back to kube-apiserver \
                    (--force ends their connections all the same): no gateway answers at none.sock: ";
    assert!(outcome.stderr.starts_with(expected), "{}", outcome.stderr);
}

#[test]
fn a_dry_run_needs_neither_rights_nor_a_gateway() {
    let place = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Over loopback: it is never listed.
    let _connection = (TcpStream::connect(address).unwrap(), listener.accept().unwrap());
    let port = format!("--secure-port={}", address.port());
    let flags = ["adopt", "--dry-run", "--admin-socket=none.sock", &port];
    let outcome = place.mvp(&flags);
    let expected =
        format!("No connection to port {} is from before the steering.\n", address.port());
    assert_eq!((outcome.code, outcome.stdout, outcome.stderr), (Some(0), expected, String::new()));
    let json = place.mvp(&[&flags[..], &["-o", "json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let expected = serde_json::json!({
        "port": address.port(), "dryRun": true, "ended": 0, "connections": [],
    });
    assert_eq!(json, expected);
}
