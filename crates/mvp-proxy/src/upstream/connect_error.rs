//! Why a connection could not be opened, and who is at fault.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mvp_net::is_own_failure;
use thiserror::Error;

/// The time limit for a connection, or the answer to a PING, of a server that responds on other
/// connections.
pub(super) const BUSY: Duration = Duration::from_secs(6);

/// Why no connection could be opened.
#[derive(Debug, Clone, Error)]
pub(crate) enum ConnectError {
    /// The server refuses, is unreachable or silent, or its certificate is not trusted.
    #[error("{0}")]
    Server(Arc<io::Error>),
    /// The server responds on other connections, but accepted no new one in time.
    #[error("no connection within {} s to a busy server", BUSY.as_secs())]
    Busy,
    /// This process is out of descriptors, ports or memory; the server is not at fault.
    #[error("this gateway cannot open connections: {0}")]
    Ours(Arc<io::Error>),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        match is_own_failure(&error) {
            true => ConnectError::Ours(Arc::new(error)),
            false => ConnectError::Server(Arc::new(error)),
        }
    }
}

impl ConnectError {
    /// Whether the server was silent until the time limit.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, ConnectError::Server(error) if error.kind() == io::ErrorKind::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_this_process_do_not_count_against_a_server() {
        for number in [12, 23, 24, 98, 99, 105] {
            let error = io::Error::from_raw_os_error(number);
            assert!(matches!(ConnectError::from(error), ConnectError::Ours(_)), "{number}");
        }
        let refused = io::Error::from_raw_os_error(111);
        assert!(matches!(ConnectError::from(refused), ConnectError::Server(_)));
    }
}
