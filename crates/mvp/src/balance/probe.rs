//! Probes members: connect, TLS handshake, `GET /readyz` without credentials. Entry item: [`run`].
//!
//! A healthy member is probed every 10 s, and at once if a connection to it fails or stays silent, but
//! not more often than once a second. An unhealthy one is probed every second. With thousands of nodes,
//! more probes would be a load of their own.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mvp_proxy::server_name;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::account::ServiceAccount;
use super::forward::is_ours;
use super::members::{Member, Members};
use super::order::Health;

/// The interval of a healthy member. Each member and node has its own phase, because the interval has
/// a random part.
const INTERVAL: Duration = Duration::from_secs(10);
/// The interval of other members, and the shortest time between two probes.
const SHORT_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit for the handshake, and again for the response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The first line of a response is shorter.
const MAX_LINE: usize = 512;

const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: kubernetes.default.svc\r\n\
    User-Agent: mvp-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// Probes every member for as long as it is one. Never ends.
pub(super) async fn run(members: Arc<Members>, account: Arc<ServiceAccount>) {
    let mut changes = members.changes();
    let mut probed: HashSet<Arc<str>> = HashSet::new();
    loop {
        let all = Arc::clone(&changes.borrow_and_update());
        probed.retain(|address| all.iter().any(|member| member.address == *address));
        for member in all.iter() {
            if probed.insert(Arc::clone(&member.address)) {
                tokio::spawn(repeat(
                    Arc::clone(&members),
                    Arc::clone(member),
                    Arc::clone(&account),
                ));
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn repeat(members: Arc<Members>, member: Arc<Member>, account: Arc<ServiceAccount>) {
    // One configuration for each member: sessions are kept by server name, which all members share.
    let mut tls = None;
    while !member.gone.is_cancelled() {
        let begun = Instant::now();
        let reused = tls.is_some();
        let mut probed = probe(&members, &member, &account, &mut tls).await;
        // The CA may have changed since it was read.
        let untrusted = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
        if reused && probed.as_ref().is_err_and(untrusted) {
            tls = None;
            probed = probe(&members, &member, &account, &mut tls).await;
        }
        match probed {
            Ok(()) => member.is_healthy(),
            // It says nothing about the member.
            Err(error) if is_ours(&error) => {}
            Err(error) => {
                tls = None;
                member.failed(&error.to_string());
            }
        }
        let interval = match member.health() {
            Health::Healthy => INTERVAL.mul_f64(random()),
            Health::Unknown | Health::Unhealthy => SHORT_INTERVAL,
        };
        tokio::select! {
            () = member.gone.cancelled() => return,
            () = sleep(interval) => {}
            () = member.suspect.notified() => {
                sleep(SHORT_INTERVAL.saturating_sub(begun.elapsed())).await;
            }
        }
    }
}

/// Probes a member once. Reuses the TLS session of the last probe.
async fn probe(
    members: &Members,
    member: &Member,
    account: &ServiceAccount,
    tls: &mut Option<Arc<ClientConfig>>,
) -> io::Result<()> {
    let begun = Instant::now();
    let stream = members.connect(&member.address).await?;
    member.connected(begun.elapsed(), stream.local_addr()?, stream.peer_addr()?);
    let config = match tls {
        Some(config) => Arc::clone(config),
        None => {
            let config = account.for_probes().map_err(io::Error::other)?;
            Arc::clone(tls.insert(config))
        }
    };
    let handshake = TlsConnector::from(config).connect(server_name(), stream);
    let mut stream = in_time("TLS handshake", handshake).await?;
    let line = in_time("GET /readyz", async {
        stream.write_all(REQUEST).await?;
        stream.flush().await?;
        let mut line = Vec::with_capacity(MAX_LINE);
        while !line.contains(&b'\n') && line.len() < MAX_LINE {
            if stream.read_buf(&mut line).await? == 0 {
                break;
            }
        }
        Ok(line)
    })
    .await?;
    judge(&line)
}

/// What the first line of a response tells. A server that answers 401 or 403 does not let anonymous
/// users see `/readyz`, but it is alive.
fn judge(line: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
    match status {
        Some(500..) => Err(io::Error::other(format!("/readyz responds {}", status.unwrap_or(500)))),
        Some(_) => Ok(()),
        None => Err(io::Error::other("/readyz responds without HTTP")),
    }
}

async fn in_time<T>(what: &str, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(ANSWER_TIMEOUT, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("{what} failed: {error}"))),
        Err(_) => {
            let sentence = format!("{what} timed out after {} s", ANSWER_TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
        }
    }
}

/// A factor from 0.75 to 1.25.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // Each new state has other keys.
    let share = RandomState::new().hash_one(0_u8) % 1024;
    0.75 + f64::from(u16::try_from(share).unwrap_or_default()) / 2048.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_their_status() {
        for (line, healthy) in [
            ("HTTP/1.1 200 OK\r\n", true),
            ("HTTP/1.1 401 Unauthorized\r\n", true),
            ("HTTP/1.1 403 Forbidden\r\n", true),
            ("HTTP/1.0 404 Not Found\r\n", true),
            ("HTTP/1.1 429 Too Many Requests\r\n", true),
            ("HTTP/1.1 500 Internal Server Error\r\n", false),
            ("HTTP/1.1 503 Service Unavailable\r\n", false),
            ("HTTP/1.1 ", false),
            ("HTTP/1.1 2é", false),
            ("SSH-2.0-OpenSSH\r\n", false),
            ("", false),
        ] {
            assert_eq!(judge(line.as_bytes()).is_ok(), healthy, "{line:?}");
        }
    }

    #[test]
    fn nodes_do_not_probe_in_step() {
        let factors: Vec<f64> = (0..100).map(|_| random()).collect();
        assert!(factors.iter().all(|factor| (0.75..=1.25).contains(factor)));
        assert!(factors.iter().any(|factor| (factor - factors[0]).abs() > 0.01), "{factors:?}");
    }
}
