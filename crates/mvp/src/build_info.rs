//! What this binary was built from, and `mvp version`. Entry: [`run`].

use std::io::{self, Write};

use mvp_apiserver::Release;
use serde::Serialize;

use crate::cli::{Output, VersionArgs};

/// The version of `mvp`.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit of the sources; empty if it is not known, as in a build from a tarball.
pub(crate) const COMMIT: &str = env!("MVP_COMMIT");
/// The version of the compiler.
pub(crate) const RUSTC: &str = env!("MVP_RUSTC");

/// A build of `mvp`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    version: &'static str,
    commit: &'static str,
    rustc: &'static str,
    target: &'static str,
    profile: &'static str,
    /// The library behind all TLS.
    tls: &'static str,
    allocator: &'static str,
    http: [&'static str; 2],
    /// The sources of members.
    membership: [&'static str; 4],
    /// The releases of Kubernetes whose APIs are recorded in this binary.
    kubernetes_releases: Vec<&'static str>,
}

/// Prints what this binary was built from.
pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<()> {
    let build = build();
    let mut out = io::stdout();
    if args.output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&build)?)?;
        return Ok(());
    }
    let commit = if build.commit.is_empty() { "unknown" } else { build.commit };
    writeln!(out, "mvp {}", build.version)?;
    for (name, value) in [
        ("commit", commit),
        ("rustc", build.rustc),
        ("target", build.target),
        ("profile", build.profile),
        ("tls", build.tls),
        ("allocator", build.allocator),
        ("http", &build.http.join(", ")),
        ("membership", &build.membership.join(", ")),
        ("releases", &build.kubernetes_releases.join(", ")),
    ] {
        writeln!(out, "  {name:<12}{value}")?;
    }
    Ok(())
}

/// This build.
fn build() -> Build {
    Build {
        version: VERSION,
        commit: COMMIT,
        rustc: RUSTC,
        target: env!("MVP_TARGET"),
        profile: env!("MVP_PROFILE"),
        tls: "rustls with aws-lc-rs",
        allocator: "mimalloc",
        http: ["HTTP/1.1", "HTTP/2"],
        membership: ["leases", "static", "etcd", "endpoints"],
        kubernetes_releases: Release::ALL.into_iter().map(Release::name).collect(),
    }
}
