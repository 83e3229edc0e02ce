//! The admin endpoint: who may read it, and who may change something.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use http::StatusCode;
use mvp_apiserver::Storage;
use testkit::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{WIDGETS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::folder::Folder;
use crate::support::process::{Gateway, flags, free_address};

/// A path that is short enough for a socket.
fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mvp-{}-{name}.sock", std::process::id()))
}

fn flag(path: &Path) -> String {
    format!("--admin-socket={}", path.display())
}

/// Sends bytes to the TCP endpoint, and returns the head and body of the answer.
async fn tcp(gateway: &Gateway, request: &str) -> String {
    let mut stream = TcpStream::connect(gateway.admin).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn callers_are_shown_over_the_socket_alone() {
    let local = serve(any(), api_server("a", Storage::new())).await;
    let path = socket("callers");
    let gateway = Gateway::start(free_address(), "a", local.address, &[flag(&path)]).ready().await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let over_tcp = "GET /debug/callers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = tcp(&gateway, over_tcp).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains(&format!("mvp callers {}", flag(&path))), "{answer}");
    let refused = Gateway::run(&["callers"], &[format!("--admin-address={}", gateway.admin)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&flag(&path)), "{refused:?}");

    let shown = Gateway::run(&["callers", "widgets"], &[flag(&path)]);
    let table = String::from_utf8(shown.stdout).unwrap();
    assert!(table.starts_with("GROUP/VERSION/RESOURCE "), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.contains("widgets") && !table.contains("127.0.0.1"), "{table}");
    let shown = Gateway::run(&["callers", "widgets", "--addresses"], &[flag(&path)]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("127.0.0.1"), "{shown:?}");
    let none = Gateway::run(&["callers", "--removed-in=1.36"], &[flag(&path)]);
    assert_eq!((none.status.code(), none.stdout.as_slice()), (Some(0), &b""[..]));
    assert_eq!(none.stderr, b"No callers in the last hour.\n");
    let unknown = Gateway::run(&["callers", "--removed-in=1.99"], &[flag(&path)]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[tokio::test]
async fn callers_can_be_switched_off() {
    let local = serve(any(), api_server("a", Storage::new())).await;
    let path = socket("no-callers");
    let off = ["--record-callers=false".to_owned(), flag(&path)];
    let gateway = Gateway::start(free_address(), "a", local.address, &off).ready().await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    let said = Gateway::run(&["callers"], &[flag(&path)]);
    assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(1), &b""[..]));
    let sentence = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(sentence.contains("--record-callers=false"), "{sentence}");
}

#[tokio::test]
async fn forget_works_over_the_socket_alone() {
    let storage = Storage::new();
    let local = serve(any(), api_server("b", storage.clone())).await;
    let peer = serve(any(), api_server("a", storage)).await;
    let text = format!("peers: [{{id: a, address: 'https://{}', kind: bare}}]", peer.address);
    let mut folder = Folder::new(&[("peers.yaml", &text)]);
    let path = socket("forget");
    let more = [folder.flag("peers-file", "peers.yaml"), flag(&path)];
    let mut gateway = Gateway::start(free_address(), "b", local.address, &more).ready().await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = Client::user(gateway.address).await;
    folder.swap(&[("peers.yaml", "peers: []")]);
    eventually("it left", async || match client.get(WIDGETS).await.0 {
        StatusCode::SERVICE_UNAVAILABLE => Ok(()),
        other => Err(other),
    })
    .await;

    let post = "POST /forget?id=a HTTP/1.1\r\nhost: localhost\r\nx-mvp-admin: 1\r\n\
                content-length: 0\r\nconnection: close\r\n\r\n";
    let answer = tcp(&gateway, post).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains(&format!("mvp forget ID {}", flag(&path))), "{answer}");
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::SERVICE_UNAVAILABLE);

    let said = Gateway::forget("a", &[flag(&path)]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(said.stdout, b"a is forgotten\n");
    eventually("it is forgotten", async || match client.get(WIDGETS).await.0 {
        StatusCode::NOT_FOUND => Ok(()),
        other => Err(other),
    })
    .await;
    let again = Gateway::forget("a", &[flag(&path)]);
    assert_eq!(
        (again.status.code(), &*again.stderr),
        (Some(1), &b"error: there is no member a\n"[..])
    );

    gateway.signal(Signal::TERM);
    eventually("its end", async || gateway.exit_status().ok_or("it runs")).await;
    assert!(!path.exists(), "the file goes with the process");
    let nobody = String::from_utf8(Gateway::forget("a", &[flag(&path)]).stderr).unwrap();
    let expected = format!("error: no gateway answers at {}: ", path.display());
    assert!(nobody.starts_with(&expected) && nobody.contains("--admin-socket"), "{nobody}");
    let old = Gateway::forget("a", &["--admin-address=127.0.0.1:6480".to_owned()]);
    let old = (old.status.code(), String::from_utf8(old.stderr).unwrap());
    let said = "error: --admin-address: this needs the Unix socket of the gateway; give its \
                --admin-socket\n";
    assert_eq!(old, (Some(2), said.to_owned()));
}

#[tokio::test]
async fn a_socket_in_use_is_an_error_and_a_stale_one_is_not() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let path = socket("used");
    let first = Gateway::start(free_address(), "b", server.address, &[flag(&path)]).ready().await;
    let (address, admin) = (free_address(), free_address());
    let second = flags(address, admin, "b", server.address, &[flag(&path)]);
    let mut second = Gateway::with_flags(address, admin, &second);
    let status = eventually("its end", async || second.exit_status().ok_or("it runs")).await;
    assert_eq!(status.code(), Some(1));
    let said = format!("--admin-socket: another process listens on {}", path.display());
    assert!(second.log().contains(&said), "{}", second.log());
    // It is killed when it is dropped, as by a crash.
    drop(first);
    assert!(path.exists());
    Gateway::start(free_address(), "b", server.address, &[flag(&path)]).ready().await;
    let _ = std::fs::remove_file(path);
}

#[tokio::test]
async fn a_name_that_is_not_allowed_reads_nothing() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let more = ["--admin-allowed-hosts=gateway.example,other.example".to_owned()];
    let gateway = Gateway::start(free_address(), "b", server.address, &more).ready().await;
    for path in ["/metrics", "/debug/snapshot", "/readyz?verbose", "/"] {
        for (host, code) in [
            ("evil.example", 403),
            ("localhost.evil.example:6480", 403),
            ("gateway.example:6480", 200),
            ("OTHER.example", 200),
            ("127.0.0.1:6480", 200),
            ("[::1]:6480", 200),
        ] {
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            let answer = tcp(&gateway, &request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{host} {path}: {answer}");
            assert_eq!(answer.contains("--admin-allowed-hosts"), code == 403, "{answer}");
        }
    }
}
