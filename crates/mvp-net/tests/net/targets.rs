//! A request target with a `#` is refused over both protocols, and nothing else is touched.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use mvp_net::Limits;
use testkit::http2::{GET_ROOT, HEADERS, RST_STREAM, headers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower::service_fn;
use tower::util::BoxCloneService;

use crate::support::{Gateway, H1, get, soon};

type Seen = Arc<Mutex<Vec<String>>>;

/// Remembers target and body of each request. `/upgrade` becomes a tunnel that echoes, for those
/// who ask for one.
fn gateway() -> (Gateway, Seen) {
    let seen = Seen::default();
    let remembered = Arc::clone(&seen);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let remembered = Arc::clone(&remembered);
        async move {
            let mut response = Response::new(Full::from("fine").boxed());
            if request.uri().path() == "/upgrade" {
                let upgrade = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut tunnel = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
                    let mut bytes = [0; 64];
                    while let Ok(read @ 1..) = tunnel.read(&mut bytes).await {
                        tunnel.write_all(&bytes[..read]).await.unwrap();
                    }
                });
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                return Ok::<_, Infallible>(response);
            }
            let target = request.uri().to_string();
            let header = request.headers().get("x-hash").cloned();
            let Ok(body) = request.into_body().collect().await else {
                *response.status_mut() = StatusCode::BAD_REQUEST;
                return Ok(response);
            };
            let body = body.to_bytes();
            let header = header.map(|value| value.to_str().unwrap().to_owned());
            let body = String::from_utf8(body.to_vec()).unwrap();
            remembered
                .lock()
                .unwrap()
                .push(format!("{target} {} {body}", header.unwrap_or_default()));
            Ok(response)
        }
    });
    (Gateway::with_service(Limits::default(), BoxCloneService::new(service)), seen)
}

async fn http1(gateway: &Gateway) -> TlsStream<TcpStream> {
    gateway.connect(gateway.authorities.client_tls(None).config(&[H1])).await
}

/// The status of each response to these bytes, written in pieces, until the connection ends.
async fn statuses(gateway: &Gateway, bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut reading, mut writing) = tokio::io::split(http1(gateway).await);
    let write = async {
        for piece in bytes.chunks(piece) {
            // It may have ended the connection already.
            if writing.write_all(piece).await.is_err() || writing.flush().await.is_err() {
                break;
            }
        }
    };
    let mut answer = Vec::new();
    let read = async {
        let _ = reading.read_to_end(&mut answer).await;
    };
    soon(async { tokio::join!(write, read) }).await;
    let text = String::from_utf8_lossy(&answer);
    // `HTTP/1.1 200` or `HTTP/1.0 200`
    let responses = text.split("HTTP/1.").skip(1);
    responses.map(|response| response[2..5].to_owned()).collect()
}

const LAST: &str = "GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_hash_in_an_http1_target_is_a_400() {
    let (gateway, seen) = gateway();
    for target in ["/secrets#keep", "/secrets?a=b#c", "#", "/#", "https://gateway/secrets#keep"] {
        let text = format!("DELETE {target} HTTP/1.1\r\nhost: a\r\n\r\n{LAST}");
        for piece in [1, 7, 1000] {
            assert_eq!(statuses(&gateway, text.as_bytes(), piece).await, ["400"], "{target}");
        }
    }
    assert!(seen.lock().unwrap().is_empty());
    let pipelined = "GET /one HTTP/1.1\r\nhost: a\r\n\r\nGET /two#x HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(statuses(&gateway, pipelined.as_bytes(), 1).await, ["200", "400"]);
    assert_eq!(*seen.lock().unwrap(), ["/one  "]);
}

