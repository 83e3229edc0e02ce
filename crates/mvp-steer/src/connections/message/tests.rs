//! Recorded answers of Linux 6.18 on a little-endian machine, whole and damaged.

use super::*;

const PORT: u16 = 6443;
/// An IPv6 listener on all addresses accepted these: from 10.9.9.1, from fd00::9, and over loopback.
const IPV6: &str = include_str!("tests/ipv6.hex");
/// A listener with `IP_FREEBIND` accepted this one.
const IPV4: &str = include_str!("tests/ipv4.hex");
/// The answer to a request that does not exist.
const REFUSED: &str = include_str!("tests/refused.hex");

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn parsed(bytes: &[u8]) -> Result<Part, ConnectionError> {
    parse(bytes, Ports::at(PORT), 1)
}

fn ends(socket: &Socket) -> (String, String) {
    (socket.remote.to_string(), socket.local.to_string())
}

#[test]
#[cfg(target_endian = "little")]
fn recorded_connections_are_read() {
    let part = parsed(&bytes(IPV6)).unwrap();
    assert_eq!((part.end, part.interrupted), (Some(0), false));
    let mut found: Vec<_> = part.sockets.iter().map(ends).collect();
    found.sort();
    let expected = [
        ("10.9.9.1:40001", "10.9.9.1:6443"),
        ("127.0.0.1:40003", "127.0.0.1:6443"),
        ("[fd00::9]:40002", "[fd00::9]:6443"),
    ];
    assert_eq!(found, expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
    for socket in &part.sockets {
        assert_eq!(socket.options, Some(Options { freebind: false }));
        // The client over loopback sent 13 bytes that nobody read, 300 ms before the recording.
        let unread = if socket.remote.ip().is_loopback() { 13 } else { 0 };
        assert_eq!((socket.received_bytes, socket.sent_bytes), (unread, 0), "{socket:?}");
        let info = socket.info.unwrap();
        let times = Duration::from_millis(250)..Duration::from_secs(5);
        assert!(times.contains(&info.last_received), "{socket:?}");
        assert!(times.contains(&info.last_sent), "{socket:?}");
        assert_eq!(info.unacknowledged, 0);
        assert_ne!((socket.inode, socket.key.cookie()), (0, 0));
    }
    let part = parsed(&bytes(IPV4)).unwrap();
    let [socket] = &part.sockets[..] else { panic!("{part:?}") };
    assert_eq!(ends(socket), ("10.9.9.1:40004".to_owned(), "10.9.9.1:6443".to_owned()));
    assert_eq!(socket.options, Some(Options { freebind: true }));
}

#[test]
#[cfg(target_endian = "little")]
fn a_refusal_has_the_error_of_the_kernel() {
    let part = parsed(&bytes(REFUSED)).unwrap();
    assert_eq!(part, Part { end: Some(libc::EINVAL), ..Part::default() });
}

#[test]
fn sockets_of_other_ports_and_requests_are_left_out() {
    let other = parse(&bytes(IPV4), Ports::at(443), 1).unwrap();
    assert_eq!(other, Part { end: Some(0), ..Part::default() });
    let to = parse(&bytes(IPV4), Ports::to(40004), 1).unwrap();
    assert_eq!(to.sockets.len(), 1);
    assert_eq!(parse(&bytes(IPV4), Ports::at(PORT), 2).unwrap(), Part::default());
}

#[test]
fn damaged_messages_are_errors_and_never_more_sockets() {
    for recorded in [IPV4, IPV6, REFUSED] {
        let whole = bytes(recorded);
        let sockets = parsed(&whole).unwrap().sockets.len();
        for length in 0..whole.len() {
            if let Ok(part) = parsed(&whole[..length]) {
                assert_eq!(part.end, None, "cut at {length}");
                assert!(part.sockets.len() <= sockets, "cut at {length}");
            }
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[length] = value;
                if let Ok(part) = parsed(&damaged) {
                    assert!(part.sockets.len() <= sockets, "{value} at {length}");
                }
            }
        }
    }
    assert!(parsed(&[0; 64]).is_err(), "a message has at least a header");
    assert!(parsed(&[1]).is_err());
}

#[test]
fn an_interrupted_list_is_marked() {
    let mut damaged = bytes(IPV4);
    damaged[6..8].copy_from_slice(&(2 | INTERRUPTED).to_ne_bytes());
    assert!(parsed(&damaged).unwrap().interrupted);
}

#[test]
#[cfg(target_endian = "little")]
fn requests_are_what_the_kernel_expects() {
    // The refused request, which its answer repeats after the error, had another command and flags.
    let mut expected = bytes(REFUSED)[20..].to_vec();
    expected[4] = 20;
    expected[6..8].copy_from_slice(&[0x01, 0x03]);
    // The sender, which the kernel fills in.
    expected[12..16].fill(0);
    assert_eq!(list_request(AF_INET6, Ports::at(PORT), ESTABLISHED, 1), expected);
    let part = parsed(&bytes(IPV4)).unwrap();
    let request = end_request(&part.sockets[0].key, 1);
    assert_eq!(request.len(), 72);
    assert_eq!(&request[4..8], [21, 0, 0x05, 0]);
    assert_eq!(request[24..], bytes(IPV4)[20..68], "the identity of the socket, as it was told");
}
