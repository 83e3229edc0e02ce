//! A running gateway, asked over its admin endpoint: its Unix socket, or its address on loopback.
//! Entry: [`GatewayArgs::get`].

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

/// The longest time without a byte.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same where the gateway asks all members: 8 s, after the rounds of those who asked before.
const TIMEOUT_OF_ALL: Duration = Duration::from_secs(30);
/// The largest response that is read.
const MAX_RESPONSE: usize = 64 << 20;
/// The longest time of a whole exchange.
const TOTAL: Duration = Duration::from_mins(1);

/// Where the admin endpoint of a gateway is.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct GatewayArgs {
    /// The --admin-socket of the gateway.
    #[arg(long, value_name = "PATH", default_value = crate::admin::socket::DEFAULT)]
    pub admin_socket: PathBuf,
    /// The --admin-bind-address of the gateway, in place of its socket.
    #[arg(long, value_name = "IP:PORT", conflicts_with = "admin_socket")]
    pub admin_address: Option<SocketAddr>,
}

/// A response of the admin endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl GatewayArgs {
    /// Sends a GET request.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("GET", path)
    }

    /// Sends a request without a body.
    pub(crate) fn send(&self, method: &str, path: &str) -> anyhow::Result<Answer> {
        let answer = self.exchange(method, path).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run it as the user that runs mvp serve, or as root"
                }
                _ => {
                    "check that mvp serve runs here and does not hang (where it runs in a pod, use \
                     kubectl exec or crictl exec); or give the --admin-socket of a gateway on this \
                     host (its log names it), or its --admin-bind-address as --admin-address"
                }
            };
            anyhow::anyhow!("no gateway answers at {self}: {error}; {hint}")
        })?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        let status = status.and_then(|status| status.parse().ok());
        let Some(status) = status.filter(|_| !body.trim().is_empty()) else {
            anyhow::bail!("{self} is not the admin endpoint of mvp; give its --admin-socket");
        };
        Ok(Answer { status, body: body.to_owned() })
    }

    fn exchange(&self, method: &str, path: &str) -> io::Result<String> {
        let limit = Some(time_limit(path));
        match &self.admin_address {
            Some(address) => {
                let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
                stream.set_read_timeout(limit)?;
                exchange(stream, method, path, TOTAL)
            }
            None => {
                let stream = UnixStream::connect(&self.admin_socket)?;
                stream.set_read_timeout(limit)?;
                exchange(stream, method, path, TOTAL)
            }
        }
    }
}

/// The longest time without a byte of this page.
fn time_limit(path: &str) -> Duration {
    if path.ends_with("?all") { TIMEOUT_OF_ALL } else { TIMEOUT }
}

impl fmt::Display for GatewayArgs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.admin_address {
            Some(address) => write!(out, "{address}"),
            None => write!(out, "{}", self.admin_socket.display()),
        }
    }
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    total: Duration,
) -> io::Result<String> {
    // HTTP/1.0: the response has no chunks, and the server closes the connection after it.
    write!(stream, "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the response takes too long");
    let (begun, mut answer, mut part) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
    loop {
        let length = stream.read(&mut part).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => late(),
            _ => error,
        })?;
        answer.extend_from_slice(part.get(..length).unwrap_or_default());
        if length == 0 {
            return String::from_utf8(answer).map_err(io::Error::other);
        }
        // Somebody who sends a byte now and then must not hold the operator up.
        if begun.elapsed() > total {
            return Err(late());
        }
        if answer.len() > MAX_RESPONSE {
            return Err(io::Error::other("the response is too large"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends one byte for ever.
    struct Drip;

    impl Read for Drip {
        fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
            part.fill(b'x');
            Ok(1)
        }
    }

    impl Write for Drip {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_response_that_never_ends_is_given_up() {
        let error = exchange(Drip, "GET", "/", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn two_rounds_of_all_members_fit_into_the_time_limit() {
        let round = crate::report::relay::TOTAL;
        assert!(time_limit("/debug/status?all") > round * 3);
        assert_eq!(time_limit("/debug/status"), TIMEOUT);
    }
}
