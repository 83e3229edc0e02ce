//! Comparison of flags with what servers publish.

use std::time::SystemTime;

use serde_json::json;
use testkit::certificates::{Ca, FRONT_PROXY_NAME, Leaf};

use super::*;
use crate::cli::{Flags, Origins, serve_args};
use crate::operator::doctor::check::Outcome;

fn settings(ca: &Ca, headers: &str) -> Settings {
    let folder = std::env::temp_dir().join(format!("mvp-accepts-{headers}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    ca.issue(Leaf::named(FRONT_PROXY_NAME).for_clients()).write(&folder, "proxy").unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let flags = Flags::default()
        .with("proxy-client-cert-file", file("proxy.crt"))
        .with("proxy-client-key-file", file("proxy.key"))
        .with("requestheader-username-headers", headers.to_owned());
    let args = serve_args(&flags).unwrap();
    let settings = Settings::read(args, &Origins::default(), SystemTime::now());
    std::fs::remove_dir_all(&folder).unwrap();
    settings
}

#[test]
fn what_the_config_map_lacks_no_server_accepts() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let map = |ca: &Ca, names: &str| {
        json!({"data": {
            "requestheader-client-ca-file": ca.pem(),
            "requestheader-allowed-names": names,
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"x-remote-group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }})
    };
    let good = settings(&ca, "X-Remote-User");
    let failing = |settings: &Settings, map: &Value| -> Vec<String> {
        let checks = compared(settings, map).into_iter();
        checks.filter(|check| check.result == Outcome::Fail).map(|check| check.name).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(failing(&good, &map(&ca, "[\"front-proxy-client\"]")), none);
    assert_eq!(failing(&good, &map(&ca, "[]")), none, "no names allow all");
    assert_eq!(failing(&good, &map(&ca, "[\"x\"]")), ["allowed names"]);
    assert_eq!(failing(&good, &map(&other, "[]")), ["request-header CA"]);
    let differs = settings(&ca, "X-Other");
    assert_eq!(failing(&differs, &map(&ca, "[]")), ["headers"]);
    assert_eq!(failing(&good, &json!({})), ["headers"], "it has nothing");
}

#[test]
fn the_review_of_the_server_is_the_truth() {
    let outcome = |review| identity(&review).unwrap().result;
    let accepted = |groups, uid, extra| Review::Accepted { groups, uid, extra };
    assert_eq!(outcome(accepted(true, true, true)), Outcome::Ok);
    assert_eq!(outcome(accepted(true, false, true)), Outcome::Ok, "Kubernetes' default");
    assert_eq!(outcome(accepted(false, true, true)), Outcome::Fail);
    assert_eq!(outcome(accepted(true, true, false)), Outcome::Fail);
    assert_eq!(outcome(Review::OtherHeaders), Outcome::Fail);
    assert_eq!(outcome(Review::Other("x".to_owned())), Outcome::Fail);
    assert_eq!(outcome(Review::Refused(StatusCode::UNAUTHORIZED)), Outcome::Fail);
    for unknown in [Review::NoApi, Review::NotAsked, Review::Failed("x".to_owned())] {
        assert_eq!(outcome(unknown), Outcome::Skip);
    }
}
