//! Beats: how long they hold, and that late ones are noted.

use mvp_proxy::{Member, OutboundTls};
use testkit::certificates::Ca;
use tokio::time::{sleep, timeout};

use super::*;

fn steered(attached: Result<Steering, String>) -> Steered {
    Steered(Arc::new(State {
        attached,
        place: Place { port: 1, address: None },
        unsteered: Unsteered::default(),
        lapses: Lapses::default(),
        holds: AtomicU64::new(0),
        begun: AtomicBool::new(true),
        fault: Mutex::default(),
    }))
}

#[tokio::test]
async fn a_beat_holds_longer_while_the_server_is_not_ready_and_the_gateway_not_suspected() {
    let tls = OutboundTls::new(Ca::new("servers").pem().as_bytes(), None).unwrap();
    let member = Member::builder("a", tls).server_at("127.0.0.1:1").build();
    // Not ready until the first probe.
    let local = member.local_state().unwrap();
    assert_ne!(local.get(), LocalHealth::Ready);
    let steered = steered(Err("not attached".to_owned()));
    assert_eq!(steered.holds(Some(local)), LONGEST_BEAT);
    assert_eq!(steered.holds(None), BEAT_LIMIT);
    for fault in [Fault::Suspected, Fault::Confirmed("a reason".to_owned())] {
        steered.set_fault(fault.clone());
        assert_eq!(steered.holds(Some(local)), BEAT_LIMIT, "{fault:?}");
    }
    steered.set_fault(Fault::None);
    assert_eq!(steered.holds(Some(local)), LONGEST_BEAT);
}

#[test]
fn a_host_that_is_short_of_cpu_time_may_be_late_for_longer_and_tells_so() {
    let steered = steered(Err("not attached".to_owned()));
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(SteeringMetrics(steered.clone())));
    let shows = |value: &str| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("\nmvp_steering_tolerance_seconds {value}\n");
        assert!(text.contains(&line) && text.contains("mvp_steering_active 0"), "{text}");
    };
    assert_eq!(steered.holds(None), BEAT_LIMIT);
    shows("0.25");
    steered.0.lapses.note_gap(Duration::from_millis(300), Instant::now());
    assert_eq!(steered.holds(None), LONGEST_BEAT);
    shows("2.0");
}

#[tokio::test]
async fn a_worker_that_was_late_is_noted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Nobody connects to this port. The control loop does not beat, so nothing would be steered.
    let nothing =
        mvp_steer::Steered { port: 1, address: None, ipv4: &[listener.as_fd()], ipv6: &[] };
    let steering = match Steering::attach(&nothing, 2) {
        Ok(steering) => steering,
        // Without the rights for it, nothing is tested. CI has them.
        Err(error) => {
            assert!(std::env::var_os("MVP_TEST_KERNEL").is_none(), "not tested: {error}");
            return;
        }
    };
    let steered = steered(Ok(steering));
    let worker = steered.clone().beat_worker(0, ConnectionLimit::default(), None);
    let worker = tokio::spawn(worker);
    sleep(BEAT_INTERVAL).await;
    // The only thread of this runtime does not run its tasks.
    std::thread::sleep(BEAT_LIMIT * 2);
    let noted = async {
        while steered.lapses().count() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), noted).await.unwrap();
    assert!(steered.state().lapsed_seconds_ago.is_some());
    worker.abort();
}
