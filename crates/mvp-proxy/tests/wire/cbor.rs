//! Discovery as CBOR, where the local server gives it: 1.37 with gate `CBORServingAndStorage`.

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower_service::Service;

use crate::client::{Answer, BOTH, TestBody, ask, full, get, with};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::pki::pki;
use crate::world::World;

const CBOR: &str = "application/cbor";
const V2_CBOR: &str = "application/cbor;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const EITHER: &str = "application/cbor;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn discover(gateway: &Gateway, path: &str, accept: &'static str) -> Answer {
    ask(gateway.address, BOTH[1], Some(&pki().alice), with(get(path), "accept", accept)).await
}

/// Like a server with CBOR: it confirms its entity tag for that type, too.
fn learns_cbor(server: &Double) {
    let real = server.server();
    server.rule("/api", move |mut request: Request<TestBody>| {
        let accept = request.headers()["accept"].to_str().unwrap().to_owned();
        let cbor = accept.contains(CBOR);
        let accept = accept.replace(CBOR, "application/json");
        request.headers_mut().insert("accept", accept.parse().unwrap());
        let answering = real.clone().call(request);
        async move {
            let Ok(response) = answering.await;
            if cbor && response.status() == StatusCode::OK {
                let mut response = answer(StatusCode::OK, full("not read"));
                response.headers_mut().insert("content-type", CBOR.parse().unwrap());
                return response;
            }
            response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
        }
    });
}

fn has(answer: &Answer, text: &str) -> bool {
    answer.body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn cbor_is_answered_where_the_local_server_has_it() {
    let world = World::start().await;
    learns_cbor(&world.local);
    for (path, accept) in [("/apis", V2_CBOR), ("/apis", EITHER), ("/apis", CBOR)] {
        let list = discover(&world.gateway, path, accept).await;
        assert_eq!(list.status, StatusCode::OK, "{}", list.text());
        let kind = if accept == CBOR { CBOR } else { V2_CBOR };
        assert_eq!(list.headers["content-type"], kind);
        assert!(list.body.starts_with(&[0xd9, 0xd9, 0xf7]), "{:?}", list.body);
        assert!(has(&list, "bare.example") && has(&list, "local.example"), "all members");
    }
    let version = discover(&world.gateway, "/apis/bare.example/v1", CBOR).await;
    assert_eq!(version.headers["content-type"], CBOR);
    assert!(version.body.starts_with(&[0xd9, 0xd9, 0xf7]) && has(&version, "things/status"));
    // The merged document has one entity tag in all encodings.
    let json = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (json, cbor) = (
        discover(&world.gateway, "/apis", json).await,
        discover(&world.gateway, "/apis", V2_CBOR).await,
    );
    assert_eq!(json.headers["etag"], cbor.headers["etag"]);
}

#[tokio::test]
async fn a_server_without_cbor_gets_the_next_type_that_the_client_accepts() {
    let world = World::start().await;
    let list = discover(&world.gateway, "/apis", EITHER).await;
    assert_eq!(list.status, StatusCode::OK);
    assert!(list.text().contains("bare.example"), "{}", list.text());
    for path in ["/apis", "/apis/local.example/v1"] {
        let refused = discover(&world.gateway, path, CBOR).await;
        assert_eq!(refused.status, StatusCode::NOT_ACCEPTABLE, "{path}: {}", refused.text());
    }
}
