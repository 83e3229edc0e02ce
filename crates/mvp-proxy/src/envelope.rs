//! A request for one server, with what is known of it besides its head and body. Entry item:
//! [`Envelope`].

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Extensions, Request};

use crate::body::Body;
use crate::trace::Trace;

/// Why a request is not short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// A watch.
    Watch,
    /// A request whose response a backend or an extension server writes. It can contain anything.
    Relayed,
}

/// Tells whether the client aborted the body of its request. h2 does not always report that: a
/// stream that we reset looks as if the server had reset it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aborted(Arc<AtomicBool>);

impl Aborted {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request for one server.
pub(crate) struct Envelope<'a> {
    /// It has no extensions.
    pub(crate) request: Request<Body>,
    /// The extensions of the request as it arrived. Attempts share them: a copy for each would cost
    /// more than the rest of the head.
    pub(crate) extensions: Cow<'a, Extensions>,
    pub(crate) lasting: Option<Lasting>,
    /// The server must serve it, although it is unready.
    pub(crate) insists: bool,
    /// None if there is no body.
    pub(crate) aborted: Option<Aborted>,
    /// The trace that the request belongs to, if it is traced.
    pub(crate) trace: Option<&'a Trace>,
}

/// A request of our own.
impl From<Request<Body>> for Envelope<'_> {
    fn from(mut request: Request<Body>) -> Self {
        let extensions = Cow::Owned(std::mem::take(request.extensions_mut()));
        let (lasting, insists, aborted, trace) = (None, false, None, None);
        Envelope { request, extensions, lasting, insists, aborted, trace }
    }
}

impl Envelope<'_> {
    /// The request with its extensions, for a server in this process.
    pub(crate) fn into_request(self) -> Request<Body> {
        let Envelope { mut request, extensions, .. } = self;
        *request.extensions_mut() = extensions.into_owned();
        request
    }
}
