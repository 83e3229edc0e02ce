//! Who the caller is: kube-apiserver's own rules, in its own order.
//!
//! [`Authenticate`] stands before the layer. It reads the connection's certificate and the request's
//! headers, removes every header that the caller may not send, and leaves an [`Identity`] and an
//! [`Origin`] in the extensions. What goes out to a server is written by [`Identity::write`].

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{AUTHORIZATION, HeaderName, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue, Request, Response};
use mvp_core::decide::Origin;
use mvp_net::{CertificateUser, ConnectionInfo};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::door::{self, Door, Head, Refusal};
use crate::gateway::PEER_PROXIED;
use crate::headers::{asks_for_websocket, items, remove_named_by_connection};

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
/// Browsers cannot set headers of a WebSocket, but for the names of protocols: one that begins so
/// is a token.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
const REMOTE_EXTRA: &str = "x-remote-extra-";

/// Who the caller is, as far as we know.
#[derive(Debug, Clone)]
pub enum Identity {
    /// A user that a certificate, or a trusted front proxy, vouches for.
    User(Arc<User>),
    /// Whoever a bearer token belongs to: the server that gets it finds out.
    Token,
    /// Nobody in particular.
    Anonymous,
    /// This proxy itself, when it asks what a server serves.
    System,
}

/// A user, ready to be written into headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Option<HeaderValue>,
    /// The unique ID.
    pub uid: Option<HeaderValue>,
    /// The groups.
    pub groups: Vec<HeaderValue>,
    /// All else, each by its whole header name.
    pub extra: Vec<(HeaderName, HeaderValue)>,
}

/// The names of the headers in which front proxies speak of users.
#[derive(Debug, Clone)]
pub struct RemoteHeaders {
    /// The first of these that is there names the user.
    pub username: Vec<HeaderName>,
    /// All of these name groups.
    pub group: Vec<HeaderName>,
    /// The first of these that is there is the unique ID.
    pub uid: Vec<HeaderName>,
    /// Headers that begin so hold all else; in lower case.
    pub extra_prefix: Vec<String>,
}

impl Default for RemoteHeaders {
    fn default() -> Self {
        RemoteHeaders {
            username: vec![REMOTE_USER],
            group: vec![REMOTE_GROUP],
            uid: vec![REMOTE_UID],
            extra_prefix: vec![REMOTE_EXTRA.to_owned()],
        }
    }
}

/// An extension of requests that went through [`Authenticate`]: no reserved header is left in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Screened(pub(crate) Arc<RemoteHeaders>);

/// A layer that finds out who the caller is, and refuses requests that are malformed or too large.
#[derive(Debug, Clone, Default)]
pub struct AuthenticateLayer {
    headers: Arc<RemoteHeaders>,
    door: Door,
}

impl AuthenticateLayer {
    /// Front proxies are heard through these headers.
    pub fn new(headers: RemoteHeaders) -> AuthenticateLayer {
        AuthenticateLayer { headers: Arc::new(headers), door: Door::default() }
    }

    /// Answers requests whose head is larger than this with 431. Measured as HTTP/2 measures a
    /// header list: name, value and 32 bytes for each field. 128 KiB unless set; front proxies and
    /// peers, which add headers of their own, may send 32 KiB more.
    pub fn with_max_head_bytes(mut self, bytes: usize) -> AuthenticateLayer {
        self.door.max_head_bytes = bytes;
        self
    }

    /// Each HTTP/2 request of a client ends its connection (GOAWAY) with this probability, so that
    /// long-lived clients are balanced anew, as with kube-apiserver's `--goaway-chance`. Never for
    /// front proxies and peers. 0, the default, turns it off.
    pub fn with_goaway_chance(mut self, chance: f64) -> AuthenticateLayer {
        self.door.goaway = door::Chance::new(chance);
        self
    }
}

impl<S> Layer<S> for AuthenticateLayer {
    type Service = Authenticate<S>;

    fn layer(&self, inner: S) -> Authenticate<S> {
        Authenticate { headers: Arc::clone(&self.headers), door: self.door, inner }
    }
}

/// A service that finds out who the caller is before it passes a request on.
#[derive(Debug, Clone)]
pub struct Authenticate<S> {
    headers: Arc<RemoteHeaders>,
    door: Door,
    inner: S,
}

impl<S, B> Service<Request<B>> for Authenticate<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let connection = request.extensions().get::<ConnectionInfo>().cloned();
        let mut end = self.door.end(connection.as_ref());
        match self.admit(connection.as_ref(), &mut request) {
            Ok(anonymous) => {
                end.always |= anonymous;
                let answer = self.inner.call(request);
                ResponseFuture { answer: Answer::Inner { answer }, end }
            }
            Err(refusal) => {
                let response = Some(refusal.response());
                ResponseFuture { answer: Answer::Refused { response }, end }
            }
        }
    }
}

