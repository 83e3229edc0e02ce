//! Why connections cannot be listed or ended, and what to do.

use std::io;

/// Why connections cannot be listed or ended. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The process may not end connections.
    #[error(
        "CAP_NET_ADMIN is missing, which ending connections needs: run it as root on the node, or with \
         kubectl exec in the mvp pod"
    )]
    NotPermitted,
    /// The kernel cannot end connections of other processes.
    #[error(
        "this kernel cannot end connections of other processes (CONFIG_INET_DIAG_DESTROY is off): they \
         end when their clients reconnect, at the latest at the next restart of kube-apiserver"
    )]
    CannotEnd,
    /// The kernel does not tell the options of sockets.
    #[error(
        "this kernel does not tell steered connections from others (sock_diag without \
         INET_DIAG_SOCKOPT): it needs a newer one"
    )]
    NoOptions,
    /// The kernel has no `sock_diag` for TCP.
    #[error(
        "this kernel does not list TCP connections (sock_diag: {0}): load its modules inet_diag and \
         tcp_diag"
    )]
    CannotList(io::Error),
    /// The kernel's answer cannot be understood.
    #[error("the kernel's list of connections cannot be read: {0}")]
    Malformed(&'static str),
    /// Anything else.
    #[error("{what} failed: {error}")]
    Failed {
        /// What failed.
        what: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl ConnectionError {
    /// Connections could not be listed.
    pub(super) fn of_list(error: io::Error) -> ConnectionError {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => {
                ConnectionError::CannotList(error)
            }
            _ => ConnectionError::Failed { what: "listing connections with sock_diag", error },
        }
    }

    /// A connection could not be ended.
    pub(super) fn of_end(error: io::Error) -> ConnectionError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => ConnectionError::NotPermitted,
            Some(libc::EOPNOTSUPP) => ConnectionError::CannotEnd,
            _ => ConnectionError::Failed { what: "ending a connection with sock_diag", error },
        }
    }
}
