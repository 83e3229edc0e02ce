//! A member that is the gateway itself, by another name.

use http::StatusCode;
use mvp_apiserver::Storage;
use serde_json::{Value, json};

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

#[tokio::test]
async fn who_leads_back_to_us_is_nobodys_peer() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let own = free_address();
    let flag = format!("--peer=loop=https://localhost:{}", own.port());
    let gateway = Gateway::start(own, "b", server.address, &[flag]).ready().await;
    let known = async || {
        let page: Value = serde_json::from_str(&gateway.page("/debug/snapshot").await).unwrap();
        let members = page["members"].as_array().unwrap().clone();
        members.into_iter().find(|member| member["id"] == "loop")
    };
    let found = eventually("it is found out", async || match known().await {
        Some(member) if member["present"] == json!(false) => Ok(member),
        other => Err(other),
    })
    .await;
    assert_eq!(found["view"], "Unknown", "nothing of it was ever used");
    assert!(gateway.log().contains("is this gateway itself"), "{}", gateway.log());
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::NOT_FOUND, "it holds nothing up");
}
