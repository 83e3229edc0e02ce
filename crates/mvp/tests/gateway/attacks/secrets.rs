//! Keys and tokens are in no log line, page or error, also at the most verbose level.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD};
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use hyper::body::Incoming;
use mvp_apiserver::Storage;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use testkit::certificates::{Ca, SERVER_NAME};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::{Bulk, CONFIG_MAPS, WIDGETS, answer, any, api_server, widget};
use crate::support::client::{Client, connect};
use crate::support::double::Double;
use crate::support::folder::Folder;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, flags, free_address};
use crate::support::{eventually, soon};

/// A token that servers accept, and one that they do not.
const ACCEPTED: &str = "Qk3vT8wZx1Lm5RnB7cYhD2sFjG9pA4eU6iOaNqWt";
const REJECTED: &str = "hV5yK2bXq8ZrM1tPd6LfC3wJ7nSgE9uB4iAoTzRk";
/// What a client keeps secret in other places.
const ELSEWHERE: &str = "Zp7Rw4Ks9Xc2Vn6Bt1Mq8Yd3Lf5Gh0JeUaTiOoSr";

/// A secret, and all texts that would reveal a part of it.
struct Secret {
    name: &'static str,
    fragments: Vec<String>,
}

impl Secret {
    fn new(name: &'static str, bytes: &[u8]) -> Secret {
        let mut fragments = Vec::new();
        for part in bytes.windows(12).step_by(3) {
            if part.iter().all(u8::is_ascii_graphic) {
                fragments.push(String::from_utf8(part.to_vec()).unwrap());
            }
            let list = |each: fn(&u8) -> String, between: &str| {
                part.iter().map(each).collect::<Vec<_>>().join(between)
            };
            fragments.push(BASE64_NOPAD.encode(part));
            fragments.push(BASE64URL_NOPAD.encode(part));
            fragments.push(list(|byte| format!("{byte:02x}"), ""));
            fragments.push(list(|byte| format!("{byte:02X}"), ""));
            fragments.push(list(|byte| format!("{byte:02x}"), ":"));
            fragments.push(list(u8::to_string, ", "));
            fragments.push(list(|byte| format!("{byte:x}"), ", "));
            fragments.push(list(|byte| std::ascii::escape_default(*byte).to_string(), ""));
        }
        // Base64 of what begins one or two bytes earlier looks different.
        for skipped in [1, 2] {
            for part in bytes[skipped..].windows(12).step_by(3) {
                fragments.push(BASE64_NOPAD.encode(part));
                fragments.push(BASE64URL_NOPAD.encode(part));
            }
        }
        fragments.sort();
        fragments.dedup();
        Secret { name, fragments }
    }

    /// The secret number of a private key of P-256, as in PKCS #8.
    fn key(name: &'static str, pem: &str) -> Secret {
        const BEFORE: [u8; 5] = [2, 1, 1, 4, 32];
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let der = key.secret_der();
        let start = der.windows(5).position(|window| window == BEFORE).unwrap() + 5;
        Secret::new(name, &der[start..start + 32])
    }
}

fn secrets() -> Vec<Secret> {
    let mut secrets: Vec<Secret> =
        PKI.keys().into_iter().map(|(name, pem)| Secret::key(name, pem)).collect();
    secrets.push(Secret::new("the accepted token", ACCEPTED.as_bytes()));
    secrets.push(Secret::new("the rejected token", REJECTED.as_bytes()));
    secrets.push(Secret::new("what is secret elsewhere", ELSEWHERE.as_bytes()));
    secrets
}

fn assert_no_secret(secrets: &[Secret], place: &str, text: &str) {
    for secret in secrets {
        for fragment in &secret.fragments {
            if let Some(at) = text.find(fragment.as_str()) {
                let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
                let line = text[line..].lines().next().unwrap();
                panic!("{}: {place} has {fragment:?} of {}: {line}", at, secret.name);
            }
        }
    }
}

