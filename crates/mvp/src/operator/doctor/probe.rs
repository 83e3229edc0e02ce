//! Asks one server everything that it tells about itself: over TLS, with the proxy client certificate
//! and the identity that `mvp serve` uses. Nothing is changed. Entry: [`Way::probe`].

mod answers;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join5;
use http::{HeaderMap, StatusCode};
use mvp_net::ClientTls;
use mvp_proxy::{PEER_PROXIED, gateway_id, server_name};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub(crate) use self::answers::{Link, Ready, Review, Seen, Who};
use super::settings::{GROUP, MARK, Settings, USER};
use crate::cli::ServerUrl;
use crate::config::CertificateFile;
use crate::operator::https::{Answer, Https};

/// The time limit of a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// The time limit of a request.
const REQUEST: Duration = Duration::from_secs(8);
/// How often the latency is measured; the best counts.
const SAMPLES: usize = 3;

/// A server, and how to ask it.
#[derive(Clone)]
pub(crate) struct Way {
    https: Https,
    /// The headers that name our own user; none without the proxy client certificate.
    identity: Option<Identity>,
}

/// The headers of requests under the proxy client certificate.
#[derive(Debug, Clone)]
struct Identity {
    own: Vec<(String, String)>,
    /// The same with a UID and an extra attribute.
    full: Vec<(String, String)>,
}

impl Way {
    /// The way to a server with a certificate of these CAs.
    pub(crate) fn to(
        url: &ServerUrl,
        authorities: &CertificateFile,
        settings: &Settings,
    ) -> anyhow::Result<Way> {
        let proxy = settings.proxy_pair();
        let pair = proxy.map(|pair| (&*pair.chain.pem, &*pair.key.pem));
        let origin = format!("--{} {}", authorities.key, authorities.path.display());
        let tls = ClientTls::new(&authorities.pem, pair)?.explained(&origin)?;
        let name = server_name();
        let https = Https { url: url.clone(), tls, name, token: None, source: None };
        let identity =
            proxy.map(|_| Identity { own: settings.identity(), full: settings.full_identity() });
        Ok(Way { https, identity })
    }

    /// The same, from an address of this host.
    pub(crate) fn from(mut self, source: Option<IpAddr>) -> Way {
        self.https.source = source;
        self
    }

    pub(crate) fn url(&self) -> &ServerUrl {
        &self.https.url
    }

    /// Whether requests have an identity.
    pub(crate) fn is_vouched(&self) -> bool {
        self.identity.is_some()
    }

