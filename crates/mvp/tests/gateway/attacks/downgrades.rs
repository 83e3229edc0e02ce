//! HTTP/2 requests that would become something else when they are written as HTTP/1.1, which is all
//! that the server speaks here.

use testkit::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, RawHttp2, block, frame, headers,
};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::target::{Other, Target};
use crate::support::client::connect;
use crate::support::pki::PKI;

type Field = (&'static [u8], &'static [u8]);

const METHOD: Field = (b":method", b"GET");
const SCHEME: Field = (b":scheme", b"https");
const AUTHORITY: Field = (b":authority", b"a");
const PATH: Field = (b":path", b"/x/first");
const PSEUDO: [Field; 4] = [METHOD, SCHEME, AUTHORITY, PATH];

/// Fields after the usual pseudo-headers.
const FIELDS: [Field; 36] = [
    (b"x\r\ny", b"z"),
    (b"x\ny", b"z"),
    (b"x\0y", b"z"),
    (b"x y", b"z"),
    (b"x: y\r\nx-remote-user", b"root"),
    (b"x:y", b"z"),
    (b"X-Upper", b"z"),
    (b"x\xc3\xa9", b"z"),
    (b"x(y)", b"z"),
    (b"", b"z"),
    (b"x", b"y\r\nx-remote-user: root"),
    (b"x", b"y\r\n\r\nGET /x/smuggled HTTP/1.1\r\nhost: a\r\n\r\n"),
    (b"x", b"y\nz: root"),
    (b"x", b"y\rz"),
    (b"x", b"y\0z"),
    (b"x", b"y\x7fz"),
    (b"transfer-encoding", b"chunked"),
    (b"transfer-encoding", b"identity"),
    (b"connection", b"close"),
    (b"connection", b"x-remote-user"),
    (b"proxy-connection", b"close"),
    (b"keep-alive", b"timeout=5"),
    (b"upgrade", b"h2c"),
    (b"upgrade", b"websocket"),
    (b"te", b"gzip"),
    (b"te", b"trailers, chunked"),
    (b":path", b"/x/smuggled"),
    (b":method", b"DELETE"),
    (b":authority", b"b"),
    (b":scheme", b"http"),
    (b":status", b"200"),
    (b":unknown", b"y"),
    (b":protocol", b"websocket"),
    (b"content-length", b"5"),
    (b"content-length", b"+0"),
    (b"content-length", b"0, 0"),
];

/// All fields of a request.
const HEADS: [&[Field]; 27] = [
    &[SCHEME, AUTHORITY, PATH],
    &[METHOD, SCHEME, AUTHORITY],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"x/first")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"*")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"?x")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/first HTTP/1.1\r\nx-remote-user: root\r\nx: y")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/first HTTP/1.1")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/fi\nrst")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/fi\trst")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/fi\0rst")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/fi\x7frst")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"/x/first#smuggled")],
    &[METHOD, SCHEME, AUTHORITY, (b":path", b"https://a/x/first")],
    &[(b":method", b"GET /x/smuggled HTTP/1.1\r\nhost: a\r\n\r\nGET"), SCHEME, AUTHORITY, PATH],
    &[(b":method", b"GET "), SCHEME, AUTHORITY, PATH],
    &[(b":method", b"G\0T"), SCHEME, AUTHORITY, PATH],
    &[(b":method", b""), SCHEME, AUTHORITY, PATH],
    &[(b":method", b"CONNECT"), (b":authority", b"a:443")],
    &[METHOD, (b":scheme", b"https://a/x/smuggled?"), AUTHORITY, PATH],
    &[METHOD, SCHEME, (b":authority", b"a\r\nx-remote-user: root"), PATH],
    &[METHOD, SCHEME, (b":authority", b"a b"), PATH],
    &[METHOD, SCHEME, (b":authority", b"a/x/smuggled?"), PATH],
    &[METHOD, SCHEME, (b":authority", b"root@a"), PATH],
    &[METHOD, SCHEME, PATH, (b"x", b"y"), AUTHORITY],
    &[(b"x", b"y"), METHOD, SCHEME, AUTHORITY, PATH],
    &[METHOD, METHOD, SCHEME, AUTHORITY, PATH],
];

