use super::super::{Given, ServerFlags, listener};
use super::steered;

/// The flags of the listener, or the error.
fn listens(server: &[&str], given: &Given) -> Result<Vec<String>, String> {
    let flags = ServerFlags::of(server).unwrap();
    let decided = listener::decide(&flags, given).map_err(|mistake| mistake.to_string())?;
    let mut flags: Vec<String> =
        decided.flags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    flags.sort();
    Ok(flags)
}

#[test]
fn with_steering_the_addresses_are_those_of_kube_apiserver() {
    for (server, expected) in [
        (&[][..], &["local-server=https://127.0.0.1:6443", "secure-port=6443"][..]),
        (
            &["--bind-address=::", "--secure-port=8443"],
            &["bind-address=::", "local-server=https://127.0.0.1:8443", "secure-port=8443"],
        ),
        (
            &["--bind-address=10.0.0.1"],
            &["bind-address=10.0.0.1", "local-server=https://10.0.0.1:6443", "secure-port=6443"],
        ),
        (
            &["--bind-address=fd00::1"],
            &["bind-address=fd00::1", "local-server=https://[fd00::1]:6443", "secure-port=6443"],
        ),
    ] {
        assert_eq!(listens(server, &steered()).unwrap(), expected, "{server:?}");
    }
    let set = Given { steer: true, ..Given::with(&["local-server"]) };
    assert_eq!(listens(&[], &set).unwrap(), ["secure-port=6443"]);
}

#[test]
fn without_steering_mvp_needs_another_address_or_port() {
    let bind = |ip: &str| Given { bind_address: ip.parse().ok(), ..Given::with(&["bind-address"]) };
    let port = |port| Given { secure_port: Some(port), ..Given::with(&["secure-port"]) };
    let none = Given::default();
    let loopback = ["--bind-address=127.0.0.1", "--advertise-address=10.0.0.1"];
    for (server, given, expected) in [
        (
            &loopback[..],
            &none,
            &["bind-address=10.0.0.1", "local-server=https://127.0.0.1:6443", "secure-port=6443"][..],
        ),
        (
            &["--bind-address=127.0.0.1"],
            &bind("10.0.0.2"),
            &["local-server=https://127.0.0.1:6443", "secure-port=6443"],
        ),
        (&[], &port(7443), &["local-server=https://127.0.0.1:6443"]),
        (
            &["--bind-address=10.0.0.1"],
            &port(7443),
            &["bind-address=10.0.0.1", "local-server=https://10.0.0.1:6443"],
        ),
        (
            &["--bind-address=10.0.0.1"],
            &bind("10.0.0.2"),
            &["local-server=https://10.0.0.1:6443", "secure-port=6443"],
        ),
    ] {
        assert_eq!(listens(server, given).unwrap(), expected, "{server:?} {given:?}");
    }
    for (server, given, error) in [
        (
            &[][..],
            &none,
            "listens on all addresses, port 6443 (m.yaml), and mvp cannot listen there",
        ),
        (&["--bind-address=::"], &bind("10.0.0.1"), "add --steer, or give another --secure-port"),
        (&["--bind-address=10.0.0.1"], &none, "add --steer, or give another --bind-address or"),
        (&["--bind-address=10.0.0.1"], &bind("0.0.0.0"), "add --steer, or give another"),
        (&["--bind-address=127.0.0.1"], &none, "give the address at which clients reach this node"),
        (&loopback, &bind("0.0.0.0"), "give a --bind-address that is not kube-apiserver's"),
        (&["--secure-port=0"], &none, "\"0\" is not a port"),
        (&["--bind-address=host"], &none, "\"host\" is not an IP address"),
    ] {
        let told = listens(server, given).unwrap_err();
        assert!(told.contains(error), "{server:?}: {told}");
    }
}
