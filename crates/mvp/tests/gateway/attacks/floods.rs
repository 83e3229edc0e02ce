//! Clients that flood an HTTP/2 connection with frames, and read nothing.

use std::time::Duration;

use testkit::http2::{
    CONTINUATION, DATA, END_HEADERS, GET_ROOT, HEADERS, PING, PRIORITY, RawHttp2, SETTINGS,
    WINDOW_UPDATE, block, frame, headers,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::target::{Other, Target};
use crate::cluster::{BULKS, Bulk, beside_bulk};
use crate::support::client::{connect, secure};
use crate::support::pki::PKI;
use crate::support::{DEADLINE, eventually};

const MIB: u64 = 1 << 10;
/// What a flood may cost, in KiB of memory.
const BOUND: u64 = 64 * MIB;
/// A flood that is neither ended nor stalled ends after so many bytes: more than the kernel buffers of a
/// connection, so that one that wants answers stalls.
const MOST: usize = 16 << 20;
/// The same of one that wants none.
const WITHOUT_ANSWERS: usize = 2 << 20;
/// A write that takes longer is stalled.
const STALLED: Duration = Duration::from_secs(1);

/// How a flood ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The gateway ends the connection.
    Ended,
    /// The gateway reads no more until the client reads.
    Stalled,
    /// All of it was read.
    Read,
}

/// A client whose kernel buffers little that it does not read.
async fn open(target: &Target) -> RawHttp2<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(target.gateway.address).await.unwrap();
    let stream = secure(stream, PKI.client(true, b"h2")).await.unwrap();
    RawHttp2::new(stream, &[]).await.unwrap()
}

/// Sends a start, then the same bytes again and again.
async fn flood(target: &Target, start: &[u8], again: impl Fn(u32) -> Vec<u8>, most: usize) -> End {
    let mut connection = open(target).await;
    connection.send(start).await.unwrap();
    let mut sent = 0;
    let mut turn = 0;
    while sent < most {
        let mut piece = Vec::new();
        while piece.len() < 1 << 14 {
            piece.extend(again(turn));
            turn += 1;
        }
        sent += piece.len();
        let write = async {
            connection.stream.write_all(&piece).await?;
            connection.stream.flush().await
        };
        match timeout(STALLED, write).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return End::Ended,
            Err(_) => return End::Stalled,
        }
    }
    End::Read
}

/// Runs a flood beside another client. Returns how it ended.
async fn contained(
    target: &Target,
    name: &str,
    start: &[u8],
    again: impl Fn(u32) -> Vec<u8>,
    most: usize,
) -> End {
    let before = target.gateway.memory().now;
    let mut other = Other::start(&target.gateway).await;
    let end = {
        let mut flooding = std::pin::pin!(flood(target, start, again, most));
        loop {
            tokio::select! {
                end = &mut flooding => break end,
                () = other.is_served(name) => {}
            }
        }
    };
    // Its last round may have been dropped half way.
    Other::start(&target.gateway).await.is_served(name).await;
    let cost = target.gateway.memory().most.saturating_sub(before);
    println!("{name}: {end:?}, {cost} KiB");
    assert!(cost <= BOUND, "{name}: {cost} KiB");
    end
}

const ROOT_POST: [u8; 6] = [0x83, 0x84, 0x87, 0x01, 0x01, b'a'];

/// A header block without an end: names and values, or frames without anything.
#[tokio::test]
async fn floods_of_continuation_frames_end_their_connection() {
    let target = Target::start().await;
    let before = target.errors().await;
    let start = frame(HEADERS, 1, 1, &GET_ROOT);
    let long = block(&[(b"x", &[b'y'; 1000])]);
    for (name, part) in [("CONTINUATION", &long[..]), ("empty CONTINUATION", &[])] {
        let again = |_| frame(CONTINUATION, 0, 1, part);
        assert_eq!(contained(&target, name, &start, again, MOST).await, End::Ended);
    }
    eventually("both are counted", async || match target.errors().await {
        errors if errors >= before + 2 => Ok(()),
        errors => Err(errors),
    })
    .await;
}

/// Each asks for an answer, which the client does not read.
#[tokio::test]
async fn floods_of_frames_that_want_an_answer_are_not_buffered() {
    let target = Target::start().await;
    let ping = |_| frame(PING, 0, 0, &[7; 8]);
    assert_ne!(contained(&target, "PING", &[], ping, MOST).await, End::Read);
    let settings = |_| frame(SETTINGS, 0, 0, &[]);
    assert_ne!(contained(&target, "SETTINGS", &[], settings, MOST).await, End::Read);
}

/// Each is small and changes nothing.
#[tokio::test]
async fn floods_of_empty_frames_disturb_nobody() {
    let target = Target::start().await;
    let post = frame(HEADERS, END_HEADERS, 1, &ROOT_POST);
    let most = WITHOUT_ANSWERS;
    contained(&target, "empty DATA", &post, |_| frame(DATA, 0, 1, &[]), most).await;
    let more = |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    contained(&target, "WINDOW_UPDATE", &[], more, most).await;
    let priority = |n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 9]);
    contained(&target, "PRIORITY", &[], priority, most).await;
    contained(&target, "an unknown type", &[], |_| frame(0xfa, 0, 0, &[]), most).await;
}

/// "Made you reset": a frame that is an error on an open stream makes the gateway reset it.
#[tokio::test]
async fn a_client_that_makes_the_gateway_reset_streams_loses_its_connection() {
    let target = Target::start().await;
    let before = target.errors().await;
    let again = |n| {
        let stream = 2 * n + 1;
        [headers(stream, &GET_ROOT), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    };
    assert_eq!(contained(&target, "reset by the gateway", &[], again, MOST).await, End::Ended);
    eventually("it is counted", async || match target.errors().await {
        errors if errors > before => Ok(()),
        errors => Err(errors),
    })
    .await;
}

/// Large responses for a client that never opens its window, over one connection with as many streams
/// as it may have.
#[tokio::test]
async fn responses_for_a_client_without_a_window_are_not_buffered() {
    const STREAMS: u32 = 250;
    const NO_WINDOW: (u16, u32) = (4, 0);
    const BUFFERED_EACH: u64 = 512;
    let bulk = Bulk::default();
    let (b, _peer) = beside_bulk(bulk.clone()).await;
    let before = b.gateway.memory().now;
    let stream = connect(b.gateway.address, PKI.client(true, b"h2")).await.unwrap();
    let mut connection = RawHttp2::new(stream, &[NO_WINDOW]).await.unwrap();
    let path = format!("{BULKS}/{}", 64 << 20);
    for number in 0..STREAMS {
        let fields: [(&[u8], &[u8]); 4] = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"a"),
            (b":path", path.as_bytes()),
        ];
        connection.send(&headers(2 * number + 1, &block(&fields))).await.unwrap();
    }
    let mut answered = 0;
    timeout(DEADLINE, async {
        while answered < STREAMS {
            let frame = connection.frame().await.expect("the connection goes on");
            answered += u32::from(frame.kind == HEADERS);
            assert_ne!((frame.kind, frame.payload.is_empty()), (DATA, false));
        }
    })
    .await
    .expect("every request is answered");
    bulk.rests().await;
    Other::start(&b.gateway).await.is_served("a client without a window").await;
    let cost = b.gateway.memory().now.saturating_sub(before);
    println!("{STREAMS} responses without a window: {cost} KiB");
    assert!(cost <= u64::from(STREAMS) * BUFFERED_EACH, "{cost} KiB");
}
