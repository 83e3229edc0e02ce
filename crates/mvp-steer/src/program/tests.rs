//! The decisions of the program, by an interpreter of its instructions.

mod interpreter;

use std::net::IpAddr;
use std::time::Duration;

use self::interpreter::{Connection, World, run};
use super::*;

const PORT: u16 = 6443;
const NOW: u64 = 1_000_000_000_000;
/// The furthest that a beat may expire in the future.
const FURTHEST: u64 = 2_000_000_000;

fn settings(beats: u16) -> Settings {
    Settings {
        port: PORT,
        address: None,
        beats,
        furthest: Duration::from_nanos(FURTHEST),
        beats_map: interpreter::BEATS_MAP,
        listeners: 1,
        listeners_map: interpreter::LISTENERS_MAP,
    }
}

fn connection(remote: &str, local: &str, port: u16) -> Connection {
    let [remote, local] = [remote, local].map(|ip| ip.parse::<IpAddr>().unwrap());
    Connection { protocol: TCP, remote, local, port, remote_port: 40_000 }
}

/// The listener that is chosen, by its index, in a healthy process.
fn chosen(connection: &Connection) -> Option<u32> {
    let world =
        World { now: NOW, beats: vec![NOW, NOW + 1, NOW + FURTHEST], listeners: vec![true; 2] };
    run(&assemble(&settings(3)), connection, &world)
}

#[test]
fn only_new_connections_of_the_port_from_outside_are_steered() {
    let steered = [
        ("10.0.0.9", "10.0.0.1", 0),
        // The node's own clients use its address: kubelet, the controller manager.
        ("10.0.0.1", "10.0.0.1", 0),
        // An address with a loopback octet elsewhere, and one with its sign bit set.
        ("192.127.0.1", "10.127.0.1", 0),
        ("255.0.0.127", "200.1.1.127", 0),
        ("fd00::9", "fd00::1", 1),
        // Each word of an address counts.
        ("fd00::1", "fe80::1", 1),
        ("0:0:0:1::1", "0:1::1", 1),
        ("::2", "::100:1", 1),
    ];
    for (remote, local, listener) in steered {
        let connection = connection(remote, local, PORT);
        assert_eq!(chosen(&connection), Some(listener), "{remote} to {local}");
    }
    let passed = [
        ("127.0.0.1", "10.0.0.1"),
        ("127.255.255.254", "10.0.0.1"),
        ("10.0.0.9", "127.0.0.1"),
        ("10.0.0.9", "127.9.9.9"),
        ("::1", "fd00::1"),
        ("fd00::9", "::1"),
    ];
    for (remote, local) in passed {
        assert_eq!(chosen(&connection(remote, local, PORT)), None, "{remote} to {local}");
    }
}

#[test]
fn connections_for_other_addresses_pass_if_there_is_only_one() {
    let world = World { now: NOW, beats: vec![NOW], listeners: vec![true; 2] };
    let chosen = |only: &str, remote, local| {
        let address = Some(only.parse::<IpAddr>().unwrap());
        let program = assemble(&Settings { address, ..settings(1) });
        run(&program, &connection(remote, local, PORT), &world)
    };
    for only in ["10.0.0.1", "200.1.1.127"] {
        assert_eq!(chosen(only, "10.0.0.9", only), Some(0));
        for local in ["10.0.0.2", "11.0.0.1", "200.1.1.126", "127.0.0.1"] {
            assert_eq!(chosen(only, "10.0.0.9", local), None, "{local} is not {only}");
        }
        assert_eq!(chosen(only, "127.0.0.2", only), None, "the way around");
        assert_eq!(chosen(only, "fd00::9", "fd00::1"), None);
    }
    let only = "fd00:1:2:3:4:5:6:7";
    assert_eq!(chosen(only, "fd00::9", only), Some(1));
    // Each word of the address counts.
    for local in
        ["fd01:1:2:3:4:5:6:7", "fd00:1:3:3:4:5:6:7", "fd00:1:2:3:4:6:6:7", "fd00:1:2:3:4:5:6:8"]
    {
        assert_eq!(chosen(only, "fd00::9", local), None, "{local}");
    }
    assert_eq!(chosen(only, "::1", only), None, "the way around");
    assert_eq!(chosen(only, "10.0.0.9", "10.0.0.1"), None);
}

