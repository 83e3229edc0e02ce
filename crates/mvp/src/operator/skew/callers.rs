//! Who called an API lately, as a gateway recorded it. Entry: [`Recorded::fetch`].

use serde::Deserialize;

use super::finding::{Callers, Finding};
use super::surface::Api;
use crate::operator::gateway::GatewayArgs;

/// The user agent of the requests that count objects. They are no reason to keep an API.
pub(crate) const USER_AGENT: &str = concat!("mvp-skew/", env!("CARGO_PKG_VERSION"));

/// The callers of the last hour.
#[derive(Debug, Deserialize)]
pub(crate) struct Recorded {
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    group: String,
    version: String,
    resource: String,
    callers: Vec<Caller>,
    #[serde(default)]
    more_requests: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Caller {
    user: Option<String>,
    user_agent: String,
}

impl Recorded {
    /// The callers that a gateway recorded; `None` if it does not answer or does not record them.
    pub(crate) fn fetch(gateway: &GatewayArgs) -> Option<Recorded> {
        let answer = gateway.get("/debug/callers").ok().filter(|answer| answer.status == 200)?;
        serde_json::from_str(&answer.body).ok()
    }

    fn of(&self, api: &Api) -> Vec<String> {
        let is_it = |it: &&Resource| {
            it.group == api.group && it.version == api.version && it.resource == api.resource
        };
        let Some(resource) = self.resources.iter().find(is_it) else { return Vec::new() };
        let others =
            resource.callers.iter().filter(|caller| !caller.user_agent.starts_with("mvp-skew/"));
        let mut callers: Vec<String> = others.map(Caller::shown).collect();
        if resource.more_requests > 0 {
            callers.push("others".to_owned());
        }
        callers
    }
}

impl Caller {
    fn shown(&self) -> String {
        let user = self.user.as_deref().unwrap_or("an unknown user");
        // The rest of the agent is about the platform.
        match self.user_agent.split(' ').next().unwrap_or_default() {
            "" => user.to_owned(),
            agent => format!("{user} ({agent})"),
        }
    }
}

/// Adds the callers of each API. Subresources are not recorded by themselves.
pub(crate) fn add(findings: &mut [Finding], recorded: Option<&Recorded>) {
    let Some(recorded) = recorded else { return };
    for finding in findings.iter_mut().filter(|finding| finding.api.subresource.is_none()) {
        finding.callers = Callers::Known(recorded.of(&finding.api));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::skew::finding::Kind;
    use crate::operator::skew::surface::Surface;

    #[test]
    fn callers_are_those_of_the_same_version_except_our_own_counts() {
        let text = r#"{"windowSeconds": 3600, "moreRequests": 0, "resources": [
            {"group": "batch", "version": "v1", "resource": "jobs", "moreRequests": 2, "callers": [
                {"user": "alice", "userAgent": "kubectl/v1.36 (linux/amd64)", "requests": 3},
                {"user": null, "userAgent": "", "requests": 1},
                {"user": "admin", "userAgent": "mvp-skew/0.1.0", "requests": 9}]}]}"#;
        let recorded: Recorded = serde_json::from_str(text).unwrap();
        let found = |version| {
            let api = Api::new("batch", version, "jobs");
            let verbs = ["list"].into_iter().collect();
            Finding::new(&api, verbs, Kind::All, &Surface::default())
        };
        let mut findings = [found("v1"), found("v1beta1")];
        add(&mut findings, None);
        assert_eq!(findings[0].callers, Callers::Unknown);
        add(&mut findings, Some(&recorded));
        let names = ["alice (kubectl/v1.36)", "an unknown user", "others"].map(str::to_owned);
        assert_eq!(findings[0].callers, Callers::Known(names.to_vec()));
        assert_eq!(findings[1].callers, Callers::Known(Vec::new()));
    }
}
