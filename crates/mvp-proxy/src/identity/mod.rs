//! The caller's identity, by kube-apiserver's rules.
//!
//! [`Authenticate`] runs before the layer. It reads the connection's certificate and the request's
//! headers, removes all headers that the caller may not send, and sets the extensions [`Identity`]
//! and [`Origin`](mvp_core::decide::Origin). `Identity::write` writes the headers that a server
//! receives.

mod authenticate;
mod name_set;
mod remote_headers;
mod rules;
mod screen;
mod untrusted;
mod user;

use std::sync::Arc;

use http::HeaderMap;

pub use authenticate::{Authenticate, AuthenticateLayer, ResponseFuture};
pub use remote_headers::RemoteHeaders;
pub(crate) use rules::{bearer, proves_token};
pub use screen::HeadersState;
pub(crate) use screen::{NEEDED, Names, Screen, Screened};
pub use user::User;

/// The caller of a request.
#[derive(Debug, Clone)]
pub enum Identity {
    /// A user that a client certificate or a trusted front proxy names.
    User(Arc<User>),
    /// The owner of a bearer token. The server that receives the token verifies it.
    Token,
    /// A caller without credentials.
    Anonymous,
    /// This proxy itself, when it asks a server for discovery.
    System,
}

impl Identity {
    /// Writes the caller into the headers of a request to a server.
    pub(crate) fn write(&self, headers: &mut HeaderMap, names: &RemoteHeaders) {
        match self {
            Identity::User(user) => user.write(headers, names),
            Identity::System => User::system().write(headers, names),
            Identity::Token | Identity::Anonymous => {}
        }
    }

    /// Whether kube-apiserver treats the caller as unauthenticated, although it has a name.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        matches!(self, Identity::User(user) if user.is_unauthenticated())
    }

    /// Whether the caller is the user as which gateways ask in their own right, and no other of that
    /// name: the user of a certificate has a credential ID. Only a peer is believed to be it.
    pub fn is_gateway(&self) -> bool {
        match self {
            Identity::System => true,
            Identity::User(user) => **user == User::system(),
            Identity::Token | Identity::Anonymous => false,
        }
    }

    /// Whether the caller is known to be in one of these groups.
    pub(crate) fn is_of(&self, groups: &[&str]) -> bool {
        let Identity::User(user) = self else { return false };
        user.groups.iter().any(|group| groups.iter().any(|name| group == name))
    }

    /// Whether servers believe the caller's headers only on this proxy's own certificate.
    pub(crate) fn needs_certificate(&self) -> bool {
        matches!(self, Identity::User(_) | Identity::System)
    }
}

#[cfg(test)]
mod tests;