/// The test must be able to fail.
#[test]
fn a_secret_is_found_in_every_form() {
    let (_, pem) = PKI.keys()[0];
    let key = Secret::key("key", pem);
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let der = der.secret_der();
    let hex: String = der.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let bytes = Bytes::copy_from_slice(der);
    let forms = [
        pem.to_owned(),
        pem.replace('\n', ""),
        pem.replace('\n', "\\n"),
        hex,
        format!("{der:?}"),
        format!("{der:x?}"),
        format!("{bytes:?}"),
        BASE64.encode(&der[1..]),
    ];
    for form in forms {
        let found = key.fragments.iter().any(|fragment| form.contains(fragment.as_str()));
        assert!(found, "{form}");
    }
    let token = Secret::new("token", ACCEPTED.as_bytes());
    for form in [format!("Bearer {ACCEPTED}"), BASE64URL_NOPAD.encode(ACCEPTED.as_bytes())] {
        assert!(token.fragments.iter().any(|fragment| form.contains(fragment.as_str())), "{form}");
    }
}

/// A server that accepts a token of this test.
async fn server(id: &str, storage: Storage) -> Double {
    let api = api_server(id, storage);
    Double::start(any(), move |mut request: Request<Incoming>| {
        let api = api.clone();
        if request.headers().get(AUTHORIZATION).is_some_and(|value| value == bearer(ACCEPTED)) {
            request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer good"));
        }
        async move {
            let mut response = answer(api, Bulk::default(), request).await;
            let cookie = HeaderValue::from_static(ELSEWHERE);
            response.headers_mut().insert("set-cookie", cookie);
            response
        }
    })
    .await
}

fn bearer(token: &str) -> HeaderValue {
    HeaderValue::try_from(format!("Bearer {token}")).unwrap()
}

#[tokio::test]
async fn no_log_line_or_page_has_a_key_or_a_token() {
    let storage = Storage::new();
    let (b_server, a_server) = (server("b", storage.clone()).await, server("a", storage).await);
    let socket = tempfile::tempdir().unwrap();
    let socket = socket.path().join("run").join("admin.sock");
    let mut folder = Folder::new(&[
        ("tls.crt", PKI.server_pem().0.as_str()),
        ("tls.key", PKI.server_pem().1.as_str()),
    ]);
    let more = [
        format!("--peer=a=https://{},kind=bare", a_server.address),
        "--log-level=trace".to_owned(),
        "--log-local-requests".to_owned(),
        "--dashboard-flow".to_owned(),
        format!("--admin-socket={}", socket.display()),
        folder.flag("tls-cert-file", "tls.crt"),
        folder.flag("tls-private-key-file", "tls.key"),
    ];
    let gateway = Gateway::start(free_address(), "b", b_server.address, &more).ready().await;
    requests(&gateway).await;
    upgrades(&gateway).await;
    // A key that does not fit its certificate, then text that is no key, then a pair that fits.
    let other = Ca::new("servers").server(&[SERVER_NAME]);
    let (certificate, key) = PKI.server_pem();
    let broken = [
        [("tls.crt", other.certificate.as_str()), ("tls.key", &key)],
        [("tls.crt", &key), ("tls.key", &key)],
        [("tls.crt", &certificate), ("tls.key", &key[..key.len() / 2])],
    ];
    for (number, files) in broken.iter().enumerate() {
        folder.swap(files);
        eventually("it is refused", async || {
            let refused = gateway.log().matches("not reloaded").count();
            if refused > number { Ok(()) } else { Err(refused) }
        })
        .await;
    }
    folder.swap(&[("tls.crt", certificate.as_str()), ("tls.key", &key)]);
    gateway.logs("reload no longer fails").await;
    drop(a_server);
    requests(&gateway).await;

    let secrets = secrets();
    let mut pages = 0;
    for path in [
        "/",
        "/livez?verbose",
        "/readyz?verbose",
        "/metrics",
        "/debug/snapshot",
        "/debug/flags",
        "/debug/status",
        "/debug/apis",
        "/debug/callers",
        "/dashboard",
        "/dashboard/apis",
    ] {
        let (code, page) = gateway.ask(path).await.unwrap();
        pages += usize::from(code == 200);
        assert_no_secret(&secrets, path, &page);
    }
    assert!(pages >= 8, "{pages}");
    let socket = format!("--admin-socket={}", socket.display());
    for command in ["status", "callers"] {
        let (_, text) = Gateway::print(&[command, socket.as_str()]).await;
        assert_no_secret(&secrets, command, &text);
    }
    let (_, text) = gateway.status(&["-o", "json"]).await;
    assert_no_secret(&secrets, "mvp status", &text);
    let log = gateway.log();
    for expected in ["\"TRACE\"", "h2::", "mvp_proxy::"] {
        assert!(log.contains(expected), "no line with {expected}");
    }
    println!("{} lines, {} MiB of log", log.lines().count(), log.len() >> 20);
    assert_no_secret(&secrets, "the log", &log);
}