#[test]
fn other_ports_and_protocols_are_never_steered() {
    for port in [0, 443, PORT - 1, PORT + 1, u16::MAX] {
        assert_eq!(chosen(&connection("10.0.0.9", "10.0.0.1", port)), None, "{port}");
    }
    let udp = Connection { protocol: 17, ..connection("10.0.0.9", "10.0.0.1", PORT) };
    assert_eq!(chosen(&udp), None);
}

#[test]
fn one_expired_beat_of_many_fails_open() {
    let outside = connection("10.0.0.9", "10.0.0.1", PORT);
    for count in [1, 2, 3, 65] {
        let program = assemble(&settings(count));
        let world = |beats| World { now: NOW, beats, listeners: vec![true; 2] };
        let valid = vec![NOW + 1; usize::from(count)];
        assert_eq!(run(&program, &outside, &world(valid.clone())), Some(0));
        for late in 0..usize::from(count) {
            let with = |time| {
                let mut beats = valid.clone();
                beats[late] = time;
                run(&program, &outside, &world(beats))
            };
            assert_eq!(with(NOW), Some(0), "{late} of {count}");
            assert_eq!(with(NOW - 1), None, "{late} of {count}");
            assert_eq!(with(0), None, "a thread that has not begun, or ended");
            assert_eq!(with(NOW + FURTHEST), Some(0), "the others expire first");
        }
    }
    let of_one = |expires| {
        let world = World { now: NOW, beats: vec![expires], listeners: vec![true; 2] };
        run(&assemble(&settings(1)), &outside, &world)
    };
    // The clock of another processor may be ahead by a little, but not by more.
    assert_eq!(of_one(NOW + FURTHEST), Some(0));
    assert_eq!(of_one(NOW + FURTHEST + 900_000), Some(0));
    assert_eq!(of_one(NOW + FURTHEST + 1_100_000), None);
    // In a time namespace the clock of the process may be far ahead: it could not fail open.
    assert_eq!(of_one(NOW + 3_600_000_000_000), None);
    assert_eq!(of_one(u64::MAX), None);
}

#[test]
fn without_a_listener_for_its_family_a_connection_passes() {
    let program = assemble(&settings(1));
    let world =
        |listeners: [bool; 2]| World { now: NOW, beats: vec![NOW], listeners: listeners.to_vec() };
    let (ipv4, ipv6) =
        (connection("10.0.0.9", "10.0.0.1", PORT), connection("fd00::9", "fd00::1", PORT));
    assert_eq!(run(&program, &ipv4, &world([false, true])), None);
    assert_eq!(run(&program, &ipv6, &world([false, true])), Some(1));
    assert_eq!(run(&program, &ipv6, &world([true, false])), None);
    assert_eq!(run(&program, &ipv4, &world([true, false])), Some(0));
}

#[test]
fn connections_are_spread_over_the_listeners_of_their_family() {
    for listeners in [2_u16, 3, 16] {
        let program = assemble(&Settings { listeners, ..settings(1) });
        let count = usize::from(listeners);
        let world = World { now: NOW, beats: vec![NOW], listeners: vec![true; 2 * count] };
        for (remote, local, first) in
            [("10.0.0.9", "10.0.0.1", 0), ("fd00::9", "fd00::1", u32::from(listeners))]
        {
            // As Linux chooses them: all even.
            let ports = (32_768..60_999).step_by(2);
            let mut chosen = vec![0_usize; count];
            for remote_port in ports.clone() {
                let connection = Connection { remote_port, ..connection(remote, local, PORT) };
                let index = run(&program, &connection, &world).unwrap() - first;
                assert_eq!(run(&program, &connection, &world), Some(first + index), "each time");
                chosen[usize::try_from(index).unwrap()] += 1;
            }
            let fair = ports.count() / count;
            assert!(chosen.iter().all(|share| share.abs_diff(fair) < fair / 10), "{chosen:?}");
        }
    }
}
