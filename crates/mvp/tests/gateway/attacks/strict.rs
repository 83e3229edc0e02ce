//! Requests in recorded bytes, by a grammar that accepts nothing that two parsers could read
//! differently. Entry item: [`requests`].

/// A request as it arrived at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether all of it arrived.
    pub(crate) whole: bool,
}

impl Seen {
    /// The values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// The requests in the bytes of one connection. The last one may be incomplete. Fails if anything
/// is not exactly as RFC 9112 wants a client to write it.
pub(crate) fn requests(bytes: &[u8]) -> Result<Vec<Seen>, String> {
    let mut requests = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(end) = find(rest, b"\r\n\r\n") else { break };
        let (head, after) = rest.split_at(end + 4);
        let mut seen = head_of(&head[..end + 2])?;
        rest = match length(&seen)? {
            Length::Bytes(length) => {
                let (body, after) = after.split_at(length.min(after.len()));
                seen.body = body.to_vec();
                seen.whole = body.len() == length;
                after
            }
            Length::Chunked => match chunks(after)? {
                Some((body, after)) => {
                    seen.body = body;
                    after
                }
                None => {
                    seen.whole = false;
                    &[]
                }
            },
        };
        requests.push(seen);
    }
    Ok(requests)
}

enum Length {
    Bytes(usize),
    Chunked,
}

/// A head with its last line end.
fn head_of(head: &[u8]) -> Result<Seen, String> {
    let text = std::str::from_utf8(head).map_err(|_| format!("not UTF-8: {head:?}"))?;
    let mut lines = text.strip_suffix("\r\n").unwrap().split("\r\n");
    let line = lines.next().unwrap();
    let [method, target, "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("request line {line:?}"));
    };
    let visible = target.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    if !is_token(method) || target.is_empty() || !visible {
        return Err(format!("request line {line:?}"));
    }
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("no colon: {line:?}"))?;
        let odd = value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
        if !is_token(name) || odd {
            return Err(format!("header {line:?}"));
        }
        headers.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    let (method, target) = (method.to_owned(), target.to_owned());
    let seen = Seen { method, target, headers, body: Vec::new(), whole: true };
    match seen.all("host").len() {
        1 => Ok(seen),
        hosts => Err(format!("{hosts} hosts: {text:?}")),
    }
}

fn length(seen: &Seen) -> Result<Length, String> {
    match (&seen.all("content-length")[..], &seen.all("transfer-encoding")[..]) {
        ([], []) => Ok(Length::Bytes(0)),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map(Length::Bytes).map_err(|error| format!("{length}: {error}"))
        }
        ([], ["chunked"]) => Ok(Length::Chunked),
        other => Err(format!("ambiguous length: {other:?}")),
    }
}

/// A chunked body and what follows it; `None` if it is incomplete.
#[allow(clippy::type_complexity)]
fn chunks(mut rest: &[u8]) -> Result<Option<(Vec<u8>, &[u8])>, String> {
    let mut body = Vec::new();
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        if size.is_empty() || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("chunk size {size:?}"));
        }
        let size = usize::from_str_radix(&size, 16).map_err(|error| error.to_string())?;
        rest = &rest[end + 2..];
        if size == 0 {
            break;
        }
        if rest.len() < size + 2 {
            return Ok(None);
        }
        body.extend_from_slice(&rest[..size]);
        if &rest[size..size + 2] != b"\r\n" {
            return Err("a chunk does not end with its size".to_owned());
        }
        rest = &rest[size + 2..];
    }
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.is_empty() {
            return Ok(Some((body, rest)));
        }
        let name = line.split(|byte| *byte == b':').next().unwrap();
        if !line.contains(&b':') || !is_token(&String::from_utf8_lossy(name)) {
            return Err(format!("trailer {:?}", String::from_utf8_lossy(line)));
        }
    }
}

fn is_token(text: &str) -> bool {
    let of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(of_token)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[test]
fn what_two_parsers_could_read_differently_is_an_error() {
    let good = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n\
                POST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\
                POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                3\r\nab\r\r\n1\r\nc\r\n0\r\nx: y\r\n\r\nPOST /d HTTP/1.1\r\nhost: a\r\n";
    let seen = requests(good.as_bytes()).unwrap();
    let summary: Vec<_> = seen.iter().map(|seen| (&*seen.target, &*seen.body)).collect();
    assert_eq!(summary, [("/a", &b""[..]), ("/b", b"abc"), ("/c", b"ab\rc")]);
    assert_eq!(seen[1].all("content-length"), ["3"]);
    let cut = "POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab";
    assert!(!requests(cut.as_bytes()).unwrap()[0].whole);
    for (head, body) in [
        ("GET /a b HTTP/1.1\r\nHost: a", ""),
        ("GET /a HTTP/1.0\r\nHost: a", ""),
        ("GET /a HTTP/1.1", ""),
        ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b", ""),
        ("GET /a HTTP/1.1\r\nHost: a\nX: y", ""),
        ("GET /a HTTP/1.1\r\nHost: a\r\nX : y", ""),
        ("GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n z", ""),
        ("GET /a HTTP/1.1\r\nHost: a\r\nX: y\rz", ""),
        ("GET /a HTTP/1.1\r\nHost: a\r\nX: y\0z", ""),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: +3", "abc"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3", "abc"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", "abc"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked", "0\r\n\r\n"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", "0;a\r\n\r\n"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", "3\r\nabcd\r\n0\r\n\r\n"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", "0\r\nx\r\n\r\n"),
    ] {
        let bytes = format!("{head}\r\n\r\n{body}");
        assert!(requests(bytes.as_bytes()).is_err(), "{bytes:?}");
    }
}
