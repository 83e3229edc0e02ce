//! The program in the kernel, in a network namespace of its own. Without the rights for it (this
//! needs root) nothing is tested here; the interpreter's tests need none, and the `node` cases of
//! `e2e` test it with real servers.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use super::*;
use crate::test_network::{in_a_network_of_its_own, not_tested};

const PORT: u16 = 6443;

/// A server that answers each connection with its name.
fn server(name: &'static [u8], address: SocketAddr) -> TcpListener {
    let listener = TcpListener::bind(address).unwrap();
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || {
        for stream in accepting.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(name));
        }
    });
    listener
}

fn asked(address: &str) -> String {
    let mut answer = String::new();
    let address = SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT);
    TcpStream::connect(address).unwrap().read_to_string(&mut answer).unwrap();
    answer
}

/// Waits for an answer of `expected`. It beats before each question: on a busy machine a beat may be
/// old when the connection arrives.
fn answers(expected: &str, address: &str, beat: impl Fn()) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        beat();
        let answer = asked(address);
        if answer == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{address} is still answered by {answer}");
    }
}

fn attached(listener: &TcpListener, beats: u16) -> Option<Steering> {
    let steered = Steered { port: PORT, address: None, ipv4: &[listener.as_fd()], ipv6: &[] };
    match Steering::attach(&steered, beats) {
        Ok(steering) => Some(steering),
        Err(SteerError::NotPermitted { what }) => {
            not_tested(what);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn connections_are_steered_while_all_threads_beat() {
    in_a_network_of_its_own(|| {
        let _server = server(b"server", ([0, 0, 0, 0], PORT).into());
        let ours = server(b"ours", ([127, 0, 0, 1], 0).into());
        assert_eq!(asked("10.9.9.1"), "server");
        let Some(steering) = attached(&ours, 2) else { return };
        assert_eq!(asked("10.9.9.1"), "server", "inert until every thread beats");
        let (first, second) = (steering.beat(0), steering.beat(1));
        first.beat(BEAT_LIMIT);
        assert_eq!(asked("10.9.9.1"), "server", "inert until every thread beats");
        // The beats come from here, so that none can be late.
        let beat = || {
            first.beat(BEAT_LIMIT);
            second.beat(BEAT_LIMIT);
        };
        answers("ours", "10.9.9.1", beat);
        second.pause();
        assert!(!steering.is_active(), "one thread cannot serve");
        beat();
        assert_eq!(asked("127.0.0.1"), "server", "loopback is never steered");
        beat();
        second.pause();
        assert_eq!(asked("10.9.9.1"), "server", "one thread cannot serve");
        answers("ours", "10.9.9.1", beat);
        beat();
        drop(second);
        assert_eq!(asked("10.9.9.1"), "server", "one thread ended");
        steering.beat(1).beat(BEAT_LIMIT);
        steering.detach();
        first.beat(BEAT_LIMIT);
        assert_eq!(asked("10.9.9.1"), "server", "detached");
    });
}

#[test]
fn a_newer_program_takes_over_and_leaves_to_the_older_one() {
    in_a_network_of_its_own(|| {
        let _server = server(b"server", ([0, 0, 0, 0], PORT).into());
        let [old, new] = [b"old", b"new"].map(|name| server(name, ([127, 0, 0, 1], 0).into()));
        let Some(older) = attached(&old, 1) else { return };
        let newer = attached(&new, 1).unwrap();
        let (old_beat, new_beat) = (older.beat(0), newer.beat(0));
        let both = || {
            old_beat.beat(BEAT_LIMIT);
            new_beat.beat(BEAT_LIMIT);
        };
        // The newer one is not ready yet.
        answers("old", "10.9.9.1", || old_beat.beat(BEAT_LIMIT));
        answers("new", "10.9.9.1", both);
        newer.detach();
        answers("old", "10.9.9.1", both);
        both();
        older.detach();
        assert_eq!(asked("10.9.9.1"), "server");
    });
}

#[test]
fn an_ipv6_connection_needs_a_listener_for_ipv6() {
    in_a_network_of_its_own(|| {
        let _server = server(b"server", "[::]:6443".parse().unwrap());
        let [four, six] =
            ["127.0.0.1:0", "[::1]:0"].map(|address| server(b"ours", address.parse().unwrap()));
        let Some(only_four) = attached(&four, 1) else { return };
        let beat = only_four.beat(0);
        beat.beat(BEAT_LIMIT);
        assert_eq!(asked("fd00::9"), "server");
        let steered =
            Steered { port: PORT, address: None, ipv4: &[four.as_fd()], ipv6: &[six.as_fd()] };
        let both = Steering::attach(&steered, 1).unwrap();
        let beat = both.beat(0);
        answers("ours", "fd00::9", || beat.beat(BEAT_LIMIT));
        beat.beat(BEAT_LIMIT);
        assert_eq!(asked("::1"), "server", "loopback is never steered");
        answers("ours", "10.9.9.1", || beat.beat(BEAT_LIMIT));
    });
}

#[test]
fn connections_are_spread_over_all_listeners_and_no_others() {
    in_a_network_of_its_own(|| {
        let _server = server(b"server", ([0, 0, 0, 0], PORT).into());
        let names: [&[u8]; 3] = [b"first", b"second", b"third"];
        let ours = names.map(|name| server(name, ([127, 0, 0, 1], 0).into()));
        let ipv4 = ours.each_ref().map(AsFd::as_fd);
        let steered = Steered { port: PORT, address: None, ipv4: &ipv4, ipv6: &[] };
        let steering = match Steering::attach(&steered, 1) {
            Ok(steering) => steering,
            Err(SteerError::NotPermitted { what }) => return not_tested(what),
            Err(error) => panic!("{error}"),
        };
        let beat = steering.beat(0);
        for name in ["first", "second", "third"] {
            answers(name, "10.9.9.1", || beat.beat(BEAT_LIMIT));
        }
    });
}

#[test]
fn a_server_on_one_address_leaves_the_others_alone() {
    in_a_network_of_its_own(|| {
        let [four, six] =
            ["127.0.0.1:0", "[::1]:0"].map(|address| server(b"ours", address.parse().unwrap()));
        let addresses = ["10.9.9.1", "fd00::9"];
        let _servers = addresses
            .map(|address| server(b"server", SocketAddr::new(address.parse().unwrap(), PORT)));
        for (only, other) in [(addresses[0], addresses[1]), (addresses[1], addresses[0])] {
            let address = Some(only.parse().unwrap());
            let steered =
                Steered { port: PORT, address, ipv4: &[four.as_fd()], ipv6: &[six.as_fd()] };
            let steering = match Steering::attach(&steered, 1) {
                Ok(steering) => steering,
                Err(SteerError::NotPermitted { what }) => return not_tested(what),
                Err(error) => panic!("{error}"),
            };
            let beat = steering.beat(0);
            answers("ours", only, || beat.beat(BEAT_LIMIT));
            beat.beat(BEAT_LIMIT);
            assert_eq!(asked(other), "server", "another address of the same port");
        }
    });
}

#[test]
fn the_time_to_fail_open_is_at_most_300_milliseconds() {
    // The program compares with the last beat, and one more may be under way when a thread hangs.
    assert!(BEAT_LIMIT + BEAT_INTERVAL <= Duration::from_millis(300));
}

#[test]
fn a_thread_that_hangs_fails_open_by_itself() {
    in_a_network_of_its_own(|| {
        let _server = server(b"server", ([0, 0, 0, 0], PORT).into());
        let ours = server(b"ours", ([127, 0, 0, 1], 0).into());
        let Some(steering) = attached(&ours, 1) else { return };
        let beat = steering.beat(0);
        answers("ours", "10.9.9.1", || beat.beat(BEAT_LIMIT));
        // No more beats: connections reach the server as soon as the last one has expired.
        answers("server", "10.9.9.1", || {});
        assert_ne!(beat.last(), 0, "nobody paused it");
        assert!(beat.late().is_some());
        beat.pause();
        assert_eq!(beat.late(), None, "on purpose");
    });
}

#[test]
fn a_beat_that_holds_longer_is_late_later() {
    in_a_network_of_its_own(|| {
        let _server = server(b"server", ([0, 0, 0, 0], PORT).into());
        let ours = server(b"ours", ([127, 0, 0, 1], 0).into());
        let Some(steering) = attached(&ours, 2) else { return };
        let (first, second) = (steering.beat(0), steering.beat(1));
        let both = || {
            first.beat(LONGEST_BEAT);
            second.beat(LONGEST_BEAT * 100);
        };
        // Accepted by the kernel's program, too.
        answers("ours", "10.9.9.1", both);
        // Whatever is asked for, it expires.
        let began = Instant::now();
        both();
        answers("server", "10.9.9.1", || thread::sleep(Duration::from_millis(10)));
        assert!(began.elapsed() >= LONGEST_BEAT, "{:?}", began.elapsed());
        assert!(!steering.is_active());
    });
}