/// Requests with secrets in every place where clients have them.
async fn requests(gateway: &Gateway) {
    let user = Client::user(gateway.address).await;
    for path in [CONFIG_MAPS, WIDGETS, "/apis", "/api", "/openapi/v3", "/version", "/metrics"] {
        for token in [None, Some(ACCEPTED), Some(REJECTED)] {
            let client = Client::with(gateway.address, PKI.client(token.is_none(), b"h2")).await;
            let (client, _) = client.unwrap();
            let mut request = client
                .request(Method::GET, &format!("{path}?access_token={ELSEWHERE}"))
                .header(COOKIE, format!("session={ELSEWHERE}"))
                .header("x-secret", ELSEWHERE);
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, bearer(token));
            }
            client.send(request.body(Full::default()).unwrap()).await;
        }
    }
    let mut secret = widget(&format!("n{}", gateway.log().len()));
    secret["data"] =
        json!({ "password": ELSEWHERE, "packed": BASE64.encode(ELSEWHERE.as_bytes()) });
    user.call(Method::POST, WIDGETS, secret.clone()).await;
    user.call(Method::POST, CONFIG_MAPS, secret).await;
    user.get(WIDGETS).await;
    let basic = format!("Basic {}", BASE64.encode(format!("root:{ELSEWHERE}").as_bytes()));
    for (path, value) in [
        (CONFIG_MAPS, basic.as_str()),
        ("/a%zz", &format!("Bearer {REJECTED}")),
        (CONFIG_MAPS, &format!("Bearer {REJECTED} {ELSEWHERE}")),
    ] {
        // The gateway ends a connection after a 401.
        let (client, _) = Client::with(gateway.address, PKI.client(false, b"h2")).await.unwrap();
        let request = client.request(Method::GET, path).header(AUTHORIZATION, value);
        client.send(request.body(Full::default()).unwrap()).await;
    }
}

/// HTTP/1.1: tunnels, and requests that no library would send.
async fn upgrades(gateway: &Gateway) {
    let protocol = BASE64URL_NOPAD.encode(ACCEPTED.as_bytes());
    let token = format!("Authorization: Bearer {REJECTED}\r\n");
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (line, headers) in [
        (format!("GET {WIDGETS}?watch=1 HTTP/1.1"), format!("{upgrade}{token}")),
        (
            format!("GET {WIDGETS}?watch=1 HTTP/1.1"),
            format!(
                "{upgrade}Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{protocol}, v4\r\n"
            ),
        ),
        (format!("GET {CONFIG_MAPS} HTTP/1.1"), token.clone()),
        (format!("GET {CONFIG_MAPS} HTTP/1.1"), format!("{token}Content-Length: x\r\n")),
        (format!("GET {CONFIG_MAPS} HTTP/1.1"), format!("{token}X: y\0z\r\n")),
        (format!("GET {CONFIG_MAPS}#{ELSEWHERE} HTTP/1.1"), token.clone()),
        (format!("GET https://root:{ELSEWHERE}@a{CONFIG_MAPS} HTTP/1.1"), String::new()),
        (format!("{ELSEWHERE} {ELSEWHERE} {ELSEWHERE}"), String::new()),
        (format!("POST {CONFIG_MAPS} HTTP/1.1"), format!("Transfer-Encoding: {ELSEWHERE}\r\n")),
    ] {
        let config = PKI.client(false, b"http/1.1");
        let mut stream = connect(gateway.address, Arc::clone(&config)).await.unwrap();
        let text = format!("{line}\r\nHost: a\r\n{headers}\r\n");
        soon(stream.write_all(text.as_bytes())).await.unwrap();
        // The head of the response, whatever it is.
        let _ = soon(stream.read(&mut [0; 1024])).await;
    }
}