    /// A GET request with our own identity.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.get_with(path, &[]).await
    }

    /// A POST request with our own identity. It is for reviews, which store nothing.
    pub(crate) async fn review(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let own = self.identity.as_ref().map(|identity| &*identity.own).unwrap_or_default();
        limited(self.https.post(path, &borrowed(own), body)).await
    }

    async fn get_with(&self, path: &str, more: &[(&str, &str)]) -> anyhow::Result<Answer> {
        let own = self.identity.as_ref().map(|identity| &*identity.own).unwrap_or_default();
        let headers = [&borrowed(own), more].concat();
        limited(self.https.get(path, &headers)).await
    }

    /// Asks everything.
    pub(crate) async fn probe(&self) -> Seen {
        let link = self.link().await;
        if !matches!(link, Link::Open { .. }) {
            return Seen { link, ..Seen::default() };
        }
        let (version, ready, review, is_gateway, mvp) = join5(
            self.version(),
            self.ready(),
            self.who_am_i(),
            self.is_gateway(),
            self.mvp_release(),
        )
        .await;
        let Version { answer, latency, skew } = version;
        let told = answer.as_ref().ok().and_then(|answer| gateway_id(&answer.headers));
        let who = match (told, is_gateway) {
            (Some(id), _) => Who::Gateway(Some(id)),
            (None, true) => Who::Gateway(None),
            (None, false) => Who::Server,
        };
        let mvp = mvp.filter(|_| who != Who::Server);
        Seen { link, release: answers::release(answer), mvp, ready, review, who, latency, skew }
    }

    /// Opens a connection as `mvp serve` does, and closes it.
    async fn link(&self) -> Link {
        let unreachable = |error: &dyn std::fmt::Display| Link::Unreachable(error.to_string());
        let stream = match timeout(CONNECT, self.https.connect()).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return unreachable(&error),
            Err(_) => return unreachable(&format_args!("no connection within {CONNECT:?}")),
        };
        let tls = TlsConnector::from(Arc::clone(&self.https.tls.config(&[b"h2", b"http/1.1"])));
        match timeout(CONNECT, tls.connect(self.https.name.clone(), stream)).await {
            Ok(Ok(stream)) => {
                let protocol = stream.get_ref().1.alpn_protocol();
                Link::Open { http2: protocol == Some(b"h2") }
            }
            Ok(Err(error)) => Link::Untrusted(answers::explained(&error)),
            Err(_) => unreachable(&format_args!("no TLS handshake within {CONNECT:?}")),
        }
    }

    /// Asks for the version several times. A gateway adds its ID to requests of peers.
    async fn version(&self) -> Version {
        let mut version = Version::default();
        for _ in 0..SAMPLES {
            let (sent, began) = (SystemTime::now(), Instant::now());
            let answer = self.get_with("/version", &[(PEER_PROXIED.as_str(), "true")]).await;
            let Ok(answer) = answer else {
                version.answer = answer;
                return version;
            };
            let took = began.elapsed();
            version.latency = Some(version.latency.map_or(took, |best| best.min(took)));
            version.skew = answers::skew(date(&answer.headers), sent, SystemTime::now());
            version.answer = Ok(answer);
        }
        version
    }

    async fn ready(&self) -> Ready {
        match self.get("/readyz?verbose").await {
            Ok(answer) => answers::ready(answer.status, &text(&answer)),
            Err(error) => Ready::Unknown(format!("{error:#}")),
        }
    }

    /// Whether a gateway answers. It does so before it authenticates the caller.
    async fn is_gateway(&self) -> bool {
        let answer = limited(self.https.get("/mvp/livez", &[])).await;
        answer.is_ok_and(|answer| match answer.status {
            StatusCode::OK => text(&answer).trim() == "ok",
            StatusCode::SERVICE_UNAVAILABLE => text(&answer).contains("livez check failed"),
            _ => false,
        })
    }

    /// The release of `mvp` that a gateway reports to its peers; none if it reports nothing.
    async fn mvp_release(&self) -> Option<String> {
        let answer = self.get_with("/mvp/status", &[(PEER_PROXIED.as_str(), "true")]).await.ok()?;
        let version = parsed(&answer).get("version")?.as_str()?.to_owned();
        (answer.status == StatusCode::OK).then_some(version)
    }

    /// Asks the server for whom it takes us.
    async fn who_am_i(&self) -> Review {
        let Some(identity) = &self.identity else { return Review::NotAsked };
        let review = self.reviewed(&identity.full).await;
        if !matches!(review, Review::Refused(_) | Review::Other(_)) {
            return review;
        }
        // Does it read the usual headers, and not those of our flags?
        let usual = [("x-remote-user", USER), ("x-remote-group", GROUP)];
        let usual = usual.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let differs = usual.iter().any(|header| !identity.full.contains(header));
        match differs && matches!(self.reviewed(&usual).await, Review::Accepted { .. }) {
            true => Review::OtherHeaders,
            false => review,
        }
    }

    async fn reviewed(&self, identity: &[(String, String)]) -> Review {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        match limited(self.https.post(path, &borrowed(identity), &body)).await {
            Err(error) => Review::Failed(format!("{error:#}")),
            Ok(answer) => answers::review(answer.status, &parsed(&answer), USER, MARK),
        }
    }
}

struct Version {
    answer: anyhow::Result<Answer>,
    latency: Option<Duration>,
    skew: Option<i64>,
}

impl Default for Version {
    fn default() -> Version {
        Version { answer: Err(anyhow::anyhow!("not asked")), latency: None, skew: None }
    }
}

async fn limited(request: impl Future<Output = anyhow::Result<Answer>>) -> anyhow::Result<Answer> {
    match timeout(REQUEST, request).await {
        Ok(answer) => answer,
        Err(_) => Err(anyhow::anyhow!("no response within {REQUEST:?}")),
    }
}

fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(http::header::DATE)?.to_str().ok()?).ok()
}

/// The body as text.
pub(crate) fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// The body as JSON; null if it is none.
pub(crate) fn parsed(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use testkit::certificates::Ca;
    use tokio::net::TcpListener;

    use super::*;

    /// The steering hands all other connections to the gateway.
    #[tokio::test]
    async fn connections_come_from_the_source() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = ServerUrl { host: "127.0.0.1".to_owned(), port };
        let tls = ClientTls::new(Ca::new("ca").pem().as_bytes(), None).unwrap();
        let source = Some(IpAddr::from([127, 0, 0, 2]));
        let https = Https { url, tls, name: server_name(), token: None, source };
        let way = Way { https, identity: None };
        let accepted = async {
            for _ in 0..2 {
                let (_, peer) = listener.accept().await.unwrap();
                assert_eq!(Some(peer.ip()), source);
            }
        };
        let asked = async {
            assert!(!matches!(way.link().await, Link::Open { .. }));
            assert!(way.get("/version").await.is_err());
        };
        tokio::join!(accepted, asked);
    }
}
