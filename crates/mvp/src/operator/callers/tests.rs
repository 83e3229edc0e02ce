//! Tests of the table and of the selection.

use std::path::PathBuf;

use super::*;

fn resource(group: &str, version: &str, resource: &str) -> ResourceCallers {
    let (group, version, resource) = (group.to_owned(), version.to_owned(), resource.to_owned());
    ResourceCallers { group, version, resource, callers: Vec::new(), more_requests: 0 }
}

fn caller(user: Option<&str>, source: &str, agent: &str, seconds: u64) -> RecordedCaller {
    RecordedCaller {
        user: user.map(str::to_owned),
        user_source: source.to_owned(),
        user_agent: agent.to_owned(),
        requests: 7,
        last_seen_seconds_ago: seconds,
        address: Some("192.0.2.1".to_owned()),
    }
}

fn args() -> CallersArgs {
    CallersArgs {
        api: None,
        deprecated: false,
        removed_in: None,
        addresses: false,
        gateway: GatewayArgs { admin_socket: PathBuf::new(), admin_address: None },
        output: Output::Text,
    }
}

#[test]
fn an_api_selects_itself_and_what_is_below() {
    let jobs = resource("batch", "v1", "jobs");
    for api in ["jobs", "jobs.batch", "batch", "batch/v1", "batch/v1/jobs", "batch/v1/"] {
        let args = CallersArgs { api: Some(api.to_owned()), ..args() };
        assert!(Selection::new(&args).unwrap().has(&jobs), "{api}");
    }
    for api in ["job", "bat", "batch/v", "v1", "batch/v1/job", "v1/jobs", "jobs.apps"] {
        let args = CallersArgs { api: Some(api.to_owned()), ..args() };
        assert!(!Selection::new(&args).unwrap().has(&jobs), "{api}");
    }
    let pods = resource("", "v1", "pods");
    for api in ["pods", "v1", "v1/pods"] {
        assert!(matches(api, &pods), "{api}");
    }
    let empty = CallersArgs { api: Some("/".to_owned()), ..args() };
    assert!(matches!(Selection::new(&empty), Err(Mistake::Usage(_))));
}

#[test]
fn deprecated_and_removed_apis_are_selected() {
    let selected = |args: &CallersArgs, of: &ResourceCallers| Selection::new(args).unwrap().has(of);
    let claims = resource("resource.k8s.io", "v1beta1", "resourceclaims");
    let endpoints = resource("", "v1", "endpoints");
    let jobs = resource("batch", "v1", "jobs");
    let deprecated = CallersArgs { deprecated: true, ..args() };
    assert_eq!(
        [&claims, &endpoints, &jobs].map(|of| selected(&deprecated, of)),
        [true, true, false]
    );
    let removed = CallersArgs { removed_in: Some("1.38".to_owned()), ..args() };
    assert_eq!([&claims, &endpoints, &jobs].map(|of| selected(&removed, of)), [true, false, false]);
    let earlier = CallersArgs { removed_in: Some("1.36".to_owned()), ..args() };
    assert!(!selected(&earlier, &claims));
    let unknown = CallersArgs { removed_in: Some("soon".to_owned()), ..args() };
    let Err(mistake) = Selection::new(&unknown) else { panic!() };
    assert!(mistake.to_string().starts_with("--removed-in: \"soon\" is not a known release"));
}

#[test]
fn rows_show_who_called_and_escape_what_clients_sent() {
    let mut jobs = resource("batch", "v1beta1", "cronjobs");
    jobs.callers = vec![
        caller(Some("alice"), "authenticated", "kubectl/v1.34", 5),
        caller(Some("0a1b2c3d"), "token-hash", "x\u{1b}[2J", 300),
        caller(None, "websocket-token", "", 119),
    ];
    jobs.more_requests = 12;
    let report = CallersReport { window_seconds: 3600, resources: vec![jobs], more_requests: 3 };
    let plain = table(&report, false, false).render(Paint::PLAIN);
    let expected = "\
GROUP/VERSION/RESOURCE   USER                USER AGENT      REQUESTS   LAST SEEN
batch/v1beta1/cronjobs   alice               kubectl/v1.34   7          5s ago
batch/v1beta1/cronjobs   token:0a1b2c3d      x\\u{1b}[2J      7          5m ago
batch/v1beta1/cronjobs   (websocket-token)                   7          119s ago
batch/v1beta1/cronjobs   (more callers)                      12
";
    assert_eq!(plain, expected);
    let full = table(&report, true, true).render(Paint::PLAIN);
    assert!(full.contains("ADDRESS") && full.contains("192.0.2.1"), "{full}");
    assert!(full.contains("1.25") && full.contains("batch/v1/CronJob"), "{full}");
    assert_eq!(more(&report), "3 requests for further resources were not recorded.\n");
    let json = serde_json::to_value(Described::of(&report)).unwrap();
    let of = &json["resources"][0];
    assert_eq!((of["removedIn"].as_str(), of["deprecated"].as_bool()), (Some("1.25"), Some(true)));
    assert_eq!(of["callers"][0]["userAgent"], "kubectl/v1.34");
}