/// A file with a key where another one is expected, and text in which a token stands at the wrong place.
#[tokio::test]
async fn no_error_about_a_file_has_a_part_of_it() {
    let secrets = secrets();
    let server = server("b", Storage::new()).await;
    // Even with usable files nothing is served: the port is taken.
    let (address, admin) = (free_address(), free_address());
    let _taken = TcpListener::bind(address).unwrap();
    let files = tempfile::tempdir().unwrap();
    let (_, key) = PKI.server_pem();
    let one_line = key.lines().filter(|line| !line.starts_with("--")).collect::<String>();
    let contents = [
        key.clone(),
        one_line.clone(),
        format!("{ELSEWHERE}\n"),
        format!("- {ELSEWHERE}\n"),
        format!("kind: [{ELSEWHERE}\n"),
        format!("peers: {ELSEWHERE}\n"),
        format!("users:\n- {ELSEWHERE}\n"),
        format!("users:\n- name: a\n  user: {ELSEWHERE}\n"),
        format!("users:\n- name: a\n  user:\n    token: [{ELSEWHERE}]\n"),
        format!("users:\n- name: a\n  user:\n    token: \"{ELSEWHERE}\n"),
        format!("users:\n- name: a\n  user:\n    client-key-data: {ELSEWHERE}!\n"),
        "-----BEGIN PRIVATE KEY-----\n".to_owned() + &one_line,
        format!("-----BEGIN CERTIFICATE-----\n{one_line}\n-----END CERTIFICATE-----\n"),
    ];
    let mut errors = 0;
    for (number, content) in contents.iter().enumerate() {
        let file = files.path().join(number.to_string());
        fs::write(&file, content).unwrap();
        let file = file.display();
        for flag in FILES {
            let more = [format!("--{flag}={file}")];
            let flags = flags(address, admin, "b", server.address, &more);
            errors += refused(&secrets, &["serve"], &flags).await;
        }
        let kubeconfig = format!("--kubeconfig={file}");
        errors += refused(&secrets, &["skew", &kubeconfig], &[]).await;
        let token = [format!("--token-file={file}"), format!("--server={}", server.address)];
        refused(&secrets, &["skew"], &token).await;
    }
    assert_eq!(errors, contents.len() * (FILES.len() + 1));
}

/// The flags of files that `mvp serve` reads.
const FILES: [&str; 13] = [
    "config",
    "like",
    "peers-file",
    "egress-selector-config-file",
    "tls-cert-file",
    "tls-private-key-file",
    "local-ca-file",
    "peer-ca-file",
    "client-ca-file",
    "requestheader-client-ca-file",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "tracing-ca-file",
];

/// 1 if the command fails, which it must do without a secret.
async fn refused(secrets: &[Secret], command: &[&str], flags: &[String]) -> usize {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (code, text) = Gateway::print(&[command, &flags[..]].concat()).await;
    assert_no_secret(secrets, &format!("{command:?} {flags:?}"), &text);
    usize::from(code != Some(0))
}
