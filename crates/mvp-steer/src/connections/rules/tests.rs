//! The rules, as tables.

use super::*;
use crate::connections::message::Key;

fn connection(remote: &str, local: &str) -> Connection {
    Connection {
        remote: remote.parse().unwrap(),
        local: local.parse().unwrap(),
        inode: 1,
        cookie: 1,
        steered: false,
        received_bytes: 0,
        sent_bytes: 0,
        unacknowledged: 0,
        last_sent: Duration::from_secs(2),
        last_received: Duration::from_secs(3),
        key: Key::default(),
    }
}

#[test]
fn steered_connections_loopback_and_other_ports_do_not_count() {
    for (remote, local, steered, expected) in [
        ("10.0.0.2:5000", "10.0.0.1:6443", false, true),
        ("[fd00::2]:5000", "[fd00::1]:6443", false, true),
        ("10.0.0.1:5000", "10.0.0.1:6443", false, true),
        ("10.0.0.2:5000", "10.0.0.1:6443", true, false),
        ("10.0.0.2:6443", "10.0.0.1:2379", false, false),
        ("127.0.0.1:5000", "127.0.0.1:6443", false, false),
        // Ours to a server that listens on one address.
        ("127.0.0.2:5000", "10.0.0.1:6443", false, false),
        ("[::1]:5000", "[::1]:6443", false, false),
    ] {
        let one = Connection { steered, ..connection(remote, local) };
        let all = Place { port: 6443, address: None };
        assert_eq!(is_unsteered(&one, all), expected, "{remote} {local} {steered}");
    }
}

#[test]
fn the_clients_of_another_program_on_the_port_do_not_count() {
    let only = Place { port: 6443, address: Some("10.0.0.1".parse().unwrap()) };
    for (local, expected) in
        [("10.0.0.1:6443", true), ("[::ffff:10.0.0.1]:6443", true), ("10.0.0.100:6443", false)]
    {
        assert_eq!(is_unsteered(&connection("10.0.0.2:5000", local), only), expected, "{local}");
    }
}

#[test]
fn only_connections_at_rest_may_be_ended() {
    let rests = connection("10.0.0.2:5000", "10.0.0.1:6443");
    let second = Duration::from_secs(1);
    assert!(is_at_rest(&rests, second));
    assert!(is_at_rest(&rests, Duration::from_secs(2)));
    assert!(!is_at_rest(&rests, Duration::from_millis(2001)), "it sent 2 s ago");
    for busy in [
        Connection { received_bytes: 1, ..rests.clone() },
        Connection { sent_bytes: 1, ..rests.clone() },
        Connection { unacknowledged: 1, ..rests.clone() },
        Connection { last_sent: Duration::from_millis(999), ..rests.clone() },
        Connection { last_received: Duration::from_millis(999), ..rests.clone() },
    ] {
        assert!(!is_at_rest(&busy, second), "{busy:?}");
    }
}

#[test]
fn a_server_is_told_from_its_clients() {
    const NEAR: u32 = 11;
    const FAR: u32 = 22;
    let seen = |near: &[u32], far: &[u32]| Owners::new(&[(NEAR, near), (FAR, far)]);
    for (far_end, owners, wildcard, expected) in [
        // From another host, or through a Service address.
        (None, seen(&[], &[]), false, Kin::Client),
        (None, seen(&[5], &[]), true, Kin::Client),
        // One process holds both ends.
        (Some(FAR), seen(&[5], &[5]), false, Kin::Own),
        (Some(FAR), seen(&[5], &[5]), true, Kin::Own),
        (Some(FAR), seen(&[4, 5], &[5, 6]), false, Kin::Own),
        (Some(FAR), seen(&[5], &[6]), false, Kin::Client),
        // A process that can be seen does not hold the other end.
        (Some(FAR), seen(&[5], &[]), false, Kin::Client),
        (Some(FAR), seen(&[], &[6]), false, Kin::Client),
        // Nobody can be seen: a server on all addresses talks to itself over loopback.
        (Some(FAR), seen(&[], &[]), true, Kin::Client),
        (Some(FAR), seen(&[], &[]), false, Kin::Unclear),
    ] {
        let found = kin(NEAR, far_end, &owners, wildcard);
        assert_eq!(found, expected, "{far_end:?} {owners:?} {wildcard}");
    }
}
