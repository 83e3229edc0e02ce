//! Finds out whether this gateway is the reason why requests fail, not the server. Entry: [`watch`].
//!
//! A server that is ready, but that the gateway cannot use, must get its connections back: clients
//! would fail without need, kubelet's probes among them, and kubelet would restart a healthy server.
//! A server that is down or starting is no such case: peers take its place.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mvp_core::decide::LocalHealth;
use mvp_net::{connect_from, unverified_config};
use mvp_proxy::{LocalState, server_name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::Steered;
use crate::config::{Around, ServeConfig};

const INTERVAL: Duration = Duration::from_secs(1);
/// So many findings in a row count. A single one may be a server that became ready between two probes.
pub(crate) const IN_A_ROW: usize = 3;
/// The same if the server itself told the gateway that it is not ready: it may be so from time to time.
const UNREADY_IN_A_ROW: usize = 15;
const TIME_LIMIT: Duration = Duration::from_secs(2);

const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: kubernetes.default.svc\r\n\
    User-Agent: mvp-steering\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// Whether this gateway must not get connections, although it could accept them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The last check found a fault. It may have been a coincidence.
    Suspected,
    /// The gateway is at fault, for this reason.
    Confirmed(String),
}

impl Fault {
    /// After a check that found this; `enough` if it was found often enough in a row. A confirmed fault ends only when the gateway
    /// can use its server: one that goes down meanwhile must find its port free when it comes back.
    fn next(self, reason: Option<String>, enough: bool, usable: bool) -> Fault {
        match (self, reason) {
            (Fault::Confirmed(_), Some(reason)) => Fault::Confirmed(reason),
            (Fault::Confirmed(reason), None) if !usable => Fault::Confirmed(reason),
            (_, Some(_)) if !enough => Fault::Suspected,
            (_, Some(reason)) => Fault::Confirmed(reason),
            (_, None) => Fault::None,
        }
    }
}

/// The local server, and how it is reached around the steering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    /// `HOST:PORT`
    address: String,
    source: Option<IpAddr>,
    /// The address that others use, for a server that no longer listens on the first.
    advertised: Option<Around>,
}

impl Way {
    /// The way of this configuration; `None` without a local server.
    pub(crate) fn new(config: &ServeConfig) -> Option<Way> {
        let local = config.local.as_ref()?;
        let source = config.around().map(|around| around.source);
        Some(Way { address: local.url.authority(), source, advertised: config.advertised() })
    }

    /// The server's answer to `/readyz`, if there is one. A server that is slow here, as one whose
    /// etcd hangs, is not looked for elsewhere.
    async fn ask(&self) -> Option<Answer> {
        let configured = async {
            match self.source {
                Some(source) => connect_from(source, &*self.address).await,
                None => TcpStream::connect(&*self.address).await,
            }
        };
        if let Ok(Ok(stream)) = timeout(TIME_LIMIT, configured).await {
            let status = timeout(TIME_LIMIT, ask(stream)).await.ok()?.ok()?;
            return Some(Answer::Here(status));
        }
        let Around { source, server } = self.advertised?;
        let advertised = async { ask(connect_from(source, server).await?).await };
        timeout(TIME_LIMIT, advertised).await.ok()?.ok().map(|_| Answer::Elsewhere)
    }
}

/// How the server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// With this status, on our way.
    Here(u16),
    /// At its advertise address only.
    Elsewhere,
}

/// Pauses the steering while the gateway is at fault. Never returns.
///
/// `of_flags` tells why the gateway is at fault whatever the server answers.
pub(crate) async fn watch(
    steered: Steered,
    local: LocalState,
    way: Way,
    of_flags: impl Fn() -> Option<String>,
) {
    let (mut current, mut found) = (Fault::None, 0);
    loop {
        let of_flags = of_flags();
        let (settled, reason) = match of_flags {
            Some(reason) => (true, Some(reason)),
            None => (false, fault(&local, &way).await),
        };
        found = match reason {
            // Another look would find the same.
            Some(_) if settled => UNREADY_IN_A_ROW,
            Some(_) => found + 1,
            None => 0,
        };
        let health = local.get();
        let enough = needed(health, local.rejects_us());
        current = current.next(reason, found >= enough, health == LocalHealth::Ready);
        steered.set_fault(current.clone());
        sleep(INTERVAL).await;
    }
}

/// How many findings in a row confirm a fault.
fn needed(health: LocalHealth, rejects_us: bool) -> usize {
    if health == LocalHealth::Unready && !rejects_us { UNREADY_IN_A_ROW } else { IN_A_ROW }
}

