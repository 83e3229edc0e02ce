//! Requests that two parsers could read differently. The server records what it gets: exactly the
//! requests that are meant, or nothing.

use super::target::{LAST, Other, SMUGGLED, Target, noted};

/// All at once, and byte by byte.
const PIECES: [usize; 2] = [1 << 20, 1];

/// Headers of a POST whose length is in doubt, or with bytes that a head cannot have. After the head
/// comes what one reader takes for an empty body, and another one for a part of it.
const HEADERS: [&str; 56] = [
    // CL.TE, TE.CL and TE.TE
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunkedx\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: identity, chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding: chunked,\r\n",
    "Transfer-Encoding: ,chunked\r\n",
    "Transfer-Encoding: chunked;q=1\r\n",
    "Transfer-Encoding: \"chunked\"\r\n",
    "Transfer-Encoding: 'chunked'\r\n",
    "Transfer-Encoding: ch\u{130}nked\r\n",
    "Transfer-Encoding: \x0bchunked\r\n",
    "Transfer-Encoding: chunked\x0b\r\n",
    "Transfer-Encoding: \x0cchunked\r\n",
    "Transfer-Encoding: \0chunked\r\n",
    "Transfer-Encoding: chunked\0\r\n",
    "Transfer-Encoding: chunk ed\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Transfer-Encoding: chunked\r\n identity\r\n",
    "Transfer-Encoding:\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding\t: chunked\r\n",
    "Transfer-Encoding\x0b: chunked\r\n",
    "Transfer-Encoding\0: chunked\r\n",
    " Transfer-Encoding: chunked\r\n",
    "\tTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
    "X: y\rTransfer-Encoding: chunked\r\n",
    "X: y\r\rTransfer-Encoding: chunked\r\n",
    "X: y\0\r\n",
    "X\u{e9}: y\r\n",
    "(X): y\r\n",
    "X\r\n",
    ": y\r\n",
    // lengths
    "Content-Length: +5\r\n",
    "Content-Length: -5\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length: 5 5\r\n",
    "Content-Length: 5,\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 5, 6\r\n",
    "Content-Length: 5;\r\n",
    "Content-Length: 5.0\r\n",
    "Content-Length: \u{0665}\r\n",
    "Content-Length:\r\n",
    "Content-Length: 18446744073709551621\r\n",
    "Content-Length: 5\r\nContent-Length: 5\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length : 5\r\n",
    "Content-Length:\r\n 5\r\n",
];

