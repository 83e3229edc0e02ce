//! Forwarding: a request goes to a server under the caller's identity, and its response comes back.
//! Entry item: [`Forwarder::send`].

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri, Version};
use mvp_core::decide::Origin;
use mvp_core::member::MemberKind;
use mvp_net::{ClientTls, ConnectionInfo, TlsError};
use rustls_pki_types::ServerName;

use super::connect::Endpoint;
use super::headers;
use super::pool::{Http1Pool, Http2Pool, Pool, PoolError};
use crate::body::Body;
use crate::error::{SendError, Stage};
use crate::identity::{Identity, PEER_PROXIED, RemoteHeaders};

/// The name that every API server's certificate is for, whatever its address.
pub fn server_name() -> ServerName<'static> {
    match ServerName::try_from("kubernetes.default.svc") {
        Ok(name) => name,
        Err(_) => unreachable!("it is a DNS name"),
    }
}

/// A server to send to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its ID, for logs and refusals.
    pub id: Arc<str>,
    /// `HOST:PORT`
    pub address: Arc<str>,
    /// The name that its certificate must be for.
    pub server_name: ServerName<'static>,
    /// What answers there.
    pub kind: MemberKind,
    /// Whether it is the server that this proxy stands beside.
    pub local: bool,
}

/// Whom we trust as servers, and the certificate by which they trust us.
#[derive(Debug, Clone)]
pub struct OutboundTls {
    /// For requests whose caller speaks for himself: no certificate is presented.
    pub plain: ClientTls,
    /// For requests whose caller we vouch for: the proxy client certificate is presented.
    pub vouched: Option<ClientTls>,
}

impl OutboundTls {
    /// Trusts servers of these authorities, and presents that certificate, all as PEM.
    pub fn new(roots: &[u8], proxy: Option<(&[u8], &[u8])>) -> Result<OutboundTls, TlsError> {
        let vouched = proxy.map(|pair| ClientTls::new(roots, Some(pair))).transpose()?;
        Ok(OutboundTls { plain: ClientTls::new(roots, None)?, vouched })
    }
}

/// Sends requests to servers. Owns its connections: one for each worker.
#[derive(Debug)]
pub struct Forwarder {
    local: OutboundTls,
    peers: OutboundTls,
    headers: RemoteHeaders,
    pools: Mutex<HashMap<PoolKey, Arc<Pool>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    address: Arc<str>,
    local: bool,
    credential: Credential,
}

/// On what kind of connection a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Credential {
    /// With the proxy client certificate.
    Vouched,
    /// With none: the request carries a token.
    Token,
    /// With none, and HTTP/1.1: kube-apiserver ends an HTTP/2 connection after each anonymous
    /// request, and with it the watches of others.
    Anonymous,
}

impl Forwarder {
    /// Trusts servers so, the local one and peers.
    pub fn new(local: OutboundTls, peers: OutboundTls) -> Forwarder {
        Forwarder { local, peers, headers: RemoteHeaders::default(), pools: Mutex::default() }
    }

    /// Says who users are in these headers; servers must be set up to hear them.
    #[must_use]
    pub fn with_remote_headers(self, headers: RemoteHeaders) -> Forwarder {
        Forwarder { headers, ..self }
    }

    /// Sends a request. Identity, origin and connection are read from its extensions.
    pub async fn send(
        &self,
        target: &Target,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        let Some(identity) = request.extensions().get::<Identity>().cloned() else {
            return Err(SendError::new(target, Stage::Identity, "the request has no identity"));
        };
        let credential = credential(&identity, target.kind);
        let pool = self.pool(target, credential)?;
        prepare(&mut request, target, &identity, &self.headers, matches!(*pool, Pool::Http2(_)));

        match pool.send(request).await {
            Ok(mut response) => {
                headers::remove_hop_by_hop(response.headers_mut());
                Ok(response)
            }
            Err(PoolError::Connect(error)) => {
                Err(SendError::new(target, Stage::Connect, error.to_string()))
            }
            Err(PoolError::Hang(error)) => {
                Err(SendError::new(target, Stage::Exchange, format!("it hangs: {error}")))
            }
            Err(PoolError::Exchange(error, given_back)) => {
                let refused = given_back.is_some() || is_unprocessed(&error);
                let stage = if refused { Stage::NotSent } else { Stage::Exchange };
                Err(SendError::new(target, stage, error.to_string()))
            }
        }
    }

