//! Tests of the probes.

use http_body_util::StreamBody;

use super::*;
use crate::ask::{Ask, is_watch};
use crate::local::{Local, LocalSlot};

#[tokio::test(start_paused = true)]
async fn a_forbidden_probe_counts_as_unready_for_a_while() {
    let ready = LocalHealth::Ready;
    let mut never = History::default();
    assert_eq!(never.judge(Found::Forbidden).0, LocalHealth::Unready, "it may have just started");
    tokio::time::advance(FORBIDS_AT_FIRST).await;
    assert_eq!(never.judge(Found::Forbidden).0, ready);

    // It is restarted: at first it has no rules.
    let mut history = History::default();
    assert_eq!(history.judge(Found::Ready).0, ready);
    let gone = history.judge(Found::Unreachable("refused".to_owned())).0;
    assert_eq!(gone, LocalHealth::Unreachable);
    assert_eq!(history.judge(Found::Forbidden).0, LocalHealth::Unready);
    assert_eq!(history.judge(Found::Ready).0, ready);

    // A gateway that was there before its server does not know yet.
    let mut first = History::default();
    first.judge(Found::Unreachable("refused".to_owned()));
    assert_eq!(first.judge(Found::Forbidden).0, LocalHealth::Unready);
    tokio::time::advance(FORBIDS).await;
    assert_eq!(first.judge(Found::Forbidden).0, ready, "it means it");
}

#[tokio::test(start_paused = true)]
async fn a_server_is_starting_for_a_while_after_it_was_unreachable() {
    let state = LocalState::new(Arc::new(Metrics::new(false))).unseen();
    assert!(state.is_starting(), "nobody has looked yet");
    state.set(LocalHealth::Ready);
    assert!(!state.is_starting());
    tokio::time::advance(FORBIDS).await;
    state.set(LocalHealth::Unready);
    assert!(!state.is_starting(), "it was there all the time");
    state.set(LocalHealth::Unreachable);
    state.set(LocalHealth::Unready);
    assert!(state.is_starting());
    tokio::time::advance(FORBIDS).await;
    assert!(!state.is_starting(), "it has forbidden it for too long");
}

#[test]
fn a_server_leaves_when_it_shuts_down_or_is_gone() {
    let unready = |said: &str| Found::Unready(failing(said)).is_leaving();
    assert!(unready("[+]etcd ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n"));
    assert!(!unready("[-]etcd failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"));
    assert!(!unready("[-]poststarthook/shutdown-test failed: reason withheld\n"));
    assert!(Found::Unreachable("refused".to_owned()).is_leaving());
    assert!(!Found::Ready.is_leaving() && !Found::Forbidden.is_leaving());
}

#[test]
fn failing_checks_are_named() {
    let said = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n";
    assert_eq!(failing(said), "[-]etcd failed: reason withheld");
    assert_eq!(failing("starting\n"), "starting");
}

/// A local server whose watches never end.
fn endless() -> LocalSlot {
    let slot = LocalSlot::default();
    let service = tower::service_fn(|request: Request<Body>| async move {
        let body = match is_watch(&request) {
            true => Body::new(StreamBody::new(futures_util::stream::pending::<Frames>())),
            false => Body::empty(),
        };
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    slot.fill(&Local::service(service));
    slot
}

type Frames = Result<http_body::Frame<bytes::Bytes>, std::convert::Infallible>;

#[tokio::test(start_paused = true)]
async fn our_own_watches_end_when_the_local_server_leaves() {
    let state = LocalState::new(Arc::new(Metrics::new(false)));
    let own = OwnRequests::new(endless(), Some(state.clone()));
    let ask = async |path: &str| own.ask(Request::get(path).body(Body::empty()).unwrap()).await;
    let watch = "/apis/coordination.k8s.io/v1/leases?labelSelector=a&watch=true";

    let mut body = ask(watch).await.unwrap().into_body();
    let waits = timeout(Duration::from_secs(600), body.frame()).await;
    assert!(waits.is_err(), "it lasts while the server is there");
    state.set_leaving(true);
    assert!(body.frame().await.is_none(), "it ends");
    let error = ask(watch).await.unwrap_err().to_string();
    assert!(error.contains("shutting down"), "{error}");
    assert!(ask("/apis/coordination.k8s.io/v1/leases").await.is_ok(), "others are sent");
    state.set_leaving(false);
    assert!(ask(watch).await.is_ok());
    // A request that finds nobody ends watches, too: it may be the first to notice.
    let mut body = ask(watch).await.unwrap().into_body();
    state.failed(Stage::Connect);
    assert!(body.frame().await.is_none());
}
