//! The sockets and TLS of the gateway: everything between the kernel and one HTTP request.
//!
//! Knows nothing of Kubernetes routing. In the order in which a connection meets it:
//!
//! 1. [`bind()`] opens the listening sockets.
//! 2. [`serve()`] accepts, ends TLS with a [`ReloadableTls`], speaks HTTP/1.1 or HTTP/2 as ALPN
//!    chose, and drains when it is told to end.
//! 3. [`ClientTrust`] judges the certificate that the client showed; every request carries the
//!    outcome in its [`ConnectionInfo`].
//!
//! [`ClientTls`] is the other direction: the TLS of the connections that the gateway opens.
//!
//! The cryptography is aws-lc-rs, named explicitly wherever rustls asks: no process-wide default
//! is installed or needed.

mod bind;
mod client_tls;
mod connection;
mod connection_limit;
mod error;
mod limits;
mod pem;
mod provider;
mod serve;
mod server_tls;
mod trust;

pub use bind::{bind, bind_workers};
pub use client_tls::ClientTls;
pub use connection::ConnectionInfo;
pub use connection_limit::ConnectionLimit;
pub use error::TlsError;
pub use limits::Limits;
pub use serve::{Drained, serve};
pub use server_tls::{ReloadableTls, ServerTls, server_config};
pub use trust::{BadName, CertificateUser, ClientTrust, Judgement};

/// TLS's own words, for callers that name them.
pub use rustls_pki_types::{CertificateDer, UnixTime};
