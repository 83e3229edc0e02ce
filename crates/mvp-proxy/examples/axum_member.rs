//! An axum API server as a member of a cluster of mixed versions: run it with a folder of PEM files
//! (`ca.crt front-proxy-ca.crt server.crt server.key proxy.crt proxy.key`) and a peer, as in
//! `cargo run -p mvp-proxy --example axum_member -- certs other=127.0.0.1:7443`.

use std::error::Error;

use axum::{Json, Router, routing::get};
use mvp_core::member::MemberKind;
use mvp_net::{ClientTrust, Limits, ReloadableTls, ServerTls, bind};
use mvp_proxy::control::{MemberRecord, StaticMembership};
use mvp_proxy::data::OutboundTls;
use mvp_proxy::{Embed, identity::AuthenticateLayer};
use serde_json::json;
use tower_layer::Layer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name the folder of the PEM files")?;
    let read = |name: &str| std::fs::read(format!("{folder}/{name}"));
    let (ca, proxy) = (read("ca.crt")?, (read("proxy.crt")?, read("proxy.key")?));
    let peers = arguments.filter_map(|peer| {
        let (id, address) = peer.split_once('=')?;
        let (name, address) = (id.into(), Some(address.into()));
        Some(MemberRecord { name, address, kind: MemberKind::Mvp, heard: None })
    });
    let outbound = OutboundTls::new(&ca, Some((&proxy.0, &proxy.1)))?;
    let membership = StaticMembership::new(peers.collect());
    let stop = tokio_util::sync::CancellationToken::new();
    let member = Embed::new("widgets", membership, outbound).start(stop.clone());

    let (kind, version) = ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2");
    let core = json!({"kind": kind, "apiVersion": version, "items": []});
    let groups = json!({"kind": kind, "apiVersion": version, "items": [{
        "metadata": {"name": "example.com"},
        "versions": [{"version": "v1", "resources": [{
            "resource": "widgets", "scope": "Cluster", "singularResource": "widget", "verbs": ["list"],
            "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
        }]}],
    }]});
    let widgets =
        json!({"kind": "WidgetList", "apiVersion": "example.com/v1", "metadata": {}, "items": []});
    let aggregated =
        [("content-type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let api_server = Router::new()
        .route("/api", get(move || async move { (aggregated, Json(core)) }))
        .route("/apis", get(move || async move { (aggregated, Json(groups)) }))
        .route("/apis/example.com/v1/widgets", get(move || async move { Json(widgets) }));

    let trust = ClientTrust::new(Some(&ca), Some(&read("front-proxy-ca.crt")?), vec![])?;
    let tls = ServerTls::new(&read("server.crt")?, &read("server.key")?, trust)?;
    let listener = tokio::net::TcpListener::from_std(bind("127.0.0.1:0".parse()?, false)?)?;
    eprintln!(
        "serving widgets.example.com, and all that its peers serve, on {}",
        listener.local_addr()?
    );
    let service = AuthenticateLayer::default().layer(member.layer.layer(api_server));
    mvp_net::serve(listener, ReloadableTls::new(tls), Limits::default(), service, stop).await;
    Ok(())
}
