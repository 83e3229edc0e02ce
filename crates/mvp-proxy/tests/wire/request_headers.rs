//! Headers that the cluster's servers read users from, although no flag of the gateway names them.

use mvp_proxy::HeadersState;
use serde_json::{Value, json};

use crate::client::{BOTH, ask, get, with};
use crate::pki::pki;
use crate::world::{BARE, LOCAL, MVP, World};

fn config_map(groups: &[&str], prefixes: &[&str]) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {
        "requestheader-username-headers": json!(["X-Remote-User", "X-Auth-User"]).to_string(),
        "requestheader-group-headers": json!(groups).to_string(),
        "requestheader-uid-headers": json!(["X-Auth-Uid"]).to_string(),
        "requestheader-extra-headers-prefix": json!(prefixes).to_string(),
    }})
}

/// A server would take their values for groups of the caller, whose request has our certificate.
#[tokio::test]
async fn headers_that_only_servers_know_of_are_removed() {
    let map = config_map(&["X-Remote-Group", "X-Auth-Group"], &["X-Remote-Extra-", "X-Claim-"]);
    let world = World::with_config_map(&map).await;
    let spoofed =
        ["x-auth-user", "x-auth-group", "x_auth_group", "x-auth-uid", "x-claim-a", "x_claim-b"];
    for (who, token) in [
        (Some(&pki().alice), None),
        (Some(&pki().proxy), None),
        (None, Some("Bearer of-carol")),
        (None, None),
    ] {
        for protocol in BOTH {
            for path in [LOCAL, BARE, MVP] {
                let mut request = with(get(path), "x-fine", "fine");
                for name in spoofed {
                    request = with(request, name, "spoofed");
                }
                if let Some(token) = token {
                    request = with(request, "authorization", token);
                }
                ask(world.gateway.address, protocol, who, request).await;
            }
        }
    }
    let arrived = world.arrived();
    assert!(arrived.iter().any(|seen| seen.header("x-remote-user") == Some("alice")));
    for seen in arrived {
        assert_eq!(seen.header("x-fine"), Some("fine"));
        assert!(!seen.headers.values().any(|value| value == "spoofed"), "{seen:?}");
    }
    let state = HeadersState::Known { unread: Vec::new(), loses_uid: true };
    assert_eq!(world.gateway.member.request_headers(), state);
}

#[tokio::test]
async fn a_configmap_that_claims_every_header_breaks_no_request() {
    let map = config_map(&["Authorization", "Accept", "Content-Type"], &["", "X-", "A", "c"]);
    let world = World::with_config_map(&map).await;
    for protocol in BOTH {
        for path in [LOCAL, BARE, MVP] {
            let mut request = with(get(path), "authorization", "Bearer of-carol");
            for (name, value) in
                [("accept", "application/yaml"), ("content-type", "a/b"), ("x-own", "spoofed")]
            {
                request = with(request, name, value);
            }
            ask(world.gateway.address, protocol, None, request).await;
        }
    }
    let arrived = world.arrived();
    assert_eq!(arrived.len(), 8, "two of them also at the gateway of a peer");
    for seen in arrived {
        let header = |name| seen.header(name);
        assert_eq!(header("authorization"), Some("Bearer of-carol"));
        assert_eq!(header("accept"), Some("application/yaml"));
        assert_eq!(header("content-type"), Some("a/b"));
        assert_eq!(header("x-own"), None);
    }
    let unread = vec!["x-remote-group".to_owned(), "x-remote-extra-".to_owned()];
    let state = HeadersState::Known { unread, loses_uid: true };
    assert_eq!(world.gateway.member.request_headers(), state);
}
