//! The number of TCP connections to an address, from the kernel's tables. Entry items:
//! [`connections_to`] and [`Counter`].

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

/// The open connections to an IPv4 address in this network namespace.
pub(crate) fn connections_to(to: SocketAddr) -> usize {
    open(&ends(to))
}

const ESTABLISHED: u8 = 1;
const LISTENS: u8 = 10;

/// The number of connections opened so far in this network namespace.
fn opened() -> usize {
    let text = std::fs::read_to_string("/proc/self/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().unwrap_or_default().split(' ');
    let values = lines.next().unwrap_or_default().split(' ');
    let mut pairs = names.zip(values).filter(|(name, _)| *name == "ActiveOpens");
    pairs.next().and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
}

/// The number of connections opened so far by this process.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Notes that this process opens a connection.
pub(crate) fn count_own() {
    OWN.fetch_add(1, Ordering::Relaxed);
}

/// Counts connections until it is dropped.
pub(crate) struct Counter {
    to: SocketAddr,
    /// The counts at the start: of all programs, and of this one.
    before: (usize, usize),
    most: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Counter {
    /// Looks at the connections to an address.
    pub(crate) fn start(to: SocketAddr) -> Counter {
        let most = Arc::new(AtomicUsize::new(connections_to(to)));
        let shared = Arc::clone(&most);
        let task = tokio::spawn(async move {
            loop {
                shared.fetch_max(connections_to(to), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Counter { to, before: (opened(), OWN.load(Ordering::Relaxed)), most, task }
    }

    /// The number of connections opened by other programs, and the highest number open at once to
    /// the address.
    pub(crate) fn figures(&self) -> (usize, usize) {
        let most = self.most.fetch_max(connections_to(self.to), Ordering::Relaxed);
        let own = OWN.load(Ordering::Relaxed) - self.before.1;
        let all = opened().saturating_sub(self.before.0);
        (all.saturating_sub(own), most.max(connections_to(self.to)))
    }
}

/// Each connection appears twice here. It is open if neither end has started to close it.
fn open(ends: &[(SocketAddr, u8)]) -> usize {
    let (open, leaving): (Vec<_>, Vec<_>) =
        ends.iter().partition(|(_, state)| *state == ESTABLISHED);
    let addresses = |ends: Vec<(SocketAddr, u8)>| ends.into_iter().map(|(end, _)| end).collect();
    let (open, leaving): (BTreeSet<SocketAddr>, BTreeSet<_>) =
        (addresses(open), addresses(leaving));
    open.difference(&leaving).count()
}

/// The clients' addresses, each with the state of an end.
fn ends(to: SocketAddr) -> Vec<(SocketAddr, u8)> {
    let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| end(line, to)).collect()
}

fn end(line: &str, to: SocketAddr) -> Option<(SocketAddr, u8)> {
    let mut words = line.split_whitespace().skip(1);
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    match (local, remote) {
        (local, remote) if remote == to => Some((local, state)),
        (local, remote) if local == to && state != LISTENS => Some((remote, state)),
        _ => None,
    }
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
        let (other, _) = listener.accept().await.expect("its other end");
        assert_eq!(connections_to(to), 1);
        let (opened, most) = counter.figures();
        assert!(opened >= 1 && most == 1, "{opened} opened, {most} at once");
        drop(other);
        assert_eq!(connections_to(to), 0);
    }
}
