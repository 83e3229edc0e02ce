//! The head of a request, read once: its size, reserved names, `Host` and `Expect`. Entry item:
//! [`Head`].

use http::header::{EXPECT, HOST};
use http::{HeaderName, HeaderValue, Request, Version};

use super::Refusal;

/// The overhead of each field of a header list, by RFC 9113.
const FIELD_OVERHEAD: usize = 32;

/// What a request head has, found in one pass.
pub(crate) struct Head {
    /// The size of the head, as that of an HTTP/2 header list.
    pub(crate) bytes: usize,
    /// The names that are not forwarded, such as those that the caller may not use. A name can occur
    /// twice.
    pub(crate) reserved: Vec<HeaderName>,
    hosts: usize,
    /// Whether a `Host` has bytes that a host cannot have.
    bad_host: bool,
    /// Whether a `Host` has user information.
    pub(super) userinfo: bool,
    expectations: usize,
    /// Whether the first `Expect` is not `100-continue`.
    pub(super) unmet: bool,
}

impl Head {
    pub(crate) fn of<B>(request: &Request<B>, reserves: impl Fn(&str) -> bool) -> Head {
        let uri = request.uri();
        let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
        let line = [request.method().as_str().len(), authority, target];
        let mut head = Head {
            bytes: line.iter().map(|length| length.saturating_add(FIELD_OVERHEAD)).sum(),
            reserved: Vec::new(),
            hosts: 0,
            bad_host: false,
            userinfo: false,
            expectations: 0,
            unmet: false,
        };
        for (name, value) in request.headers() {
            head.bytes += name.as_str().len() + value.len() + FIELD_OVERHEAD;
            if *name == HOST {
                head.host(value.as_bytes());
            } else if *name == EXPECT {
                head.expect(value);
            } else if reserves(name.as_str()) {
                head.reserved.push(name.clone());
            }
        }
        head
    }

    fn host(&mut self, host: &[u8]) {
        self.hosts += 1;
        self.bad_host |= !host.iter().all(|byte| is_of_host(*byte));
        self.userinfo |= host.contains(&b'@');
    }

    fn expect(&mut self, value: &HeaderValue) {
        if self.expectations == 0 {
            self.unmet = !value.is_empty() && !expects_continue(value.as_bytes());
        }
        self.expectations += 1;
    }

    /// Whether Go's HTTP/1.1 server would accept the head. The texts are Go's.
    pub(super) fn check_http1(&self, version: Version) -> Result<(), Refusal> {
        match self.hosts {
            0 if version != Version::HTTP_10 => {
                Err(Refusal::Malformed("missing required Host header"))
            }
            2.. => Err(Refusal::Malformed("too many Host headers")),
            _ if self.bad_host => Err(Refusal::Malformed("malformed Host header")),
            _ if self.unmet => Err(Refusal::Expectation),
            _ => Ok(()),
        }
    }
}

/// Whether Go accepts this byte in a `Host`.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&()*+,-.:;=[']_~".contains(&byte)
}

/// Whether one of the words is `100-continue`.
fn expects_continue(value: &[u8]) -> bool {
    value
        .split(|byte| matches!(byte, b' ' | b'\t' | b','))
        .any(|word| word.eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(version: Version, headers: &[(&str, &str)]) -> Head {
        let request = Request::builder().uri("/").version(version);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        Head::of(&request.body(()).unwrap(), |_| false)
    }

    /// The verdicts of Go's `net/http` server: `readRequest` and `ValidHostHeader`.
    #[test]
    fn http1_hosts_are_accepted_as_go_accepts_them() {
        let verdict = |version, hosts: &[&str]| {
            let headers: Vec<(&str, &str)> = hosts.iter().map(|host| ("host", *host)).collect();
            match head(version, &headers).check_http1(version) {
                Ok(()) => "",
                Err(Refusal::Malformed(reason)) => reason,
                Err(other) => panic!("{other:?}"),
            }
        };
        let http11 = |hosts: &[&str]| verdict(Version::HTTP_11, hosts);
        for host in ["", "host", "host:443", "[::1]:443", "a,b", "a:b:c", "HOST_~'"] {
            assert_eq!(http11(&[host]), "", "{host}");
        }
        for host in ["a b", "a/b", "a\"b", "user@host", "h\u{f6}st", "a#b", "a?b", "a\\b"] {
            assert_eq!(http11(&[host]), "malformed Host header", "{host}");
        }
        assert_eq!(http11(&[]), "missing required Host header");
        assert_eq!(http11(&["a", "a"]), "too many Host headers");
        assert_eq!(verdict(Version::HTTP_10, &[]), "");
        assert_eq!(verdict(Version::HTTP_10, &["a b"]), "malformed Host header");
        assert_eq!(verdict(Version::HTTP_10, &["a", "b"]), "too many Host headers");
    }

    #[test]
    fn http1_expectations_are_met_as_go_meets_them() {
        let unmet = |values: &[&str]| {
            let mut headers = vec![("host", "host")];
            headers.extend(values.iter().map(|value| ("expect", *value)));
            let checked = head(Version::HTTP_11, &headers).check_http1(Version::HTTP_11);
            matches!(checked, Err(Refusal::Expectation))
        };
        for met in ["", "100-continue", "100-Continue", "bogus, 100-continue", "100-continue x"] {
            assert!(!unmet(&[met]), "{met}");
        }
        for bogus in ["bogus", "100", "100-continued", "100-continue;q=1"] {
            assert!(unmet(&[bogus]), "{bogus}");
        }
        // Go reads the first one.
        assert!(!unmet(&["100-continue", "bogus"]));
        assert!(unmet(&["bogus", "100-continue"]));
        assert!(!unmet(&[]));
    }

    #[test]
    fn the_head_size_is_that_of_an_http2_header_list() {
        let request = Request::builder()
            .method("POST")
            .uri("https://host/path?query")
            .header("name", "value")
            .header("name", "")
            .body(())
            .unwrap();
        let head = Head::of(&request, |_| false);
        let line = "POST".len() + "host".len() + "/path?query".len() + 3 * 32;
        assert_eq!(head.bytes, line + "name".len() + "value".len() + 32 + "name".len() + 32);
    }
}
