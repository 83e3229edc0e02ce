//! The configuration of traces. Entry: [`TracingConfig`].

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use mvp_net::ClientTls;
use mvp_otlp::{Collector, Tls};
use mvp_proxy::trace::Sampling;

use super::pem::{CertificateFile, Files};
use crate::cli::{Origins, ServeArgs};
use crate::files;
use crate::mistake::Mistake;

/// Where spans are sent, and which requests have them.
#[derive(Debug, Clone)]
pub(crate) struct TracingConfig {
    /// The collector.
    pub(crate) collector: Collector,
    /// Which requests are traced.
    pub(crate) sampling: Sampling,
}

impl TracingConfig {
    /// Reads the CA file. None without `--tracing-endpoint`.
    pub(super) fn check(
        files: &mut Files<'_>,
        args: &ServeArgs,
        origins: &Origins,
    ) -> Result<Option<TracingConfig>, Mistake> {
        let ca = files.authorities("tracing-ca-file", args.tracing_ca_file.clone())?;
        let Some(url) = &args.tracing_endpoint else {
            if ca.is_none() {
                return Ok(None);
            }
            let sentence = "given without --tracing-endpoint; give the URL of the collector, or remove \
                            this flag";
            return Err(Mistake::usage(origins.name("tracing-ca-file"), sentence));
        };
        let mistake = |sentence| Mistake::usage(origins.name("tracing-endpoint"), sentence);
        let tls = match (url.scheme_str() == Some("https"), ca) {
            (true, Some(ca)) => Some(tls(ca)),
            (false, None) => None,
            (true, None) => {
                let sentence =
                    "https needs --tracing-ca-file; give the CAs to verify the collector with";
                return Err(mistake(sentence));
            }
            (false, Some(_)) => {
                let sentence =
                    "http does not use --tracing-ca-file; write https://, or remove that flag";
                return Err(mistake(sentence));
            }
        };
        if url.scheme_str() == Some("http") && !is_this_host(url) {
            files.warn(format!(
                "--tracing-endpoint {url} sends paths, client addresses and user agents unencrypted; use \
                 https, or a collector on this host"
            ));
        }
        let sentence = "not the URL of a collector; write it as http://HOST:4317";
        let collector = Collector::new(url, tls).map_err(|_| mistake(sentence))?;
        let sampling = Sampling {
            ratio: args.tracing_sampling_ratio,
            client_requests_per_second: args.tracing_client_requests_per_second,
        };
        Ok(Some(TracingConfig { collector, sampling }))
    }
}

/// Whether nothing leaves this host on the way there.
fn is_this_host(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// TLS with the CAs that the file has when a connection is opened.
fn tls(ca: CertificateFile) -> Tls {
    Arc::new(move || {
        let origin = format!("--{} {}", ca.key, ca.path.display());
        let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("{origin}: {error}"));
        let pem = files::read(&ca.path).map_err(|error| failed(&error))?;
        let tls = ClientTls::new(&pem, None).and_then(|tls| tls.explained(&origin));
        Ok(tls.map_err(|error| failed(&error))?.config(&[b"h2"]))
    })
}
