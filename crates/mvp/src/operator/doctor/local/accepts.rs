//! What the local server accepts: by asking it who we are, and by the ConfigMap in which all servers
//! publish their request-header settings. Entry items: [`identity`], [`config_map`].

use http::StatusCode;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;

use super::GROUP;
use crate::config::CertificateFile;
use crate::operator::doctor::certificates;
use crate::operator::doctor::check::Check;
use crate::operator::doctor::probe::{Review, Way, parsed};
use crate::operator::doctor::settings::Settings;

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Whether it takes us for the user that our headers name.
pub(super) fn identity(review: &Review) -> Option<Check> {
    let name = "accepts our identity";
    let certificate = "give mvp a proxy client certificate of the CA in the server's \
                       --requestheader-client-ca-file, with a name in its \
                       --requestheader-allowed-names";
    let headers = "set the same --requestheader-*-headers for mvp and for the API server";
    Some(match review {
        Review::NotAsked => GROUP.skip(name, "there is no usable proxy client certificate"),
        Review::Failed(why) => GROUP.skip(name, why),
        Review::NoApi => GROUP.skip(name, "it has no SelfSubjectReview (before Kubernetes 1.28)"),
        Review::Refused(status) => {
            let what = format!("it does not trust the proxy client certificate: {status}");
            GROUP.fail(name, what, certificate)
        }
        Review::Other(user) => {
            let what = format!("it takes mvp for {user:?}, not for the user in the headers");
            GROUP.fail(name, what, certificate)
        }
        Review::OtherHeaders => {
            let what = "it reads users from X-Remote-User, not from the headers of our flags";
            GROUP.fail(name, what, headers)
        }
        Review::Accepted { groups: false, .. } => {
            GROUP.fail(name, "it does not read groups from the header that mvp sends", headers)
        }
        Review::Accepted { extra: false, .. } => {
            let what = "it does not read extra attributes from the headers that mvp sends";
            GROUP.fail(name, what, headers)
        }
        // Kubernetes has it off by default.
        Review::Accepted { uid: false, .. } => GROUP.ok(
            name,
            "users, groups and extra attributes arrive; UIDs do not (its \
             --requestheader-uid-headers is not set)",
        ),
        Review::Accepted { .. } => {
            GROUP.ok(name, "users, groups, UIDs and extra attributes arrive")
        }
    })
}

/// Compares our flags with the ConfigMap.
pub(super) async fn config_map(settings: &Settings, way: &Way) -> Vec<Check> {
    let name = "request-header settings";
    if !way.is_vouched() {
        return vec![GROUP.skip(name, "there is no usable proxy client certificate")];
    }
    let answer = match way.get(PATH).await {
        Ok(answer) => answer,
        Err(error) => return vec![GROUP.skip(name, format!("{error:#}"))],
    };
    match answer.status {
        StatusCode::OK => compared(settings, &parsed(&answer)),
        status => {
            let what = "ConfigMap kube-system/extension-apiserver-authentication";
            vec![GROUP.skip(name, format!("{what} cannot be read: {status}"))]
        }
    }
}

/// The ConfigMap is a union that every server adds to: what it lacks, no server accepts.
fn compared(settings: &Settings, map: &Value) -> Vec<Check> {
    let data = |key: &str| map.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let list = |key: &str| -> Vec<String> {
        serde_json::from_str(data(key).unwrap_or_default()).unwrap_or_default()
    };
    let mut checks = Vec::new();
    let chain = settings.proxy.chain.as_ref().ok().and_then(Option::as_ref);
    if let (Some(chain), Some(pem)) = (chain, data("requestheader-client-ca-file")) {
        checks.push(trusted(chain, pem));
        let names = list("requestheader-allowed-names");
        checks.push(match certificates::is_allowed(chain, &names) {
            true => GROUP.ok("allowed names", "the servers allow the proxy client certificate's"),
            false => {
                let what = format!("the servers allow only {names:?} as front proxies");
                let fix = "give a proxy client certificate with such a name, or add its name to the \
                           --requestheader-allowed-names of every kube-apiserver";
                GROUP.fail("allowed names", what, fix)
            }
        });
    }
    let mut unread = Vec::new();
    for (key, sent) in [
        ("requestheader-username-headers", settings.args.requestheader_username_headers.first()),
        ("requestheader-group-headers", settings.args.requestheader_group_headers.first()),
        (
            "requestheader-extra-headers-prefix",
            settings.args.requestheader_extra_headers_prefix.first(),
        ),
    ] {
        let read = list(key);
        let is_read = |sent: &str| read.iter().any(|name| name.eq_ignore_ascii_case(sent));
        unread.extend(sent.filter(|sent| !is_read(sent.as_str())).map(ToString::to_string));
    }
    checks.push(match unread.is_empty() {
        true => GROUP.ok("headers", "the servers read those that mvp sends"),
        false => {
            let what = format!("no server reads {}, which mvp sends", unread.join(", "));
            let fix = "set the same --requestheader-*-headers for mvp and for every kube-apiserver";
            GROUP.fail("headers", what, fix)
        }
    });
    checks
}

/// Whether a CA of the ConfigMap issued the proxy client certificate.
fn trusted(chain: &CertificateFile, pem: &str) -> Check {
    let name = "request-header CA";
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = CertificateFile {
        key: "requestheader-client-ca-file",
        path: "of the servers".into(),
        pem: pem.as_bytes().to_vec(),
        certificates: found.unwrap_or_default(),
    };
    match certificates::is_issued(chain, &found) {
        true => GROUP.ok(name, "the servers trust the CA of the proxy client certificate"),
        false => {
            let what = "no CA in the servers' --requestheader-client-ca-file issued the proxy client \
                        certificate";
            let fix = "give mvp a proxy client certificate of that CA, such as kubeadm's \
                       front-proxy-client.crt";
            GROUP.fail(name, what, fix)
        }
    }
}

#[cfg(test)]
mod tests;
