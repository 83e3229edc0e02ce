//! The parts of a kubeconfig that matter here. Entry: [`Document`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Document {
    pub(super) current_context: Option<String>,
    pub(super) contexts: Option<Vec<NamedContext>>,
    pub(super) clusters: Option<Vec<NamedCluster>>,
    pub(super) users: Option<Vec<NamedUser>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedContext {
    pub(super) name: String,
    pub(super) context: Context,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedCluster {
    pub(super) name: String,
    pub(super) cluster: Cluster,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedUser {
    pub(super) name: String,
    pub(super) user: User,
}

#[derive(Debug, Deserialize)]
pub(super) struct Context {
    pub(super) cluster: String,
    #[serde(default)]
    pub(super) user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) tls_server_name: String,
    pub(super) proxy_url: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: String,
    pub(super) client_key: String,
    pub(super) client_key_data: String,
    pub(super) token: String,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: String,
    pub(super) exec: Option<Exec>,
    username: String,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonated: String,
    as_uid: String,
    as_groups: Vec<IgnoredAny>,
    as_user_extra: BTreeMap<String, IgnoredAny>,
}

impl User {
    /// A setting that changes who the user is, and that is not supported.
    pub(super) fn unsupported(&self) -> Option<&'static str> {
        let impersonates = !self.impersonated.is_empty()
            || !self.as_uid.is_empty()
            || !self.as_groups.is_empty()
            || !self.as_user_extra.is_empty();
        match () {
            () if !self.username.is_empty() => Some("username"),
            () if self.auth_provider.is_some() => Some("auth-provider"),
            () if impersonates => Some("impersonation (as)"),
            () => None,
        }
    }
}

/// A program that prints credentials.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) api_version: String,
    pub(super) command: String,
    #[serde(default)]
    pub(super) args: Option<Vec<String>>,
    #[serde(default)]
    pub(super) env: Option<Vec<Variable>>,
    #[serde(default)]
    pub(super) install_hint: String,
    #[serde(default)]
    pub(super) provide_cluster_info: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}
