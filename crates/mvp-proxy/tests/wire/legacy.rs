//! Servers without aggregated discovery, as they were before 1.26: what they serve is asked for piece by
//! piece, because their own lists are false during skew.

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tower_service::Service;

use crate::client::{BOTH, TestBody, ask, full, get};
use crate::double::{Double, answer};
use crate::gateway::Gateway;
use crate::pki::pki;

/// As an old server: older forms alone, and of its groups only those whose names pass. Its root is
/// nobody's business, as RBAC has it by default.
fn grow_old(server: &Double, listed: fn(&str) -> bool, root: StatusCode) {
    let newer = server.server();
    server.rule("/", move |mut request: Request<TestBody>| {
        let path = request.uri().path().to_owned();
        request.headers_mut().insert(header::ACCEPT, "application/json".parse().unwrap());
        let answering = newer.clone().call(request);
        async move {
            if path == "/" && root != StatusCode::OK {
                return answer(root, full("{}"));
            }
            let Ok(response) = answering.await;
            let (parts, body) = response.into_parts();
            if path != "/apis" {
                return Response::from_parts(parts, unchanged(body));
            }
            let body = body.collect().await.unwrap().to_bytes();
            let mut list: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let groups = list["groups"].as_array_mut().unwrap();
            groups.retain(|group| listed(group["name"].as_str().unwrap()));
            Response::from_parts(parts, full(list.to_string()))
        }
    });
}

fn unchanged(body: mvp_apiserver::Body) -> TestBody {
    body.map_err(|never| match never {}).boxed_unsync()
}

async fn reads(gateway: &Gateway, group: &str) -> StatusCode {
    let path = format!("/apis/{group}/v1/namespaces/default/things");
    ask(gateway.address, BOTH[1], Some(&pki().alice), get(&path)).await.status
}

const GROUPS: [(&str, &str); 2] = [("kept.example", "things"), ("lost.example", "things")];

#[tokio::test]
async fn an_api_missing_from_the_legacy_list_of_an_old_server_is_served() {
    for root in [StatusCode::OK, StatusCode::FORBIDDEN] {
        let local = Double::start("a", "v1.36.0", &[]).await;
        let old = Double::start("b", "v1.24.0", &GROUPS).await;
        grow_old(&old, |group| group == "kept.example", root);
        if root != StatusCode::OK {
            let index =
                r#"{"paths":{"api/v1":{},"apis/kept.example/v1":{},"apis/lost.example/v1":{}}}"#;
            old.says("/openapi/v3", 200, "application/json", index);
        }
        let gateway = Gateway::beside("a", &local).await.bare("b", old.address).start().await;
        for (group, _) in GROUPS {
            assert_eq!(reads(&gateway, group).await, StatusCode::OK, "{group}, {root} at the root");
        }
    }
}

#[tokio::test]
async fn an_api_listed_but_not_served_by_an_old_server_is_not_routed() {
    let local = Double::start("a", "v1.36.0", &[]).await;
    let old = Double::start("b", "v1.24.0", &GROUPS).await;
    grow_old(&old, |_| true, StatusCode::FORBIDDEN);
    old.denies("/apis/lost.example/v1");
    let gateway = Gateway::beside("a", &local).await.bare("b", old.address).start().await;
    assert_eq!(reads(&gateway, "kept.example").await, StatusCode::OK);
    assert_eq!(reads(&gateway, "lost.example").await, StatusCode::NOT_FOUND);
}
