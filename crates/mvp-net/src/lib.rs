//! The sockets and TLS of the gateway: everything between the kernel and one HTTP request.
//!
//! This crate knows nothing about Kubernetes routing. In the order of a connection:
//!
//! 1. [`bind()`] opens the listening sockets.
//! 2. [`serve()`] accepts, terminates TLS with a [`ReloadableTls`], serves HTTP/1.1 or HTTP/2 by
//!    ALPN, and drains at shutdown.
//! 3. [`ClientTrust`] judges the client's certificate; every request has the result in its
//!    [`ConnectionInfo`].
//!
//! [`ClientTls`] is the TLS of the connections that the gateway opens.
//!
//! The cryptography is aws-lc-rs, given to rustls explicitly: no process-wide default is installed or
//! needed.

mod bind;
mod client_errors;
mod client_tls;
mod client_waits;
mod connect;
mod connection;
mod connection_limit;
mod error;
mod explain;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake_limit;
mod limits;
mod pem;
mod provider;
mod serve;
mod server_tls;
mod socket;
mod trust;
mod unverified;

pub use bind::{bind, bind_steered, bind_workers};
pub use client_errors::{ClientError, ClientErrors};
pub use client_tls::ClientTls;
pub use client_waits::ClientWaits;
pub use connect::{connect_from, is_own_failure};
pub use connection::ConnectionInfo;
pub use connection_limit::ConnectionLimit;
pub use error::TlsError;
pub use explain::{CertificateNames, UntrustedServer};
pub use handshake_limit::HandshakeLimit;
pub use limits::Limits;
pub use serve::{Drained, Listener, PassThrough, serve, serve_tcp};
pub use server_tls::{
    CipherSuites, ReloadableTls, ServerTls, SniCertificate, TlsPolicy, TlsVersion, UnknownSuite,
    server_config,
};
pub use socket::Socket;
pub use trust::{BadName, CertificateUser, ClientTrust, Judgement};
pub use unverified::unverified_config;

/// Types of rustls in the interface of this crate.
pub use rustls_pki_types::{CertificateDer, UnixTime};