#[tokio::test]
async fn a_hash_anywhere_else_in_http1_passes() {
    let body = "GET /in/the/body#x HTTP/1.1\r\nhost: a\r\n\r\n";
    let length = body.len();
    let with_length = format!(
        "\r\nPOST /length HTTP/1.1\r\nhost: a\r\nx-hash: #1\r\nContent-LENGTH:  {length} \r\n\r\n{body}"
    );
    let chunked = format!(
        "POST /chunked HTTP/1.1\nhost: a\nx-hash:#2#\nTransfer-Encoding: Chunked\t\n\n\
         {length:x};ext=#\r\n{body}\r\n3 \r\n#\r\n\r\n0\r\nx-trailer: #\r\nx-other: #\r\n\r\n"
    );
    let old = "GET /old HTTP/1.0\r\nconnection: keep-alive\r\nupgrade: none\r\n\r\n";
    let text = format!("{with_length}{chunked}{old}{LAST}");
    let expected = [
        format!("/length #1 {body}"),
        format!("/chunked #2# {body}#\r\n"),
        "/old  ".to_owned(),
        "/last  ".to_owned(),
    ];
    for piece in [1, 2, 3, 50, 10_000] {
        let (gateway, seen) = gateway();
        let statuses = statuses(&gateway, text.as_bytes(), piece).await;
        assert_eq!(statuses.len(), expected.len(), "{statuses:?}");
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}

#[tokio::test]
async fn a_body_whose_length_is_in_doubt_is_refused() {
    let (gateway, seen) = gateway();
    let smuggled = "GET /smuggled#x HTTP/1.1\r\nhost: a\r\n\r\n";
    for (headers, status) in [
        ("content-length: 0\r\ncontent-length: 40\r\n", "400"),
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n", "400"),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "400"),
        ("transfer-encoding: identity\r\n", "501"),
        ("transfer-encoding: chunked, identity\r\n", "501"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", "501"),
        ("content-length: +5\r\n", "400"),
        ("content-length: 99999999999999999999999\r\n", "400"),
        ("content-length : 5\r\n", "400"),
    ] {
        let text = format!("POST / HTTP/1.1\r\nhost: a\r\n{headers}\r\n0\r\n\r\n{smuggled}");
        for piece in [1, 1000] {
            assert_eq!(statuses(&gateway, text.as_bytes(), piece).await, [status], "{headers}");
        }
    }
    assert!(seen.lock().unwrap().is_empty());
}

/// hyper fails the body, and the service answers; what follows is not served.
#[tokio::test]
async fn a_malformed_chunk_ends_the_connection() {
    let (gateway, seen) = gateway();
    let smuggled = "0\r\n\r\nGET /smuggled#x HTTP/1.1\r\nhost: a\r\n\r\n";
    for chunk in ["x\r\n", "1\nx", "1\r\nxx", "1 1\r\n", "fffffffffffffffff\r\n", "1;a\nb", "\r\n"]
    {
        let text = format!(
            "POST /broken HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{smuggled}"
        );
        for piece in [1, 1000] {
            let statuses = statuses(&gateway, text.as_bytes(), piece).await;
            assert!(statuses.iter().all(|status| status == "400"), "{chunk}: {statuses:?}");
        }
    }
    assert!(seen.lock().unwrap().iter().all(|request| !request.contains("smuggled")));
}

#[tokio::test]
async fn a_tunnel_passes_every_byte() {
    let (gateway, _) = gateway();
    let mut stream = http1(&gateway).await;
    let head = "GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    soon(stream.write_all(head.as_bytes())).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(soon(stream.read_u8()).await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    let said = b"GET /in/the/tunnel#x HTTP/1.1\r\n\r\n\0\xff#";
    soon(stream.write_all(said)).await.unwrap();
    let mut echoed = vec![0; said.len()];
    soon(stream.read_exact(&mut echoed)).await.unwrap();
    assert_eq!(echoed, said);
}

#[tokio::test]
async fn after_a_refused_upgrade_requests_are_looked_at_again() {
    let (gateway, seen) = gateway();
    let asking = "GET /refused HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    for (next, status) in [("/next", "200"), ("/next#x", "400")] {
        let mut stream = http1(&gateway).await;
        soon(stream.write_all(asking.as_bytes())).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"fine") {
            answer.push(soon(stream.read_u8()).await.unwrap());
        }
        let text = format!("GET {next} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        soon(stream.write_all(text.as_bytes())).await.unwrap();
        let mut answer = Vec::new();
        let _ = soon(stream.read_to_end(&mut answer)).await;
        assert!(answer.starts_with(format!("HTTP/1.1 {status}").as_bytes()), "{next}");
    }
    assert_eq!(*seen.lock().unwrap(), ["/refused  ", "/next  ", "/refused  "]);
}

/// It could be of the tunnel, or a request: nobody has decided yet.
#[tokio::test]
async fn what_follows_an_upgrade_before_its_answer_is_not_served() {
    let (gateway, seen) = gateway();
    let asking = "GET /refused HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let text = format!("{asking}GET /next#x HTTP/1.1\r\nhost: a\r\n\r\n");
    statuses(&gateway, text.as_bytes(), 1000).await;
    assert!(seen.lock().unwrap().iter().all(|request| request == "/refused  "));
}

#[tokio::test]
async fn a_hash_in_an_http2_path_resets_its_stream_alone() {
    let (gateway, seen) = gateway();
    let mut connection = crate::frames::connect(&gateway, None).await;
    // GET, https, and a path: raw with a name from the table, raw with a name of its own, Huffman
    // (`/#`), and the one before by its index.
    let paths: [&[u8]; 4] = [
        &[0x04, 4, b'/', b'a', b'#', b'b'],
        &[0x00, 5, b':', b'p', b'a', b't', b'h', 2, b'/', b'#'],
        &[0x44, 0x83, 0b0110_0011, 0b1111_1110, 0b1011_1111],
        &[0xbe],
    ];
    let mut stream = 1;
    for path in paths {
        connection.send(&headers(stream, &[&[0x82, 0x87], path].concat())).await.unwrap();
        assert_eq!(connection.answer(stream).await.unwrap().kind, RST_STREAM, "{path:x?}");
        connection.send(&headers(stream + 2, &GET_ROOT)).await.unwrap();
        assert_eq!(connection.answer(stream + 2).await.unwrap().kind, HEADERS);
        stream += 4;
    }
    let absolute = b"https://gateway/secrets";
    let path = [&[0x82, 0x87, 0x04, 23], &absolute[..]].concat();
    connection.send(&headers(stream, &path)).await.unwrap();
    assert_eq!(connection.answer(stream).await.unwrap().kind, RST_STREAM);
    assert!(seen.lock().unwrap().iter().all(|request| request.ends_with("/  ")));
}

#[tokio::test]
async fn a_hash_in_a_header_over_http2_passes() {
    let (gateway, seen) = gateway();
    let mut sender = gateway.http2(None).await;
    for _ in 0..3 {
        let mut request = get("/path?query");
        request.headers_mut().insert("x-hash", http::HeaderValue::from_static("#:path#"));
        let response = soon(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|request| request.ends_with("/path?query #:path# ")), "{seen:?}");
    assert_eq!(seen.len(), 3);
}

/// The last response to these bytes, written in pieces. The connection ends after it.
async fn last_response(gateway: &Gateway, bytes: &[u8], piece: usize) -> String {
    let (mut reading, mut writing) = tokio::io::split(http1(gateway).await);
    let write = async {
        for piece in bytes.chunks(piece) {
            if writing.write_all(piece).await.is_err() || writing.flush().await.is_err() {
                break;
            }
        }
    };
    let mut answer = Vec::new();
    let read = async {
        // The rest of the request may arrive after the end of the connection.
        let _ = reading.read_to_end(&mut answer).await;
    };
    soon(async { tokio::join!(write, read) }).await;
    let text = String::from_utf8(answer).unwrap();
    text.split("HTTP/1.1 ").last().unwrap().to_owned()
}

fn assert_refused(response: &str, code: u16) {
    assert!(response.starts_with(&code.to_string()), "{response}");
    assert!(response.contains("connection: close\r\n"), "{response}");
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(body.starts_with(r#"{"kind":"Status","apiVersion":"v1""#), "{response}");
    assert!(body.ends_with(&format!(r#""code":{code}}}"#)), "{response}");
}

#[tokio::test]
async fn an_http1_target_that_is_too_long_is_a_414_with_a_status() {
    let (gateway, seen) = gateway();
    let get = |length: usize| {
        let target = format!("/{}", "x".repeat(length - 1));
        format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: y\r\n\r\n")
    };
    for piece in [7000, 65_534, 1 << 20] {
        for length in [65_535, 65_536, 200_000] {
            assert_refused(&last_response(&gateway, get(length).as_bytes(), piece).await, 414);
        }
        let longest = last_response(&gateway, get(65_534).as_bytes(), piece).await;
        assert!(longest.starts_with("200"), "{longest}");
    }
    assert_eq!(seen.lock().unwrap().len(), 3);
    let pipelined = format!("GET /one HTTP/1.1\r\nhost: a\r\n\r\n{}{LAST}", get(70_000));
    assert_eq!(statuses(&gateway, pipelined.as_bytes(), 9000).await, ["200", "414"]);
    assert_eq!(seen.lock().unwrap().last().unwrap(), "/one  ");
}

/// Go supports a single `chunked`, in any case; anything else is a 501.
#[tokio::test]
async fn an_unsupported_transfer_coding_is_a_501_with_a_status() {
    let (gateway, seen) = gateway();
    for coding in [
        "gzip, chunked",
        "chunked, gzip",
        "chunked, chunked",
        "chunked;q=1",
        "identity",
        "chunk",
        "chunkedx",
        "xchunked",
        "",
        " ",
        "chunked\r\nTransfer-Encoding: chunked",
        "chunked\r\nX-Other: a\r\ntransfer-encoding: gzip",
    ] {
        let text = format!(
            "POST /a HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: {coding}\r\nx: y\r\n\r\n0\r\n\r\n"
        );
        for piece in [1, 7, 1000] {
            assert_refused(&last_response(&gateway, text.as_bytes(), piece).await, 501);
        }
    }
    assert!(seen.lock().unwrap().is_empty());
}
