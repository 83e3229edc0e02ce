//! An axum API server as a member of a cluster of mixed versions. Run it with a folder of PEM files
//! (`ca.crt front-proxy-ca.crt server.crt server.key proxy.crt proxy.key`) and a peer, as in
//! `cargo run -p mvp-proxy --example axum_member -- certs other 127.0.0.1:7443`.

use axum::{Router, routing::get};
use mvp_net::{ClientTrust, Limits, ReloadableTls, ServerTls, bind};
use mvp_proxy::control::{MemberRecord, StaticMembership};
use mvp_proxy::{Member, OutboundTls};
use tower_layer::Layer;

const API: [(&str, &str); 4] = [
    ("/api", r#"{"kind": "APIVersions", "versions": []}"#),
    ("/apis", include_str!("widgets/groups.json")),
    ("/apis/example.com/v1", include_str!("widgets/resources.json")),
    ("/apis/example.com/v1/widgets", include_str!("widgets/widgets.json")),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, peer, address] = &*arguments else { return Err("FOLDER PEER ADDRESS".into()) };
    let read = |name: &str| std::fs::read(format!("{folder}/{name}"));
    let json = |body| get(([("content-type", "application/json")], body));
    let api_server =
        API.iter().fold(Router::new(), |api, (path, body)| api.route(path, json(*body)));

    let (ca, stop) = (read("ca.crt")?, tokio_util::sync::CancellationToken::new());
    let tls = OutboundTls::new(&ca, Some((&read("proxy.crt")?, &read("proxy.key")?)))?;
    let member = Member::builder("widgets", tls).build();
    let peers = StaticMembership::new(vec![MemberRecord::gateway(peer, address)]);
    let layer = member.start(peers, stop.clone()).layer();
    let service = member.authenticate().layer(layer.layer(api_server));
    let trust = ClientTrust::new(Some(&ca), Some(&read("front-proxy-ca.crt")?), vec![])?;
    let tls = ServerTls::new(&read("server.crt")?, &read("server.key")?, trust)?;
    let listener = tokio::net::TcpListener::from_std(bind("127.0.0.1:0".parse()?, false)?)?;
    eprintln!("serving on {}", listener.local_addr()?);
    mvp_net::serve(listener, ReloadableTls::new(tls), Limits::default(), service, stop).await;
    Ok(())
}