/// Why the gateway is at fault, if it is.
pub(crate) async fn fault(local: &LocalState, way: &Way) -> Option<String> {
    if local.rejects_us() {
        let what = "the server rejects the proxy client certificate (401); check \
                    --proxy-client-cert-file and its expiry";
        return Some(what.to_owned());
    }
    let health = local.get();
    if health == LocalHealth::Ready {
        return None;
    }
    let answer = way.ask().await?;
    is_ready_for_others(health, answer)
        .then(|| format!("the server answers others, but not this gateway: {}", local.trouble()))
}

/// Whether the server would serve clients itself, by its answer to somebody without credentials. Some
/// servers tell nothing to such callers: then it is alive, which counts if the gateway cannot even
/// reach it. A server that is alive elsewhere may not become ready before it gets its own connections.
fn is_ready_for_others(health: LocalHealth, answer: Answer) -> bool {
    match answer {
        Answer::Here(200) | Answer::Elsewhere => true,
        Answer::Here(401 | 403) => health == LocalHealth::Unreachable,
        Answer::Here(_) => false,
    }
}

/// The status of `/readyz`, without credentials and from any server. Only the status is used.
async fn ask(stream: TcpStream) -> io::Result<u16> {
    let tls = unverified_config(&[b"http/1.1"]).map_err(io::Error::other)?;
    let mut stream = TlsConnector::from(Arc::clone(&tls)).connect(server_name(), stream).await?;
    stream.write_all(REQUEST).await?;
    stream.flush().await?;
    // "HTTP/1.1 200"
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    let status =
        std::str::from_utf8(&line).ok().and_then(|line| line.rsplit(' ').next()?.parse().ok());
    status.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_confirmed_fault_lasts_until_the_server_can_be_used() {
        let reason = || Some("why".to_owned());
        let confirmed = Fault::Confirmed("why".to_owned());
        assert_eq!(Fault::None.next(reason(), false, false), Fault::Suspected);
        assert_eq!(Fault::Suspected.next(reason(), true, false), confirmed);
        assert_eq!(Fault::Suspected.next(None, false, false), Fault::None);
        assert_eq!(confirmed.clone().next(None, false, false), confirmed, "the server is down");
        assert_eq!(confirmed.clone().next(reason(), false, false), confirmed);
        assert_eq!(confirmed.next(None, false, true), Fault::None);
    }

    #[test]
    fn a_server_that_is_not_ready_from_time_to_time_is_no_fault_of_the_gateway() {
        assert_eq!(needed(LocalHealth::Unready, false), 15);
        assert_eq!(needed(LocalHealth::Unready, true), 3, "the server rejects us");
        assert_eq!(needed(LocalHealth::Unreachable, false), 3);
    }

    #[test]
    fn only_a_server_that_would_serve_others_gets_its_connections_back() {
        let (unready, gone) = (LocalHealth::Unready, LocalHealth::Unreachable);
        let table = [
            (gone, 200, true),
            (unready, 200, true),
            // Anonymous callers are refused: alive, but is it ready?
            (gone, 401, true),
            (gone, 403, true),
            (unready, 403, false),
            // It starts: peers take its place.
            (unready, 500, false),
            (gone, 500, false),
            (gone, 503, false),
        ];
        for (health, answer, expected) in table {
            let found = is_ready_for_others(health, Answer::Here(answer));
            assert_eq!(found, expected, "{health:?} {answer}");
        }
        assert!(is_ready_for_others(gone, Answer::Elsewhere));
    }

    /// Only a server that no longer listens here is looked for at its advertise address: one that
    /// gives no answer here would give none that counts there.
    #[tokio::test]
    async fn only_a_server_that_left_is_looked_for_elsewhere() {
        let here = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let elsewhere = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let way = Way {
            address: here.local_addr().unwrap().to_string(),
            source: None,
            advertised: Some(Around {
                source: Ipv4Addr::LOCALHOST.into(),
                server: elsewhere.local_addr().unwrap(),
            }),
        };
        let closes = async { drop(here.accept().await.unwrap()) };
        let (answer, ()) = tokio::join!(way.ask(), closes);
        assert_eq!(answer, None);
        let elsewhere = elsewhere.into_std().unwrap();
        assert_eq!(elsewhere.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let elsewhere = TcpListener::from_std(elsewhere).unwrap();
        drop(here);
        let (asked, way) = (elsewhere.accept(), way.ask());
        let first = tokio::select! { asked = asked => asked.is_ok(), _ = way => false };
        assert!(first, "asked elsewhere");
    }
}
