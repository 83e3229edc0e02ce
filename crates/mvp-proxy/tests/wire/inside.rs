//! The layer inside an API server, without sockets; and a server with the layer as a peer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use mvp_apiserver::{ApiServer, GroupSpec, ResourceSpec, ServerSpec, Storage};
use mvp_core::member::MemberKind;
use mvp_net::Limits;
use mvp_proxy::control::{MemberRecord, SnapshotReader, StaticMembership};
use mvp_proxy::{AuthenticateLayer, Body, Identity, Member, MixedVersionLayer};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use tower_layer::Layer;

use crate::client::{BOTH, ask, get};
use crate::double::{Double, serve};
use crate::gateway::{Gateway, boxed};
use crate::pki::pki;
use crate::soon;

/// A layer and its running control loop.
pub fn layer(id: &str, peers: Vec<MemberRecord>) -> (MixedVersionLayer, SnapshotReader, DropGuard) {
    let member = Member::builder(id, pki().outbound()).refresh_interval(Duration::from_secs(3600));
    let (member, stop) = (member.build(), CancellationToken::new());
    let layer = member.start(StaticMembership::new(peers), stop.clone()).layer();
    (layer, member.reader().clone(), stop.drop_guard())
}

pub fn api_server(id: &str, group: &str) -> ApiServer {
    let things = ResourceSpec::namespaced("things", "Thing");
    let groups = vec![
        GroupSpec::new("").version("v1", [ResourceSpec::namespaced("configmaps", "ConfigMap")]),
        GroupSpec::new(group).version("v1", [things]),
    ];
    let spec = ServerSpec {
        id: id.to_owned(),
        git_version: "v1.36.0".to_owned(),
        groups,
        ..ServerSpec::default()
    };
    ApiServer::new(spec, Storage::default())
}

pub async fn seen(reader: &SnapshotReader, members: &[&str]) {
    let property = |snapshot: &mvp_core::Snapshot| {
        members.iter().all(|id| {
            let view = snapshot.member_by_id(id).map(|member| &member.view);
            view.is_some_and(|view| view.api.is_some() && view.apis.is_some())
        })
    };
    soon(reader.wait_for(property)).await;
}

fn request(path: &str, identity: Option<Identity>) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity);
    }
    request
}

#[tokio::test]
async fn a_request_without_identity_is_500() {
    let (layer, reader, _stop) = layer("a", Vec::new());
    let service = layer.layer(api_server("a", "a.example"));
    seen(&reader, &["a"]).await;
    for path in ["/apis/a.example/v1/namespaces/default/things", "/healthz", "/apis"] {
        let Ok(response) = service.clone().oneshot(request(path, None)).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["code"], 500);
        let somebody = request(path, Some(Identity::Anonymous));
        let Ok(response) = service.clone().oneshot(somebody).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn the_control_loop_calls_the_wrapped_service_as_system() {
    type Asked = Arc<Mutex<Vec<(String, bool)>>>;
    let asked = Asked::default();
    let remembered = Arc::clone(&asked);
    let server = api_server("a", "a.example");
    // As authors use it: an axum router, here before the small server.
    let router = Router::new().fallback_service(tower::service_fn(
        move |request: Request<axum::body::Body>| {
            let identity = request.extensions().get::<Identity>();
            let system = matches!(identity, Some(Identity::System));
            remembered.lock().unwrap().push((request.uri().path().to_owned(), system));
            let server = server.clone();
            async move {
                let Ok(response) = server.oneshot(request).await;
                Ok::<_, std::convert::Infallible>(response.map(axum::body::Body::new))
            }
        },
    ));
    let (layer, reader, _stop) = layer("a", Vec::new());
    let service = layer.layer(router);
    seen(&reader, &["a"]).await;
    for path in ["/api", "/apis", "/version"] {
        let asked = asked.lock().unwrap().clone();
        assert!(asked.contains(&(path.to_owned(), true)), "{path}: {asked:?}");
    }
    asked.lock().unwrap().clear();
    let path = "/apis/a.example/v1/namespaces/default/things";
    let Ok(response): Result<Response<Body>, _> =
        service.oneshot(request(path, Some(Identity::Anonymous))).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(*asked.lock().unwrap(), [(path.to_owned(), false)]);
}

#[tokio::test]
async fn servers_with_the_layer_serve_each_others_resources() {
    let peer = Double::start("b", "v1.36.0", &[("b.example", "things")]).await;
    let gateway_b = Gateway::beside("b", &peer).await;
    let record = MemberRecord {
        name: "b".into(),
        address: Some(gateway_b.address().to_string().into()),
        kind: MemberKind::Mvp,
        heard: None,
    };
    let (layer, reader, _stop) = layer("a", vec![record]);
    let service = AuthenticateLayer::default().layer(layer.layer(api_server("a", "a.example")));
    let stop = CancellationToken::new();
    let address = serve(boxed(service), Limits::default(), stop.clone()).await;
    let _guard = stop.drop_guard();
    let gateway_b = gateway_b.mvp("a", address).start().await;
    seen(&reader, &["a", "b"]).await;
    for protocol in BOTH {
        for entry in [address, gateway_b.address] {
            for group in ["a.example", "b.example"] {
                let path = format!("/apis/{group}/v1/namespaces/default/things");
                let answer = ask(entry, protocol, Some(&pki().alice), get(&path)).await;
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            }
        }
    }
}
