//! Places in flight, with a paused clock.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tokio::time::{Instant, sleep};

use super::*;

type Entering = Pin<Box<dyn Future<Output = Result<Place, Refused>>>>;

fn user(hash: u64) -> Flow {
    Flow { hash, class: Class::Other }
}

fn now() -> Timestamp {
    Timestamp::default()
}

fn gate(bound: usize) -> Arc<Gate> {
    Arc::new(Gate::new(bound))
}

/// A request that waits; it was polled once.
async fn waiting(gate: &Arc<Gate>, flow: Flow) -> Entering {
    let gate = Arc::clone(gate);
    let mut entering: Entering = Box::pin(async move { gate.enter(flow, now()).await });
    assert!(polled(&mut entering).await.is_none(), "it waits");
    entering
}

async fn polled(entering: &mut Entering) -> Option<Result<Place, Refused>> {
    poll_fn(|context| match entering.as_mut().poll(context) {
        Poll::Ready(entered) => Poll::Ready(Some(entered)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Takes all places that are left, each for another user.
async fn full(gate: &Arc<Gate>) -> Vec<Place> {
    let mut places = Vec::new();
    for number in 0.. {
        if gate.in_flight.load(Ordering::SeqCst) == gate.bound {
            break;
        }
        places.push(gate.enter(user(1_000 + number), now()).await.unwrap());
    }
    places
}

/// Takes places for one user until it waits.
async fn as_many_as_possible(gate: &Arc<Gate>, flow: Flow) -> (Vec<Place>, Entering) {
    let mut places = Vec::new();
    loop {
        if let Some(place) = gate.try_enter() {
            places.push(place);
            continue;
        }
        let gate = Arc::clone(gate);
        let mut entering: Entering = Box::pin(async move { gate.enter(flow, now()).await });
        match polled(&mut entering).await {
            Some(place) => places.push(place.unwrap()),
            None => return (places, entering),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_when_its_guard_is_dropped() {
    let gate = gate(2);
    let first = gate.try_enter().unwrap();
    assert!(gate.try_enter().is_none(), "users are told apart from now on");
    let second = gate.enter(user(2), now()).await.unwrap();
    let mut third = waiting(&gate, user(1)).await;
    drop(first);
    let third = polled(&mut third).await.unwrap().unwrap();
    assert!(third.waited() && !second.waited());
    assert_eq!(gate.in_flight(), 2);
    drop((second, third));
    assert_eq!(gate.in_flight(), 0);
    assert!(gate.try_enter().is_some(), "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_too_long_is_refused_and_leaves_nothing_behind() {
    let gate = gate(2);
    let places = full(&gate).await;
    assert_eq!(gate.enter(user(1), now()).await.unwrap_err(), Refused::Late);
    drop(waiting(&gate, user(2)).await);
    assert!(!gate.busy.load(Ordering::SeqCst));
    drop(places);
    assert!(gate.try_enter().is_some());
    assert!(gate.fair().is_at_rest(), "no user is remembered");
}

#[tokio::test(start_paused = true)]
async fn one_user_leaves_a_quarter_to_others_however_long_its_requests_last() {
    let gate = gate(16);
    let (mut of_first, first) = as_many_as_possible(&gate, user(1)).await;
    assert_eq!(of_first.len(), 12, "half of them uncounted, and half of the rest");
    let (of_second, _second) = as_many_as_possible(&gate, user(2)).await;
    let (of_third, _third) = as_many_as_possible(&gate, user(3)).await;
    assert_eq!((of_second.len(), of_third.len()), (2, 1));
    assert_eq!(first.await.unwrap_err(), Refused::Share, "a place is free, but not for it");
    let fourth = gate.enter(user(4), now()).await.unwrap();
    assert_eq!(gate.in_flight(), 16);

    // What it gives back goes to those who hold less.
    let mut first = waiting(&gate, user(1)).await;
    let mut fifth = waiting(&gate, user(5)).await;
    drop(of_first.pop());
    assert!(polled(&mut fifth).await.unwrap().is_ok());
    assert!(polled(&mut first).await.is_none());
    drop((of_first, of_second, of_third, fourth));
    assert!(polled(&mut first).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_places_are_all_counted_has_half() {
    let gate = gate(16);
    assert!(gate.slow(user(9), now()), "users are told apart from now on");
    let (places, _waiting) = as_many_as_possible(&gate, user(1)).await;
    assert_eq!(places.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn one_node_leaves_places_to_other_nodes() {
    let gate = gate(16);
    let _places = full(&gate).await;
    let node = |hash| Flow { hash, class: Class::Node };
    let (of_first, _first) = as_many_as_possible(&gate, node(1)).await;
    let (of_second, _second) = as_many_as_possible(&gate, node(2)).await;
    assert_eq!((of_first.len(), of_second.len()), (2, 1), "of four");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_takes_goes_to_the_next() {
    let gate = gate(1);
    let places = full(&gate).await;
    let gone = waiting(&gate, user(1)).await;
    let mut next = waiting(&gate, user(2)).await;
    // Given to the first one, which does not look any more.
    drop(places);
    assert_eq!(gate.in_flight(), 1);
    drop(gone);
    assert!(polled(&mut next).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_user_with_many_requests_does_not_keep_another_waiting() {
    let gate = gate(4);
    let places = full(&gate).await;
    let mut many = Vec::new();
    for _ in 0..MAX_WAITING / 4 {
        many.push(waiting(&gate, user(1)).await);
    }
    assert_eq!(gate.enter(user(1), now()).await.unwrap_err(), Refused::Full);
    let mut other = waiting(&gate, user(2)).await;
    drop(places);
    assert!(polled(&mut other).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn masters_never_wait_and_nodes_have_places_of_their_own() {
    let gate = gate(4);
    let _places = full(&gate).await;
    let _waiting = waiting(&gate, user(1)).await;
    let node = Flow { hash: 2, class: Class::Node };
    let _node = gate.enter(node, now()).await.unwrap();
    assert_eq!(gate.enter(node, now()).await.unwrap_err(), Refused::Late);
    let exempt = Flow { hash: 3, class: Class::Exempt };
    let masters: Vec<Place> = {
        let mut masters = Vec::new();
        for _ in 0..100 {
            masters.push(gate.enter(exempt, now()).await.unwrap());
        }
        masters
    };
    assert_eq!(gate.in_flight(), 105);
    drop(masters);
    assert_eq!(gate.in_flight(), 5);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_always_wait_do_not_keep_others_waiting() {
    let gate = gate(4);
    let mut places = full(&gate).await;
    let node = Flow { hash: 2, class: Class::Node };
    let own = gate.enter(node, now()).await.unwrap();
    let mut nodes = Vec::new();
    for hash in 10..20 {
        nodes.push(waiting(&gate, Flow { hash, class: Class::Node }).await);
    }
    let mut other = waiting(&gate, user(1)).await;
    drop(places.pop());
    let first = polled(&mut nodes[0]).await.unwrap().unwrap();
    assert!(polled(&mut other).await.is_none(), "the first turn is that of a node");
    drop(places.pop());
    let _other = polled(&mut other).await.unwrap().unwrap();
    // The place of nodes goes to a node.
    drop(own);
    let _own = polled(&mut nodes[1]).await.unwrap().unwrap();
    assert!(polled(&mut nodes[2]).await.is_none());
    assert_eq!(gate.in_flight(), 5);
    drop((places, first, nodes));
    assert!(gate.try_enter().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_user_that_the_member_refuses_is_slowed_and_others_are_not() {
    let gate = gate(32);
    for class in [Class::Node, Class::Exempt] {
        assert!(!gate.slow(Flow { hash: 1, class }, now()));
    }
    assert!(!Gate::default().slow(user(1), now()), "nobody is slowed where nothing is bounded");
    assert!(gate.slow(user(1), now()));
    assert!(gate.try_enter().is_none(), "users are told apart from now on");
    let first = gate.enter(user(1), now()).await.unwrap();
    assert!(!first.waited(), "a place is free");
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(gate.enter(user(1), now()).await.unwrap());
    }
    let mut last = waiting(&gate, user(1)).await;
    let _others: Vec<Place> = {
        let mut others = Vec::new();
        for _ in 0..10 {
            others.push(gate.enter(user(2), now()).await.unwrap());
        }
        others
    };
    drop(first);
    let last = polled(&mut last).await.unwrap().unwrap();
    for _ in 0..100 {
        last.served();
    }
    assert!(gate.try_enter().is_some(), "it recovered");
    let later = now().after(Duration::from_secs(60));
    gate.slow(user(1), now());
    drop(gate.enter(user(2), later).await.unwrap());
    assert!(gate.try_enter().is_some(), "it is over after a while");
}

/// Many tasks on several threads: nobody waits forever, and all places come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_place_is_lost_under_contention() {
    let gate = gate(3);
    let most = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..16_u64)
        .map(|number| {
            let (gate, most) = (Arc::clone(&gate), Arc::clone(&most));
            tokio::spawn(async move {
                let mut entered = 0;
                while entered < 500 {
                    let place = match gate.try_enter() {
                        Some(place) => Ok(place),
                        None => gate.enter(user(number), now()).await,
                    };
                    if let Ok(_place) = place {
                        entered += 1;
                        most.fetch_max(gate.in_flight(), Ordering::SeqCst);
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(Duration::from_secs(60), task).await.expect("in time").unwrap();
    }
    assert_eq!(gate.in_flight(), 0);
    assert!(!gate.busy.load(Ordering::SeqCst));
    assert!(most.load(Ordering::SeqCst) <= 3);
}

/// How long the server takes for a request: 15 to 25 ms.
fn service_time(number: u64) -> Duration {
    Duration::from_millis(15 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 11)
}

/// Sends a request to a server behind a gate. Returns how long it took, or `None` if it was refused.
async fn request(gate: &Arc<Gate>, flow: Flow, number: u64) -> Option<Duration> {
    let began = Instant::now();
    let place = match gate.try_enter() {
        Some(place) => place,
        None => gate.enter(flow, now()).await.ok()?,
    };
    sleep(service_time(number)).await;
    drop(place);
    Some(began.elapsed())
}

/// The latencies of a user who sends a request every 10 ms, sorted, beside this many requests of
/// another one, who sends each again a second after a refusal.
async fn beside(requests: u64, own: Flow) -> Vec<Option<Duration>> {
    let gate = gate(50);
    let others: Vec<_> = (0..requests)
        .map(|number| {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move {
                loop {
                    if request(&gate, user(1), number).await.is_none() {
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            })
        })
        .collect();
    // All of them were sent.
    sleep(Duration::from_millis(100)).await;
    let mut sent = Vec::new();
    for number in 0..300 {
        let gate = Arc::clone(&gate);
        sent.push(tokio::spawn(async move { request(&gate, own, number).await }));
        sleep(Duration::from_millis(10)).await;
    }
    let mut latencies = Vec::new();
    for request in sent {
        latencies.push(request.await.unwrap());
    }
    others.iter().for_each(tokio::task::JoinHandle::abort);
    latencies.sort_by_key(|latency| latency.unwrap_or(Duration::MAX));
    latencies
}

fn p99(latencies: &[Option<Duration>]) -> Option<Duration> {
    latencies[latencies.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn one_user_with_ten_thousand_requests_does_not_double_the_p99_of_another() {
    let alone = p99(&beside(0, user(2)).await).unwrap();
    let shared = p99(&beside(10_000, user(2)).await).unwrap();
    assert!(shared <= 2 * alone, "{alone:?} alone, {shared:?} beside the other");
    // It does to that of a request of the same user, which is what would happen to all without turns.
    assert_eq!(p99(&beside(10_000, user(1)).await), None);
}
