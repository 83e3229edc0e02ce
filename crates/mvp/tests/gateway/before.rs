//! A gateway before all servers, without a local server: row 12.

use std::net::SocketAddr;

use http::{Method, StatusCode};
use http_body_util::Full;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use serde_json::{Value, json};

use crate::cluster::{
    AGGREGATED, CONFIG_MAPS, WIDGETS, any, api_server, assert_refusal, make, serve, widget,
};
use crate::support::client::{Client, read};
use crate::support::eventually;
use crate::support::pki::PKI;
use crate::support::process::{Gateway, flags, free_address};

/// An API that only B's server serves.
const GEARS: &str = "/apis/other.example.com/v1/gears";

#[tokio::test]
async fn requests_go_to_capable_servers_that_are_still_up() {
    let storage = Storage::new();
    let mut a = serve(any(), api_server("a", storage.clone())).await;
    let mut b = serve(any(), api_server("b", storage)).await;
    let (address, admin) = (free_address(), free_address());
    let servers = format!("--servers=https://{},https://{}", a.address, b.address);
    let mut flags = flags(address, admin, "none", any(), &[servers]);
    let beside = ["--local-server=", "--server-id=", "--membership="];
    flags.retain(|flag| !beside.iter().any(|name| flag.starts_with(name)));
    let gateway = Gateway::with_flags(address, admin, &flags).ready().await;
    let verbose = gateway.page("/readyz?verbose").await;
    assert!(verbose.contains("[+]servers ok\n"), "{verbose}");

    let client = Client::user(gateway.address).await;
    make(&client, "one").await;
    for path in [WIDGETS, GEARS, CONFIG_MAPS, "/version", "/healthz", "/api", "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    let request = client.request(Method::GET, "/apis").header("accept", AGGREGATED);
    let (code, _, document) = read(client.send(request.body(Full::default()).unwrap()).await).await;
    assert_eq!(code, StatusCode::OK);
    let document = String::from_utf8_lossy(&document).into_owned();
    assert!(document.contains("widgets") && document.contains("gears"), "{document}");
    let (code, ..) = client.get("/apis/example.org/v1/nothings").await;
    assert_eq!(code, StatusCode::NOT_FOUND, "every server says so");

    assert_eq!(gateway.requests_logged(), [Value::Null; 0], "proxying is its ordinary work");

    // One server stops: APIs of both are served, APIs of that one are 503.
    a.cut().await;
    for path in [CONFIG_MAPS, GEARS, "/version", "/apis"] {
        assert_eq!(client.get(path).await.0, StatusCode::OK, "{path}");
    }
    let (code, status) = client.call(Method::POST, WIDGETS, widget("two")).await;
    assert_refusal(code, &status);
    let refused = eventually("the refusal is logged", async || {
        gateway.requests_logged().pop().ok_or(gateway.log())
    })
    .await;
    assert_eq!(
        (&refused["action"], &refused["code"]),
        (&"refuse".into(), &503.into()),
        "{refused}"
    );
    a.restart().await;
    eventually("it is back", async || match client.call(Method::GET, WIDGETS, Value::Null).await {
        (StatusCode::OK, _) => Ok(()),
        other => Err(other),
    })
    .await;
    a.cut().await;
    b.cut().await;
    for path in [CONFIG_MAPS, WIDGETS, GEARS, "/version", "/apis"] {
        let (code, status) = client.call(Method::GET, path, Value::Null).await;
        assert_refusal(code, &status);
    }

    // Nobody is left. Clients choose the names of APIs that no server has: they are no labels.
    for number in 0..20 {
        let (code, ..) = client.get(&format!("/apis/made-up-{number}.io/v1/things")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    }
    let metrics = gateway.page("/metrics").await;
    let refused = |line: &str| line.starts_with("mvp_refusals_total") && !line.ends_with(" 0");
    assert!(metrics.lines().any(refused), "{metrics}");
    assert!(!metrics.contains("made-up"), "{metrics}");
}

#[tokio::test]
async fn an_unreachable_first_server_is_named() {
    let (address, admin, nobody) = (free_address(), free_address(), free_address());
    let mut flags = flags(address, admin, "none", any(), &["--membership=endpoints".to_owned()]);
    let beside = ["--local-server=", "--server-id=", "--membership=static"];
    flags.retain(|flag| !beside.iter().any(|name| flag.starts_with(name)));
    let gateway = Gateway::in_pod(address, admin, &flags, nobody);
    let why = format!(
        "[-]membership failed: source endpoints was not read yet (the first server {nobody} does not answer"
    );
    eventually("it says so", async || {
        let page = gateway.ask("/readyz").await.unwrap_or_default().1;
        if page.contains(&why) && page.contains("[-]servers failed") { Ok(()) } else { Err(page) }
    })
    .await;
    gateway.logs("first server does not answer").await;
}

/// The flags of a gateway before these servers, without `--membership`.
fn before(
    address: SocketAddr,
    admin: SocketAddr,
    servers: &[SocketAddr],
    cache: &str,
) -> Vec<String> {
    let servers: Vec<String> = servers.iter().map(|one| format!("https://{one}")).collect();
    let more = [format!("--servers={}", servers.join(",")), format!("--members-cache={cache}")];
    let mut flags = flags(address, admin, "none", any(), &more);
    let beside = ["--local-server=", "--server-id=", "--membership="];
    flags.retain(|flag| !beside.iter().any(|name| flag.starts_with(name)));
    flags
}

#[tokio::test]
async fn other_servers_are_found_and_known_after_a_restart() {
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slices = ResourceSpec::namespaced("endpointslices", "EndpointSlice");
    let groups = vec![GroupSpec::new("discovery.k8s.io").version("v1", [slices])];
    let spec = ServerSpec { id: "seed".to_owned(), groups, ..ServerSpec::default() };
    let mut seed = serve(any(), ApiServer::new(spec, Storage::new())).await;
    let b = serve(any(), api_server("b", Storage::new())).await;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [{"addresses": [b.address.ip().to_string()]}],
        "ports": [{"name": "https", "port": b.address.port(), "protocol": "TCP"}],
    });
    let (code, made) =
        Client::token(seed.address, "good").await.call(Method::POST, SLICES, slice).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");

    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("members.json");
    let (address, admin) = (free_address(), free_address());
    let flags = before(address, admin, &[seed.address], cache.to_str().unwrap());
    let gateway = Gateway::with_flags(address, admin, &flags).ready().await;
    // Ready only when it was found: an API that only b has is never a false 404.
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(GEARS).await.0, StatusCode::OK);
    eventually("the cache is written", async || {
        let text = std::fs::read_to_string(&cache).unwrap_or_default();
        if text.contains(&b.address.to_string()) { Ok(()) } else { Err(text) }
    })
    .await;
    drop(gateway);

    seed.cut().await;
    let gateway = Gateway::with_flags(address, admin, &flags);
    eventually("b serves, known from disk", async || {
        let Some((200, _)) = gateway.ask("/livez").await else { return Err(gateway.log()) };
        let Ok((client, _)) = Client::with(address, PKI.client(true, b"h2")).await else {
            return Err(gateway.log());
        };
        match client.try_get(GEARS).await {
            Ok(StatusCode::OK) => Ok(()),
            other => Err(format!("{other:?} {}", gateway.log())),
        }
    })
    .await;
}

#[tokio::test]
async fn without_the_right_to_find_others_it_goes_on_with_its_servers() {
    // Nobody serves EndpointSlices.
    let a = serve(any(), api_server("a", Storage::new())).await;
    let (address, admin) = (free_address(), free_address());
    let flags = before(address, admin, &[a.address], "");
    let gateway = Gateway::with_flags(address, admin, &flags).ready().await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::OK);
    assert_eq!(client.get(GEARS).await.0, StatusCode::NOT_FOUND, "every known server says so");
    gateway.logs("membership source failed").await;
    let verbose = gateway.page("/readyz?verbose").await;
    assert!(verbose.contains("[+]membership ok"), "{verbose}");
}