impl<S> Authenticate<S> {
    /// Leaves what is known of the caller in the request: whether it is anonymous. Or says why the
    /// request goes no further.
    fn admit<B>(
        &self,
        connection: Option<&ConnectionInfo>,
        request: &mut Request<B>,
    ) -> Result<bool, Refusal> {
        let head = Head::of(request, |name| self.headers.reserves(name));
        let large = self.door.check(connection, request, head.bytes)?;
        let headers = request.headers_mut();
        let (identity, origin) = authenticate(connection, headers, &self.headers, head.reserved)
            .map_err(Refusal::Unauthorized)?;
        let anonymous = matches!(identity, Identity::Anonymous);
        let extensions = request.extensions_mut();
        extensions.insert(identity);
        extensions.insert(origin);
        extensions.insert(Screened(Arc::clone(&self.headers)));
        if let Some(large) = large {
            extensions.insert(large);
        }
        Ok(anonymous)
    }
}

pin_project! {
    /// The response to come of [`Authenticate`].
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        answer: Answer<F>,
        end: door::End,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = AnswerProjection]
    enum Answer<F> {
        Inner { #[pin] answer: F },
        Refused { response: Option<Response<Body>> },
    }
}

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.answer.project() {
            AnswerProjection::Inner { answer } => {
                let Ok(response) = ready!(answer.poll(cx));
                response
            }
            // Polled again after its end, it stays pending.
            AnswerProjection::Refused { response } => match response.take() {
                Some(response) => response,
                None => return Poll::Pending,
            },
        };
        this.end.after(response.status());
        Poll::Ready(Ok(response))
    }
}

/// The four rules. Whatever the outcome, no header is left that only we, or a front proxy, may send.
fn authenticate(
    connection: Option<&ConnectionInfo>,
    headers: &mut HeaderMap,
    names: &RemoteHeaders,
    reserved: Vec<HeaderName>,
) -> Result<(Identity, Origin), &'static str> {
    // What a client wants to end here must not be looked at as if it went on.
    remove_named_by_connection(headers, |name| names.reserves(name.as_str()));
    let judgement = connection.map(ConnectionInfo::judgement);
    let front_proxy = judgement.is_some_and(|judgement| judgement.front_proxy);
    let remote = if front_proxy { User::from_remote(headers, names) } else { None };
    let claims_peer = headers.contains_key(PEER_PROXIED);
    for name in reserved {
        headers.remove(name);
    }

    let origin = match (claims_peer, front_proxy) {
        (false, _) => Origin::Client,
        (true, true) => Origin::Peer,
        (true, false) => Origin::Marked,
    };
    if let Some(user) = remote {
        headers.remove(AUTHORIZATION);
        return Ok((Identity::User(Arc::new(user)), origin));
    }
    // The certificate of a peer says who the peer is, never who asked the peer.
    let certificate = if origin == Origin::Peer { None } else { judgement };
    match certificate.and_then(|judgement| judgement.user.as_ref()) {
        Some(Ok(user)) => {
            let user = User::from_certificate(user).ok_or("a name is not safe in a header")?;
            headers.remove(AUTHORIZATION);
            return Ok((Identity::User(Arc::new(user)), origin));
        }
        Some(Err(_)) => return Err("a name in the client certificate is padded or unsafe"),
        None => {}
    }
    if headers.get(AUTHORIZATION).and_then(bearer).is_some() || has_token_protocol(headers) {
        return Ok((Identity::Token, origin));
    }
    let untrusted = judgement.is_some_and(|judgement| judgement.presented && !judgement.trusted);
    if untrusted {
        return Err("the client certificate is of no trusted authority, and there is no token");
    }
    Ok((Identity::Anonymous, origin))
}

/// The token that kube-apiserver finds in it. What is of another scheme, or empty, it passes over:
/// then the caller is nobody.
pub(crate) fn bearer(authorization: &HeaderValue) -> Option<&[u8]> {
    let mut parts = authorization.as_bytes().trim_ascii().split(|byte| *byte == b' ');
    let scheme = parts.next().unwrap_or_default();
    let token = parts.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token)
}

/// Whether there is a token among the protocols of a WebSocket, where kube-apiserver looks too.
fn has_token_protocol(headers: &HeaderMap) -> bool {
    let is_token = |protocol: &str| {
        protocol.strip_prefix(TOKEN_PROTOCOL).is_some_and(|token| !token.is_empty())
    };
    items(headers, &SEC_WEBSOCKET_PROTOCOL).any(is_token) && asks_for_websocket(headers)
}

