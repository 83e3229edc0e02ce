//! Failover, half close and drain, with real sockets on loopback.

use std::net::SocketAddr;

use mvp_net::serve_tcp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::balance::order::Health;

/// A balancer before these members.
struct Balancer {
    address: SocketAddr,
    members: Arc<Members>,
    stop: CancellationToken,
    task: JoinHandle<mvp_net::Drained>,
}

impl Balancer {
    async fn start(members: &[SocketAddr], grace: Duration) -> Balancer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seeds: Vec<Arc<str>> = members.iter().map(|one| one.to_string().into()).collect();
        let members = Arc::new(Members::new(address, &seeds, &[]));
        let (stop, known) = (CancellationToken::new(), Arc::clone(&members));
        let begin = move |client, _| Some(forward(client, Arc::clone(&known)));
        let task = tokio::spawn(serve_tcp(listener, grace, stop.clone(), begin));
        Balancer { address, members, stop, task }
    }

    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

const GRACE: Duration = Duration::from_secs(20);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("in time")
}

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A server that reads to the end, then sends its name and what it read.
async fn echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut read = name.as_bytes().to_vec();
                stream.read_to_end(&mut read).await.unwrap();
                stream.write_all(&read).await.unwrap();
            });
        }
    });
    address
}

/// Sends a text, closes this direction, and returns the answer.
async fn exchange(mut client: TcpStream, text: &str) -> String {
    soon(async {
        client.write_all(text.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    })
    .await
}

#[tokio::test]
async fn a_dead_member_is_skipped_and_half_close_is_passed_on() {
    let (dead, alive) = (nobody().await, echo("b:").await);
    let balancer = Balancer::start(&[dead, alive], GRACE).await;
    // The answer comes only after the end of the client's direction.
    for _ in 0..4 {
        assert_eq!(exchange(balancer.client().await, "hello").await, "b:hello");
    }
    let all = balancer.members.all();
    assert_eq!(all[0].health(), Health::Unhealthy);
    assert_eq!(all[0].ended(Outcome::ConnectFailed), 1, "it is tried last from then on");
    soon(async {
        while all[1].ended(Outcome::Closed) < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(all[1].open(), 0);
}

#[tokio::test]
async fn large_transfers_arrive_whole() {
    let balancer = Balancer::start(&[echo("").await], GRACE).await;
    let text = "0123456789abcdef".repeat(1 << 16);
    let (mut read, mut write) = balancer.client().await.into_split();
    let sent = text.clone();
    let sending = tokio::spawn(async move {
        write.write_all(sent.as_bytes()).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut answer = String::new();
    soon(read.read_to_string(&mut answer)).await.unwrap();
    soon(sending).await.unwrap();
    assert!(answer == text, "{} of {} bytes", answer.len(), text.len());
}

#[tokio::test]
async fn without_any_member_the_connection_is_closed() {
    let balancer = Balancer::start(&[nobody().await, nobody().await], GRACE).await;
    let mut client = balancer.client().await;
    let mut answer = Vec::new();
    // Closed or reset, but not open.
    let _ = soon(client.read_to_end(&mut answer)).await;
    assert!(answer.is_empty());
    assert_eq!(balancer.members.unserved(), 1);
    let tried: u64 =
        balancer.members.all().iter().map(|one| one.ended(Outcome::ConnectFailed)).sum();
    assert_eq!(tried, 2, "all were tried, healthy or not");
}

#[test]
fn a_shortage_of_our_own_is_not_counted_against_a_member() {
    let address: SocketAddr = ([127, 0, 0, 1], 1).into();
    let members = Members::new(address, &["a:1".into()], &[]);
    let member = &members.all()[0];
    // No descriptors in this process, none on this host, no memory.
    for number in [24, 23, 12] {
        let own = failed(member, io::Error::from_raw_os_error(number));
        assert_eq!(own.and_then(|error| error.raw_os_error()), Some(number));
    }
    assert_eq!((member.health(), member.ended(Outcome::ConnectFailed)), (Health::Unknown, 0));
    // Refused, and an address that this host cannot use.
    for number in [111, 99] {
        assert!(failed(member, io::Error::from_raw_os_error(number)).is_none(), "{number}");
    }
    assert_eq!((member.health(), member.ended(Outcome::ConnectFailed)), (Health::Unhealthy, 2));
}

#[tokio::test]
async fn a_member_that_is_the_balancer_itself_is_no_member() {
    let balancer = Balancer::start(&[nobody().await], GRACE).await;
    balancer.members.found(&[balancer.address.to_string().into()]);
    let mut client = balancer.client().await;
    let _ = soon(client.read_to_end(&mut Vec::new())).await;
    assert_eq!(balancer.members.unserved(), 1, "one connection, not a storm of them");
}

#[tokio::test]
async fn a_member_that_accepts_but_stays_silent_is_suspect() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let balancer = Balancer::start(&[silent.local_addr().unwrap()], GRACE).await;
    let mut client = balancer.client().await;
    client.write_all(b"hello").await.unwrap();
    soon(balancer.members.all()[0].suspect.notified()).await;
}

#[tokio::test]
async fn connections_in_flight_end_in_the_drain_and_others_are_cut() {
    let balancer = Balancer::start(&[echo("a:").await], GRACE).await;
    let mut client = balancer.client().await;
    client.write_all(b"hel").await.unwrap();
    let member = Arc::clone(&balancer.members.all()[0]);
    soon(async {
        while member.open() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    balancer.stop.cancel();
    assert_eq!(exchange(client, "lo").await, "a:hello", "it may end");
    assert_eq!(soon(balancer.task).await.unwrap().cut, 0);

    let balancer = Balancer::start(&[echo("a:").await], Duration::from_millis(50)).await;
    let mut idle = balancer.client().await;
    let member = Arc::clone(&balancer.members.all()[0]);
    soon(async {
        while member.open() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    balancer.stop.cancel();
    assert_eq!(soon(balancer.task).await.unwrap().cut, 1);
    let _ = soon(idle.read_to_end(&mut Vec::new())).await;
    assert_eq!((member.open(), member.ended(Outcome::Cut)), (0, 1));
}
