//! How many TCP connections lead to an address, by what the kernel says. Entry items:
//! [`connections_to`] and [`Counter`].

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

/// Connections of this network to an address of IPv4 that are open now.
pub(crate) fn connections_to(to: SocketAddr) -> usize {
    ends(to).into_iter().filter(|(_, state)| *state == ESTABLISHED).count()
}

const ESTABLISHED: u8 = 1;

/// Counts the connections to an address while it lives. A closed one is seen for a minute after.
pub(crate) struct Counter {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    before: BTreeSet<SocketAddr>,
    all: BTreeSet<SocketAddr>,
    most: usize,
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Counter {
    pub(crate) fn start(to: SocketAddr) -> Counter {
        let before = ends(to).into_iter().map(|(end, _)| end).collect();
        let seen = Arc::new(Mutex::new(Seen { before, ..Seen::default() }));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                look(to, &shared);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let counter = Counter { seen, task };
        look(to, &counter.seen);
        counter
    }

    /// The connections that were opened, and the most that were open at once.
    pub(crate) fn figures(&self, to: SocketAddr) -> (usize, usize) {
        look(to, &self.seen);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.all.difference(&seen.before).count(), seen.most)
    }
}

fn look(to: SocketAddr, seen: &Mutex<Seen>) {
    let ends = ends(to);
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let open = ends.iter().filter(|(_, state)| *state == ESTABLISHED).count();
    seen.most = seen.most.max(open);
    seen.all.extend(ends.into_iter().map(|(end, _)| end));
}

/// The clients' ends, each with its state.
fn ends(to: SocketAddr) -> Vec<(SocketAddr, u8)> {
    let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| end(line, to)).collect()
}

fn end(line: &str, to: SocketAddr) -> Option<(SocketAddr, u8)> {
    let mut words = line.split_whitespace().skip(1);
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    (remote == to).then_some((local, state))
}

/// `0100007F:1F90` is 127.0.0.1:8080.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let host = Ipv4Addr::from(u32::from_str_radix(host, 16).ok()?.to_ne_bytes());
    Some((host, u16::from_str_radix(port, 16).ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_open_connection_is_counted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = listener.local_addr().expect("an address");
        let counter = Counter::start(to);
        let _one = tokio::net::TcpStream::connect(to).await.expect("a connection");
        assert_eq!(connections_to(to), 1);
        assert_eq!(counter.figures(to), (1, 1));
    }
}