impl RemoteHeaders {
    /// Whether nobody but us, and front proxies, may send a header of this name, in any spelling.
    pub(crate) fn reserves(&self, name: &str) -> bool {
        let is = |known: &HeaderName| spelled(name, known.as_str());
        begins(name, "x-remote-")
            || spelled(name, PEER_PROXIED.as_str())
            || [&self.username, &self.group, &self.uid].into_iter().flatten().any(is)
            || self.extra_prefix.iter().any(|prefix| begins(name, prefix))
    }

    /// Removes every header of a reserved name.
    pub(crate) fn remove_reserved(&self, headers: &mut HeaderMap) {
        let reserved: Vec<HeaderName> =
            headers.keys().filter(|name| self.reserves(name.as_str())).cloned().collect();
        for name in reserved {
            headers.remove(name);
        }
    }

    /// The name under which an extra is sent on.
    fn extra(&self, usual: &HeaderName) -> HeaderName {
        match (self.extra_prefix.first(), usual.as_str().strip_prefix(REMOTE_EXTRA)) {
            (Some(prefix), Some(rest)) if prefix != REMOTE_EXTRA => {
                HeaderName::try_from(format!("{prefix}{rest}")).unwrap_or_else(|_| usual.clone())
            }
            _ => usual.clone(),
        }
    }
}

/// Whether a name is the known one but for case and underscores.
fn spelled(name: &str, known: &str) -> bool {
    name.len() == known.len() && begins(name, known)
}

fn begins(name: &str, known: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() >= known.len() && name.bytes().zip(known.bytes()).all(|(a, b)| plain(a) == plain(b))
}

impl User {
    /// What a front proxy says; nothing where it names no user.
    fn from_remote(headers: &HeaderMap, names: &RemoteHeaders) -> Option<User> {
        let first = |names: &[HeaderName]| {
            let mut values = names.iter().filter_map(|name| headers.get(name));
            values.find(|value| !value.is_empty()).cloned()
        };
        let name = first(&names.username)?;
        let extra = headers.iter().filter_map(|(name, value)| {
            let prefix =
                names.extra_prefix.iter().find(|p| name.as_str().starts_with(p.as_str()))?;
            let rest = name.as_str().strip_prefix(prefix.as_str())?;
            let name = HeaderName::try_from(format!("{REMOTE_EXTRA}{rest}")).ok()?;
            Some((name, value.clone()))
        });
        Some(User {
            name: Some(name),
            uid: first(&names.uid),
            groups: names.group.iter().flat_map(|name| headers.get_all(name)).cloned().collect(),
            extra: extra.collect(),
        })
    }

    fn from_certificate(user: &CertificateUser) -> Option<User> {
        let value = |text: &String| HeaderValue::try_from(text.as_str()).ok();
        let groups: Option<Vec<HeaderValue>> = user.groups.iter().map(value).collect();
        let credential =
            HeaderName::from_static("x-remote-extra-authentication.kubernetes.io%2fcredential-id");
        // kube-apiserver adds this group to everyone whom it authenticates itself; for a user whom
        // a front proxy names, the front proxy has to.
        let mut groups = groups?;
        let authenticated = HeaderValue::from_static("system:authenticated");
        if !groups.contains(&authenticated) {
            groups.push(authenticated);
        }
        Some(User {
            name: Some(value(&user.name)?),
            uid: match &user.uid {
                Some(uid) => Some(value(uid)?),
                None => None,
            },
            groups,
            extra: vec![(credential, value(&user.credential_id)?)],
        })
    }
}

impl Identity {
    /// Writes who the caller is into the headers of a request that goes to a server.
    pub(crate) fn write(&self, headers: &mut HeaderMap, names: &RemoteHeaders) {
        let first = |names: &[HeaderName], usual| names.first().cloned().unwrap_or(usual);
        let username = first(&names.username, REMOTE_USER);
        let group = first(&names.group, REMOTE_GROUP);
        match self {
            Identity::User(user) => {
                let uid = first(&names.uid, REMOTE_UID);
                for (name, value) in [(username, &user.name), (uid, &user.uid)] {
                    if let Some(value) = value {
                        headers.insert(name, value.clone());
                    }
                }
                for value in &user.groups {
                    headers.append(group.clone(), value.clone());
                }
                for (name, value) in &user.extra {
                    headers.append(names.extra(name), value.clone());
                }
            }
            Identity::System => {
                headers.insert(username, HeaderValue::from_static("system:apiserver"));
                headers.insert(group, HeaderValue::from_static("system:authenticated"));
            }
            Identity::Token | Identity::Anonymous => {}
        }
    }

    /// Whether kube-apiserver takes it for nobody, although it has a name.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        let Identity::User(user) = self else { return false };
        user.name.as_ref().is_some_and(|name| name == "system:anonymous")
            || user.groups.iter().any(|group| group == "system:unauthenticated")
    }

    /// Whether the headers that say who it is are believed only on our own certificate.
    pub(crate) fn needs_certificate(&self) -> bool {
        matches!(self, Identity::User(_) | Identity::System)
    }
}