/// Headers and frames of a POST whose body has another length than its head says.
const LENGTHS: [(&[u8], &[&[u8]]); 5] = [
    (b"5", &[b"hello, GET /x/smuggled"]),
    (b"5", &[b"hel"]),
    (b"0", &[b"x"]),
    (b"5", &[b""]),
    (b"5", &[b"hello", b"GET /x/smuggled HTTP/1.1\r\nhost: a\r\n\r\n"]),
];

async fn open(target: &Target) -> RawHttp2<TlsStream<TcpStream>> {
    let stream = connect(target.gateway.address, PKI.client(false, b"h2")).await.unwrap();
    RawHttp2::new(stream, &[]).await.unwrap()
}

/// Whether a request on stream 1 is refused: its stream or connection ends, or the answer is 400.
async fn is_refused(target: &Target, bytes: &[u8]) -> Result<(), String> {
    const STATUS_400: u8 = 0x8c;
    let mut connection = open(target).await;
    connection.send(bytes).await.map_err(|error| error.to_string())?;
    let answer = loop {
        match connection.answer(1).await {
            // The connection of an anonymous caller ends after each response.
            Some(frame) if frame.kind == GOAWAY && frame.payload.get(4..8) == Some(&[0; 4]) => {}
            answer => break answer,
        }
    };
    match answer {
        None => Ok(()),
        Some(frame) if matches!(frame.kind, RST_STREAM | GOAWAY) => Ok(()),
        Some(frame) if frame.kind == HEADERS && frame.payload.first() == Some(&STATUS_400) => {
            Ok(())
        }
        Some(frame) => Err(format!("{frame:?}")),
    }
}

#[tokio::test]
async fn a_head_that_http1_would_read_differently_is_refused() {
    let target = Target::start().await;
    let mut other = Other::start(&target.gateway).await;
    let before = target.errors().await;
    let with_field = FIELDS.iter().map(|field| [&PSEUDO[..], &[*field]].concat());
    let heads: Vec<Vec<Field>> = with_field.chain(HEADS.map(<[Field]>::to_vec)).collect();
    for head in &heads {
        if let Err(answer) = is_refused(&target, &headers(1, &block(head))).await {
            let head: Vec<_> = head
                .iter()
                .map(|(name, value)| [name, value].map(|text| String::from_utf8_lossy(text)))
                .collect();
            panic!("{head:?}: {answer}");
        }
    }
    target.saw_nothing();
    other.is_served("downgrades").await;
    // h2 resets a stream without an error of the connection; the others are counted.
    assert!(target.errors().await > before);
}

#[tokio::test]
async fn a_body_of_another_length_than_declared_never_becomes_a_request() {
    let target = Target::start().await;
    for (length, parts) in LENGTHS {
        let before = target.seen();
        let fields = [(&b":method"[..], &b"POST"[..]), SCHEME, AUTHORITY, PATH];
        let fields = [&fields[..], &[(&b"content-length"[..], length)]].concat();
        let mut bytes = frame(HEADERS, END_HEADERS, 1, &block(&fields));
        for (index, part) in parts.iter().enumerate() {
            let ends = if index + 1 == parts.len() { END_STREAM } else { 0 };
            bytes.extend(frame(DATA, ends, 1, part));
        }
        let refused = is_refused(&target, &bytes).await;
        let seen = target.since(&before);
        // The head may have been sent before the body was known to be wrong.
        assert!(seen.len() <= 1, "{seen:?}");
        assert!(seen.iter().all(|seen| seen.starts_with("POST /x/first ")), "{seen:?}");
        assert!(seen.iter().all(|seen| seen.ends_with(" (cut)")), "{length:?} {parts:?}: {seen:?}");
        assert_eq!(refused, Ok(()), "{length:?} {parts:?}");
    }
}

/// RFC 9113, section 8.3.1: `:authority` replaces `Host`.
#[tokio::test]
async fn one_host_reaches_the_server() {
    let target = Target::start().await;
    let host = |value: &'static [u8]| -> Field { (b"host", value) };
    for fields in [
        [&PSEUDO[..], &[host(b"evil")]].concat(),
        [&PSEUDO[..], &[host(b"evil"), host(b"worse")]].concat(),
        vec![METHOD, SCHEME, PATH, host(b"a")],
    ] {
        let answer = is_refused(&target, &headers(1, &block(&fields))).await;
        assert!(answer.is_err_and(|answer| answer.contains("kind: 1,")), "{fields:?}");
    }
    let seen = target.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|seen| seen.all("host") == ["a"]), "{seen:?}");
}
