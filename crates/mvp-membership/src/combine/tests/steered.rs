//! Gateways that steer: a gateway and its server share one address.

use super::*;

const AT: &str = "10.0.0.2:6443";

/// The Lease of a gateway, and the identity Lease of its server, which has no address.
fn leases(gateway_heard: u64, server_heard: u64) -> [Claims; 3] {
    let server = claim("b", "", MemberKind::Bare, Some(server_heard));
    [said(Vec::new()), said(vec![mvp("b", AT, gateway_heard)]), said(vec![server])]
}

/// The members after these answers at the address of the gateway.
async fn members_after(answers: &[Who], sources: [Claims; 3]) -> Vec<String> {
    let (senders, sources): (Vec<_>, Vec<_>) = sources
        .map(|claims| {
            let (sender, source) = Source::new("leases");
            sender.send_replace(claims);
            (sender, source)
        })
        .into_iter()
        .unzip();
    let mut combined = Combined::new(own(), Clock::start(), sources);
    for who in answers {
        combined.answered(&AT.into(), who);
    }
    let shown = |record: &MemberRecord| {
        let address = record.address.as_deref().unwrap_or("-");
        let heard = record.heard.unwrap_or_default().since(at(0)).as_secs();
        format!("{} {address} {:?} {heard}", record.name, record.kind)
    };
    let mut members: Vec<String> = combined.roster().members.iter().map(shown).collect();
    members.sort();
    drop(senders);
    members
}

fn gateway(id: &str) -> Who {
    Who::Gateway { id: id.into(), instance: "1".into() }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_gateway_stopped_is_one_member() {
    let of_b = gateway("b");
    let running = members_after(std::slice::from_ref(&of_b), leases(3, 9)).await;
    assert_eq!(running, [format!("b {AT} Mvp 3")]);
    // It is alive by the identity Lease, whatever becomes of the gateway's.
    let stopped = members_after(&[of_b.clone(), Who::Server], leases(3, 9)).await;
    assert_eq!(stopped, [format!("b {AT} Bare 9")]);
    let back = members_after(&[of_b.clone(), Who::Server, of_b], leases(12, 9)).await;
    assert_eq!(back, [format!("b {AT} Mvp 12")]);
}

/// It takes its Lease back. EndpointSlices still have the address, without an ID.
#[tokio::test(start_paused = true)]
async fn a_server_whose_gateway_left_is_one_member() {
    let left = || {
        let endpoint = claim("", AT, MemberKind::Bare, None);
        let server = claim("b", "", MemberKind::Bare, Some(9));
        [said(vec![endpoint]), said(Vec::new()), said(vec![server])]
    };
    let one = [format!("b {AT} Bare 0")];
    assert_eq!(members_after(&[gateway("b"), Who::Server], left()).await, one);
    // Where no gateway ever answered, the server with the ID may be anywhere.
    let apart = [format!("{AT} {AT} Bare 0"), "b - Bare 9".to_owned()];
    assert_eq!(members_after(&[Who::Server], left()).await, apart);
}

/// Somebody claims to be a gateway at the address of another server.
#[tokio::test(start_paused = true)]
async fn a_server_is_not_taken_for_one_whose_gateway_never_answered_there() {
    let apart = ["b - Bare 9".to_owned(), format!("b@{AT} {AT} Bare 3")];
    assert_eq!(members_after(&[Who::Server], leases(3, 9)).await, apart);
    assert_eq!(members_after(&[gateway("c"), Who::Server], leases(3, 9)).await, apart);
}