    fn pool(&self, target: &Target, credential: Credential) -> Result<Arc<Pool>, SendError> {
        let address = Arc::clone(&target.address);
        let key = PoolKey { address, local: target.local, credential };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&key) {
            return Ok(Arc::clone(pool));
        }
        let tls = if target.local { &self.local } else { &self.peers };
        let tls = match credential {
            Credential::Vouched => tls.vouched.as_ref().ok_or_else(|| {
                SendError::new(target, Stage::Identity, "there is no proxy client certificate")
            })?,
            Credential::Token | Credential::Anonymous => &tls.plain,
        };
        let http1 = credential == Credential::Anonymous;
        let protocol: &[u8] = if http1 { b"http/1.1" } else { b"h2" };
        let endpoint = Endpoint {
            address: Arc::clone(&target.address),
            server_name: target.server_name.clone(),
            tls: tls.config(&[protocol]),
        };
        let pool = Arc::new(if http1 {
            Pool::Http1(Http1Pool::new(endpoint))
        } else {
            Pool::Http2(Http2Pool::new(endpoint))
        });
        pools.insert(key, Arc::clone(&pool));
        Ok(pool)
    }
}

/// Everything between two of us rides on the certificate, so that a peer is known for one whoever
/// its client is. A bare server must see no certificate beside a token, or it would doubt it.
fn credential(identity: &Identity, kind: MemberKind) -> Credential {
    match identity {
        _ if kind == MemberKind::Mvp || identity.needs_certificate() => Credential::Vouched,
        Identity::Token => Credential::Token,
        _ => Credential::Anonymous,
    }
}

fn prepare(
    request: &mut Request<Body>,
    target: &Target,
    identity: &Identity,
    names: &RemoteHeaders,
    http2: bool,
) {
    let origin = request.extensions().get::<Origin>().copied();
    let client = request.extensions().get::<ConnectionInfo>().map(|info| info.remote().ip());
    let host = {
        let headers = request.headers_mut();
        headers::remove_hop_by_hop(headers);
        identity.write(headers, names);
        headers::add_provenance(headers, client);
        // A request makes one hop: the header says that it did, also to a local server that would
        // make another by itself.
        if !target.local || origin == Some(Origin::Peer) {
            headers.insert(PEER_PROXIED, HeaderValue::from_static("true"));
        }
        headers::take_host(headers)
    };
    let authority = authority(request.uri(), host.as_ref(), target);
    if http2 {
        *request.version_mut() = Version::HTTP_2;
        if let Some(authority) = authority {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(Scheme::HTTPS);
            parts.authority = Some(authority);
            *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        }
    } else {
        *request.version_mut() = Version::HTTP_11;
        let host = authority.and_then(|authority| HeaderValue::try_from(authority.as_str()).ok());
        if let Some(host) = host {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = None;
        parts.authority = None;
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    }
    request.extensions_mut().clear();
}

/// The name by which the client called us, or, where it gave none, the server's address.
fn authority(uri: &Uri, host: Option<&HeaderValue>, target: &Target) -> Option<Authority> {
    uri.authority()
        .cloned()
        .or_else(|| host.and_then(|host| Authority::try_from(host.as_bytes()).ok()))
        .or_else(|| Authority::try_from(&*target.address).ok())
}

/// The server promised that it did not look at the request: it refused the stream, or went away and
/// named an earlier stream as the last that it looked at (h2 fails only later ones with that).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (error.is_go_away() || (error.is_reset() && refused));
        }
        source = error.source();
    }
    false
}
