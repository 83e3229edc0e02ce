//! Tests of hostile and ordinary ConfigMaps.

use serde_json::json;

use super::*;

fn read(data: &Value) -> ServerHeaders {
    ServerHeaders::of(&json!({"data": data}))
}

fn missing() -> Found {
    Found::Missing
}

fn forbidden() -> Found {
    Found::Forbidden
}

fn failed() -> Found {
    Found::Failed(String::new())
}

fn known(unread: &[&str], loses_uid: bool) -> HeadersState {
    let unread = unread.iter().map(|name| (*name).to_owned()).collect();
    HeadersState::Known { unread, loses_uid }
}

/// The ConfigMap of a kubeadm cluster, without its certificates.
fn usual() -> Value {
    json!({
        "client-ca-file": "-----BEGIN CERTIFICATE-----",
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    })
}

#[test]
fn the_usual_configmap_changes_nothing() {
    let (screen, headers) = (Screen::default(), read(&usual()));
    let mut watcher = Watcher::new(&screen);
    let before = screen.names();
    watcher.apply(Found::Names(headers));
    assert!(std::sync::Arc::ptr_eq(&before, &screen.names()));
    // Its servers do not read UIDs, as is Kubernetes' default.
    assert_eq!(screen.state(), known(&[], true));
}

#[test]
fn further_names_are_reserved_and_kept_when_the_configmap_cannot_be_read() {
    let mut data = usual();
    data["requestheader-group-headers"] = json!("[\"X-Remote-Group\",\" X-Auth-Group \"]");
    data["requestheader-uid-headers"] = json!("[\"x-remote-uid\",\"X-Auth-Uid\"]");
    data["requestheader-extra-headers-prefix"] = json!("[\"X-Remote-Extra-\",\"X-Claim-\"]");
    let screen = Screen::default();
    let mut watcher = Watcher::new(&screen);
    assert_eq!(screen.state(), HeadersState::Awaited);
    watcher.apply(Found::Names(read(&data)));
    assert_eq!(screen.state(), known(&[], false));
    for found in [missing, forbidden, failed] {
        (0..2 * FINAL).for_each(|_| watcher.apply(found()));
        for name in ["x-auth-group", "X_Auth_Group", "x-auth-uid", "x-claim-a"] {
            assert!(screen.names().reserves(name), "{name}");
        }
        assert!(!screen.names().reserves("x-auth"));
        assert_eq!(screen.state(), known(&[], false));
    }
}

/// Readiness waits for a server, and not for rights that it does not grant.
#[test]
fn a_denial_settles_at_once_and_a_failure_later() {
    for (found, results) in [(missing as fn() -> Found, 1), (forbidden, 1), (failed, FINAL)] {
        let screen = Screen::default();
        let mut watcher = Watcher::new(&screen);
        for _ in 1..results {
            watcher.apply(found());
            assert_eq!(screen.state(), HeadersState::Awaited);
        }
        watcher.apply(found());
        assert_eq!(screen.state(), HeadersState::Unknown);
        assert!(screen.names().reserves("x-remote-user"));
    }
}

/// A server that starts denies everything for a moment, which is not worth a warning.
#[test]
fn denials_are_reported_once_and_only_if_they_last() {
    let screen = Screen::default();
    let mut watcher = Watcher::new(&screen);
    for found in [failed, forbidden, failed] {
        (1..FINAL).for_each(|_| watcher.apply(found()));
        assert_eq!(watcher.reported, ReportOnce::default());
    }
    (0..FINAL).for_each(|_| watcher.apply(Found::Forbidden));
    assert!(!watcher.reported.report(), "it was reported");
    watcher.apply(Found::Names(read(&usual())));
    assert_eq!(watcher.reported, ReportOnce::default());
}

#[test]
fn a_header_that_we_send_and_no_server_reads_is_reported() {
    let own = RemoteHeaders::default();
    let lacking = json!({"client-ca-file": "-----BEGIN CERTIFICATE-----"});
    let all = ["x-remote-user", "x-remote-group", "x-remote-extra-"];
    assert_eq!(read(&lacking).compared_with(&own), known(&all, true));
    let mut other = usual();
    other["requestheader-group-headers"] = json!("[\"X-Auth-Group\"]");
    assert_eq!(read(&other).compared_with(&own), known(&["x-remote-group"], true));
    // What cannot be parsed proves nothing.
    other["requestheader-group-headers"] = json!("X-Remote-Group");
    assert_eq!(read(&other).compared_with(&own), known(&[], true));
}

#[test]
fn a_hostile_configmap_is_read_as_far_as_it_can_be() {
    for data in [json!(null), json!([]), json!("x"), json!({"requestheader-group-headers": null})] {
        assert!(read(&data).group.is_empty());
    }
    assert_eq!(ServerHeaders::of(&json!([1])), ServerHeaders::default());
    let odd = json!({
        "requestheader-username-headers": {"X-Remote-User": 1},
        "requestheader-group-headers": "[\"\", \" \", 7, null, [\"X-A\"], \"a b\", \"\u{e9}\", \"X-Ok\"]",
        "requestheader-uid-headers": "null",
        "requestheader-extra-headers-prefix": "[[[[",
    });
    let headers = read(&odd);
    assert_eq!(headers.group, ["X-Ok"]);
    assert_eq!(
        headers.invalid,
        [
            "requestheader-username-headers",
            "requestheader-group-headers",
            "requestheader-extra-headers-prefix",
        ]
    );
}

#[test]
fn thousands_of_names_are_all_reserved() {
    let names: Vec<String> = (0..20_000).map(|number| format!("X-Auth-{number}")).collect();
    let data = json!({"requestheader-group-headers": json!(names).to_string()});
    let screen = Screen::default();
    let mut watcher = Watcher::new(&screen);
    watcher.apply(Found::Names(read(&data)));
    let learned = screen.names();
    assert!(names.iter().all(|name| learned.reserves(name)));
    assert!(!learned.reserves("x-auth-20000") && !learned.reserves("accept"));
    assert!(listed(&["a"; 25]).ends_with(", \"a\" and 5 more"));
}

/// They are forwarded, so an operator must know.
#[test]
fn names_and_prefixes_that_cover_needed_headers_are_named() {
    let mut data = usual();
    data["requestheader-group-headers"] = json!("[\"Authorization\", \"X-Auth-Group\"]");
    data["requestheader-extra-headers-prefix"] = json!("[\"X-\", \"A\", \"\", \"X-Claim-\"]");
    let headers = read(&data);
    assert_eq!(headers.needed(), ["Authorization", "X-", "A", ""]);
}