/// Heads that are refused as a whole.
const HEADS: [&str; 24] = [
    "POST /x/first HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET /x/first HTTP/1.2\r\nHost: a\r\n\r\n",
    "GET /x/first HTTP/2.0\r\nHost: a\r\n\r\n",
    "GET /x/first HTTP/01.1\r\nHost: a\r\n\r\n",
    "GET /x/first http/1.1\r\nHost: a\r\n\r\n",
    "GET /x/first\r\nHost: a\r\n\r\n",
    "GET /x/first \r\nHost: a\r\n\r\n",
    "GET  /x/first HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x/first  HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET\t/x/first\tHTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x/first HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x/first HTTP/1.1\rHost: a\r\n\r\n",
    "GET /x/fi\0rst HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x/fi\x7frst HTTP/1.1\r\nHost: a\r\n\r\n",
    "G ET /x/first HTTP/1.1\r\nHost: a\r\n\r\n",
    "G(T /x/first HTTP/1.1\r\nHost: a\r\n\r\n",
    " GET /x/first HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET x/first HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x/first HTTP/1.1\r\n\r\n",
    "GET /x/first HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "GET /x/first HTTP/1.1\r\nHost: a b\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// Chunked bodies that end in doubt.
const CHUNKS: [&str; 19] = [
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhell\r\n0\r\n\r\n",
    "5\r\nhelloo\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5 5\r\nhello\r\n0\r\n\r\n",
    "\r\n0\r\n\r\n",
    "g\r\nhello\r\n0\r\n\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\n\n",
    "0\r\nX\r\n\r\n",
    "0\r\nX: y\0\r\n\r\n",
];

#[tokio::test]
async fn a_head_in_doubt_is_refused_and_nothing_after_it_is_served() {
    let target = Target::start().await;
    let mut other = Other::start(&target.gateway).await;
    let noted_before = (target.errors().await, target.lines());
    let of_headers = HEADERS
        .iter()
        .map(|headers| format!("POST /x/first HTTP/1.1\r\nHost: a\r\n{headers}\r\n0\r\n\r\n"));
    let attacks: Vec<String> = of_headers.chain(HEADS.map(str::to_owned)).collect();
    for attack in &attacks {
        let bytes = format!("{attack}{SMUGGLED}");
        for piece in PIECES {
            let statuses = target.send(bytes.as_bytes(), piece).await;
            // The end of the connection may overtake the response to a client that still sends.
            let refused = statuses.len() <= 1
                && statuses.iter().all(|status| ["400", "501"].contains(&status.as_str()));
            assert!(refused, "{attack:?}: {statuses:?}");
        }
    }
    other.is_served("smuggling").await;
    target.saw_nothing();
    // Data behind CONNECT can fail its connection before the head was parsed, which is not counted.
    let counted = attacks.iter().filter(|attack| !attack.starts_with("CONNECT ")).count();
    noted(&target, noted_before, counted * PIECES.len()).await;
}

#[tokio::test]
async fn a_chunk_in_doubt_ends_the_connection() {
    let target = Target::start().await;
    for chunks in CHUNKS {
        let bytes = format!(
            "POST /x/first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{SMUGGLED}"
        );
        for piece in PIECES {
            let before = target.seen();
            let statuses = target.send(bytes.as_bytes(), piece).await;
            assert!(statuses.len() <= 1, "{chunks:?}: {statuses:?}");
            assert!(statuses.iter().all(|status| status == "400"), "{chunks:?}: {statuses:?}");
            for seen in target.since(&before) {
                assert!(seen.starts_with("POST /x/first "), "{chunks:?}: {seen:?}");
                assert!(seen.ends_with(" (cut)"), "{chunks:?}: {seen:?}");
            }
        }
    }
    Other::start(&target.gateway).await.is_served("smuggling").await;
}

/// Requests, and what the server gets of them.
fn clear() -> Vec<(String, Vec<String>)> {
    let length = SMUGGLED.len();
    let with_body = |method: &str| {
        (
            format!(
                "{method} /x/first HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"
            ),
            vec![format!("{method} /x/first {SMUGGLED}")],
        )
    };
    let chunked = |headers: &str, chunks: &str, body: &str| {
        (
            format!("POST /x/first HTTP/1.1\r\nHost: a\r\n{headers}\r\n{chunks}"),
            vec![format!("POST /x/first {body}")],
        )
    };
    let usual = "Transfer-Encoding: chunked\r\n";
    let plain = |head: &str, seen: &str| (format!("{head}\r\n\r\n"), vec![seen.to_owned()]);
    vec![
        with_body("POST"),
        with_body("GET"),
        with_body("DELETE"),
        with_body("PATCH"),
        chunked(usual, &format!("{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"), SMUGGLED),
        chunked(
            usual,
            &format!("000{length:X};a=\"b\"\r\n{SMUGGLED}\r\n00;c\r\nX: y\r\n\r\n"),
            SMUGGLED,
        ),
        chunked("Transfer-Encoding: Chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"),
        chunked("tRANSFER-eNCODING:\t chunked \t\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"),
        chunked("Content-Length: 005\r\n", "hello", "hello"),
        chunked("Content-Length:5\r\nConnection: Content-Length, Host\r\n", "hello", "hello"),
        chunked(&format!("{usual}Connection: Transfer-Encoding\r\n"), "1\r\na\r\n0\r\n\r\n", "a"),
        chunked(&format!("{usual}TE: trailers\r\n"), "1\r\na\r\n0\r\n\r\n", "a"),
        chunked("Content-Length: 5\r\nExpect: 100-continue\r\n", "hello", "hello"),
        // Not these headers, to anybody who reads header names as they are.
        chunked("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", "hello", "hello"),
        chunked("X-Content-Length: 9\r\nContent-Length: 5\r\n", "hello", "hello"),
        (
            "POST /x/first HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello".to_owned(),
            vec!["POST /x/first hello".to_owned()],
        ),
        plain("\r\n\r\nGET /x/first HTTP/1.1\r\nHost: a", "GET /x/first "),
        plain("get /x/first HTTP/1.1\r\nHost: a", "get /x/first "),
        plain(
            "GET /x/first?%0d%0aX-Remote-User:root%20HTTP/1.1 HTTP/1.1\r\nHost: a",
            "GET /x/first?%0d%0aX-Remote-User:root%20HTTP/1.1 ",
        ),
        (
            "POST /x/one HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n\
             GET /x/two HTTP/1.1\r\nHost: a\r\n\r\nGET /x/three HTTP/1.1\r\nHost: a\r\n\r\n"
                .to_owned(),
            ["POST /x/one ", "GET /x/two ", "GET /x/three "].map(str::to_owned).to_vec(),
        ),
    ]
}

#[tokio::test]
async fn the_server_gets_exactly_the_requests_that_are_meant() {
    let target = Target::start().await;
    for (requests, mut expected) in clear() {
        expected.push("GET /x/last ".to_owned());
        expected.sort();
        for piece in PIECES {
            let before = target.seen();
            let statuses = target.send(format!("{requests}{LAST}").as_bytes(), piece).await;
            let answered = statuses.iter().filter(|status| *status == "200").count();
            assert_eq!(answered, expected.len(), "{requests:?}: {statuses:?}");
            let mut seen = target.since(&before);
            seen.sort();
            assert_eq!(seen, expected, "{requests:?}");
        }
    }
}

/// RFC 9112, section 3.2.2: `Host` is ignored, and replaced.
#[tokio::test]
async fn the_host_of_an_absolute_target_wins() {
    let target = Target::start().await;
    let request =
        "GET https://a/x/first HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n".as_bytes();
    for piece in PIECES {
        assert_eq!(target.send(request, piece).await, ["200"]);
    }
    let seen = target.seen();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!((&*seen.target, seen.all("host")), ("/x/first", vec!["a"]));
    }
}

