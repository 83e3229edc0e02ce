//! A member that is the gateway itself, by another name.

use http::StatusCode;
use mvp_apiserver::Storage;
use serde_json::Value;

use crate::cluster::{CONFIG_MAPS, WIDGETS, any, api_server, serve};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::process::{Gateway, free_address};

#[tokio::test]
async fn a_member_address_that_leads_back_to_the_gateway_is_ignored() {
    let server = serve(any(), api_server("b", Storage::new())).await;
    let own = free_address();
    let flag = format!("--peer=loop=https://localhost:{}", own.port());
    let gateway = Gateway::start(own, "b", server.address, &[flag]).ready().await;
    eventually("it is found out", async || match gateway.log() {
        log if log.contains("leads back to this gateway") => Ok(()),
        log => Err(log),
    })
    .await;
    eventually("nothing of it is kept", async || {
        let page: Value = serde_json::from_str(&gateway.page("/debug/snapshot").await).unwrap();
        let members = page["members"].as_array().unwrap().clone();
        match members.iter().find(|member| member["id"] == "loop") {
            None => Ok(()),
            Some(member) => Err(member.clone()),
        }
    })
    .await;
    let client = Client::user(gateway.address).await;
    assert_eq!(client.get(CONFIG_MAPS).await.0, StatusCode::OK);
    assert_eq!(client.get(WIDGETS).await.0, StatusCode::NOT_FOUND, "it holds nothing up");
}
