//! What tests, `e2e`, `bench` and `guard` share. A development crate: nothing in a release depends
//! on it, and it depends on no other crate of the workspace.
//!
//! - [`certificates`]: CAs and the certificates they issue, as PEM.
//! - [`pki`]: the certificate files of a cluster, laid out like kubeadm's.
//! - [`history`]: whether clients and watches saw what a single server could have shown.
//! - [`kubernetes`]: the flags of kube-apiserver, etcd and `mvp` in a cluster under test.
//! - `http2` (feature `http2`): HTTP/2 frame by frame.
//! - `otlp` (feature `otlp`): a receiver of spans.
//! - `cached` (feature `process`): what is installed into the cache of programs, once.
//! - `connect_proxy` (feature `process`): a small HTTP CONNECT proxy.
//! - `process` (feature `process`): programs that run beside a test and end with it.
//! - `programs` (feature `process`): the `mvp` under test, and the cache of Kubernetes programs.

#[cfg(feature = "process")]
pub mod cached;
pub mod certificates;
#[cfg(feature = "process")]
pub mod connect_proxy;
pub mod history;
#[cfg(feature = "http2")]
pub mod http2;
pub mod kubernetes;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod pki;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "process")]
pub mod programs;