/// The server answers before it has read the body. What is left of it is never a request.
#[tokio::test]
async fn a_body_that_no_server_reads_is_no_request() {
    let target = Target::start().await;
    let mut other = Other::start(&target.gateway).await;
    let body = SMUGGLED.repeat(20_000);
    let length = body.len();
    for headers in ["", "Expect: 100-continue\r\n"] {
        let before = target.seen();
        let request = format!(
            "POST /x/early/first HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {length}\r\n\r\n{body}{LAST}"
        );
        let statuses = target.send(request.as_bytes(), 1 << 14).await;
        // 503 if the end of the connection to the server overtakes its response.
        let early = statuses.iter().filter(|status| ["403", "503"].contains(&status.as_str()));
        assert!(early.count() <= 1 && statuses.len() <= 3, "{statuses:?}");
        let seen = target.since(&before);
        let others = seen.iter().filter(|seen| !seen.starts_with("POST /x/early/first "));
        assert!(
            others.clone().all(|seen| seen == "GET /x/last "),
            "{:?}",
            others.collect::<Vec<_>>()
        );
    }
    other.is_served("early answers").await;
}

/// After a refusal the connection ends, so that nothing of it is taken for a request.
#[tokio::test]
async fn nothing_is_served_after_a_refused_request() {
    let target = Target::start().await;
    for (request, status) in [
        ("GET /x/%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("POST /x/%zz HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "400"),
        ("GET /x/first#a HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET https://root@a/x/first HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /x/first HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n", "417"),
        ("POST /x/first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nabc", "501"),
    ] {
        for piece in PIECES {
            let statuses = target.send(format!("{request}{SMUGGLED}").as_bytes(), piece).await;
            assert!(statuses.is_empty() || statuses == [status], "{request:?}: {statuses:?}");
        }
    }
    target.saw_nothing();
}
