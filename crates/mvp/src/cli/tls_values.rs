//! Parsers of the flags of TLS, with kube-apiserver's names and meanings. Entries: [`sni_files`],
//! [`min_version`], [`cipher_suite`].

use std::path::PathBuf;

use mvp_net::{CipherSuites, TlsVersion};

use crate::mistake::Problem;

/// The files of a certificate, and the names that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SniFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Empty for those of the certificate.
    pub(crate) names: Vec<String>,
}

/// Parses `CERT,KEY` or `CERT,KEY:NAME,NAME`.
pub(super) fn sni_files(text: &str) -> Result<SniFiles, Problem> {
    let wrong = |what: &str| -> Problem {
        format!(
            "{text:?} {what}; write CERT,KEY or CERT,KEY:NAMES, such as a.crt,a.key:*.example.com"
        )
        .into()
    };
    let (files, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => return Err(wrong("has no name after :")),
        Some((files, names)) => (files, names.split(',').map(str::trim).collect()),
        None => (text, Vec::new()),
    };
    if names.iter().any(|name| name.is_empty()) {
        return Err(wrong("has an empty name"));
    }
    match *files.split(',').map(str::trim).collect::<Vec<_>>() {
        [certificate, key] if !certificate.is_empty() && !key.is_empty() => Ok(SniFiles {
            certificate: certificate.into(),
            key: key.into(),
            names: names.into_iter().map(str::to_owned).collect(),
        }),
        _ => Err(wrong("does not name a certificate and its key")),
    }
}

/// A value of `--tls-min-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinVersion {
    /// A version that mvp offers.
    Offered(TlsVersion),
    /// `VersionTLS10` or `VersionTLS11`, which mvp does not offer.
    Older(&'static str),
}

/// Parses Go's name of a TLS version.
pub(super) fn min_version(text: &str) -> Result<MinVersion, Problem> {
    match text {
        "VersionTLS10" => Ok(MinVersion::Older("VersionTLS10")),
        "VersionTLS11" => Ok(MinVersion::Older("VersionTLS11")),
        "VersionTLS12" => Ok(MinVersion::Offered(TlsVersion::Tls12)),
        "VersionTLS13" => Ok(MinVersion::Offered(TlsVersion::Tls13)),
        _ => Err(format!("{text:?} is not a TLS version; use VersionTLS12 or VersionTLS13").into()),
    }
}

/// Parses Go's name of a cipher suite.
pub(super) fn cipher_suite(text: &str) -> Result<String, Problem> {
    let name = text.trim();
    let fix = "give a name of Go's crypto/tls, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    CipherSuites::named([name]).map_err(|unknown| format!("{unknown}; {fix}"))?;
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_with_names() {
        let files = |names: &[&str]| SniFiles {
            certificate: "a.crt".into(),
            key: "a.key".into(),
            names: names.iter().map(ToString::to_string).collect(),
        };
        for (text, names) in [
            ("a.crt,a.key", &[][..]),
            (" a.crt , a.key ", &[]),
            ("a.crt,a.key:x.example", &["x.example"]),
            ("a.crt,a.key: *.example , y", &["*.example", "y"]),
            ("a.crt,a.key:::1", &["::1"]),
        ] {
            assert_eq!(sni_files(text), Ok(files(names)), "{text}");
        }
        for text in ["", "a.crt", "a.crt,", ",a.key", "a,b,c", "a,b:", "a,b: ", "a,b:x,,y"] {
            let problem = sni_files(text).unwrap_err().to_string();
            assert!(problem.contains("write CERT,KEY or CERT,KEY:NAMES"), "{problem}");
        }
    }

    #[test]
    fn versions_and_suites_have_the_names_of_go() {
        assert_eq!(min_version("VersionTLS13"), Ok(MinVersion::Offered(TlsVersion::Tls13)));
        assert_eq!(min_version("VersionTLS10"), Ok(MinVersion::Older("VersionTLS10")));
        for text in ["", "1.2", "versiontls12", "VersionTLS14", "VersionTLS1 3"] {
            let problem = min_version(text).unwrap_err().to_string();
            assert!(problem.ends_with("use VersionTLS12 or VersionTLS13"), "{problem}");
        }
        let suite = cipher_suite(" TLS_RSA_WITH_AES_128_CBC_SHA ");
        assert_eq!(suite.as_deref(), Ok("TLS_RSA_WITH_AES_128_CBC_SHA"));
        let problem = cipher_suite("AES128").unwrap_err().to_string();
        assert!(problem.starts_with("\"AES128\" is not a cipher suite; give a name"), "{problem}");
    }
}
