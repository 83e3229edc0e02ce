//! The configuration under examination, each part by itself: a file that cannot be used does not hide
//! the others. Entry: [`Settings::read`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use http::HeaderName;

use crate::cli::{MembershipSource, Origins, ServeArgs, ServerUrl};
use crate::config::pem::Files;
use crate::config::{Around, CertificateFile, KeyPair, ServeConfig};
use crate::files;
use crate::mistake::Mistake;

/// A file of the configuration, none if no flag names one, or why it cannot be used.
pub(crate) type Part<T> = Result<Option<T>, Mistake>;

/// The flags, and what their files hold.
pub(crate) struct Settings {
    pub(crate) args: ServeArgs,
    /// The configuration as `mvp serve` reads it, or why it refuses to start.
    pub(crate) config: Result<ServeConfig, Mistake>,
    pub(crate) serving: Pair,
    pub(crate) proxy: Pair,
    pub(crate) etcd_client: Pair,
    pub(crate) client_ca: Part<CertificateFile>,
    pub(crate) request_header_ca: Part<CertificateFile>,
    pub(crate) peer_ca: Part<CertificateFile>,
    pub(crate) local_ca: Part<CertificateFile>,
    pub(crate) etcd_ca: Part<CertificateFile>,
}

/// A certificate and its key: the certificate alone can be examined, too.
pub(crate) struct Pair {
    pub(crate) chain: Part<CertificateFile>,
    pub(crate) both: Part<KeyPair>,
}

impl Settings {
    /// Reads the files that the flags name.
    pub(crate) fn read(args: ServeArgs, origins: &Origins, now: SystemTime) -> Settings {
        let mut files = Files::new(origins, now, &files::read);
        let mut pair = |cert: (&'static str, &Option<PathBuf>),
                        key: (&'static str, &Option<PathBuf>)| {
            let chain = cert.1.clone().map(|path| files.certificates(cert.0, path)).transpose();
            let both = files.pair((cert.0, cert.1.clone()), (key.0, key.1.clone()));
            Pair { chain, both }
        };
        let serving = pair(
            ("tls-cert-file", &args.tls_cert_file),
            ("tls-private-key-file", &args.tls_private_key_file),
        );
        let proxy = pair(
            ("proxy-client-cert-file", &args.proxy_client_cert_file),
            ("proxy-client-key-file", &args.proxy_client_key_file),
        );
        let etcd_client =
            pair(("etcd-certfile", &args.etcd_certfile), ("etcd-keyfile", &args.etcd_keyfile));
        let mut authorities = |key, path: &Option<PathBuf>| files.authorities(key, path.clone());
        Settings {
            serving,
            proxy,
            etcd_client,
            client_ca: authorities("client-ca-file", &args.client_ca_file),
            request_header_ca: authorities(
                "requestheader-client-ca-file",
                &args.requestheader_client_ca_file,
            ),
            peer_ca: authorities("peer-ca-file", &args.peer_ca_file),
            local_ca: authorities("local-ca-file", &args.local_ca_file),
            etcd_ca: authorities("etcd-cafile", &args.etcd_cafile),
            config: ServeConfig::check(args.clone(), origins, now),
            args,
        }
    }

    /// The CAs of the local server.
    pub(crate) fn local_authorities(&self) -> Option<&CertificateFile> {
        let given = self.args.local_ca_file.is_some();
        let part = if given { &self.local_ca } else { &self.peer_ca };
        part.as_ref().ok()?.as_ref()
    }

    /// The CAs of peers; none if nothing is sent to peers.
    pub(crate) fn peer_authorities(&self) -> Option<&CertificateFile> {
        self.peer_ca.as_ref().ok()?.as_ref()
    }

    /// The proxy client certificate with its key, if it can be used.
    pub(crate) fn proxy_pair(&self) -> Option<&KeyPair> {
        self.proxy.both.as_ref().ok()?.as_ref()
    }

    /// The local server, or the first one behind a load balancer: the one to ask about the cluster.
    pub(crate) fn first_server(&self) -> Option<(&ServerUrl, Option<&CertificateFile>)> {
        match &self.args.local_server {
            Some(url) => Some((url, self.local_authorities())),
            None => {
                let seed = self.config.as_ref().ok().and_then(|config| config.peers.seed.as_ref());
                Some((self.args.servers.first().or(seed)?, self.peer_authorities()))
            }
        }
    }

    /// The address from which the local server is reached around the steering, if that is needed.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        let server = self.args.local_server.as_ref().filter(|_| self.args.steer)?;
        Some(Around::new(server)?.source)
    }

    /// Whether members are found in this way.
    pub(crate) fn finds_by(&self, source: MembershipSource) -> bool {
        match &self.config {
            Ok(config) => config.peers.membership.contains(&source),
            Err(_) => self.args.membership.contains(&source),
        }
    }

    /// The headers that name the user of our own requests.
    pub(crate) fn identity(&self) -> Vec<(String, String)> {
        let args = &self.args;
        let user = header(&args.requestheader_username_headers, "x-remote-user");
        let group = header(&args.requestheader_group_headers, "x-remote-group");
        vec![(user, USER.to_owned()), (group, GROUP.to_owned())]
    }

    /// The same, with a further group, a UID and an extra attribute: whether they arrive tells which
    /// headers are read. Nobody grants them anything.
    pub(crate) fn full_identity(&self) -> Vec<(String, String)> {
        let mut all = self.identity();
        let uid = header(&self.args.requestheader_uid_headers, "x-remote-uid");
        let prefix = header(&self.args.requestheader_extra_headers_prefix, "x-remote-extra-");
        let group = header(&self.args.requestheader_group_headers, "x-remote-group");
        all.push((group, MARK.to_owned()));
        all.push((uid, MARK.to_owned()));
        all.push((format!("{prefix}{MARK}"), MARK.to_owned()));
        all
    }
}

/// The user of requests of `mvp` itself.
pub(crate) const USER: &str = "system:apiserver";
pub(crate) const GROUP: &str = "system:authenticated";
/// The group, the UID and the extra attribute that only the doctor sends.
pub(crate) const MARK: &str = "mvp-doctor";

fn header(names: &[HeaderName], usual: &str) -> String {
    names.first().map_or_else(|| usual.to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{Invocation, parse};

    #[test]
    fn a_server_at_one_address_is_asked_around_the_steering() {
        let source = |flags: &[&str]| {
            let argv = ["mvp", "doctor"].iter().chain(flags).map(OsString::from).collect();
            let Ok(Invocation::Doctor(args, origins)) = parse(argv) else { panic!() };
            let settings = Settings::read(args.serve, &origins, SystemTime::now());
            settings.source().map(|source| source.to_string())
        };
        let (at_one, on_all) =
            ("--local-server=https://192.0.2.1:6443", "--local-server=https://127.0.0.1:6443");
        assert_eq!(source(&[at_one, "--steer"]).as_deref(), Some("127.0.0.2"));
        let ipv6 = "--local-server=https://[2001:db8::1]:6443";
        assert_eq!(source(&[ipv6, "--steer"]).as_deref(), Some("::1"));
        assert_eq!(source(&[on_all, "--steer"]), None);
        assert_eq!(source(&[at_one]), None);
    }
}
