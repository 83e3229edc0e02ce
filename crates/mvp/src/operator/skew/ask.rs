//! Asks API servers directly what they serve. Entry: [`ask_all`].

use anyhow::Context;
use bytes::Bytes;
use futures_util::future::{join_all, join3};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use mvp_core::discovery::{GroupList, Limits, Part, Source};
use serde::Deserialize;

use super::server::{Answer, Server};
use super::surface::Surface;
use crate::mistake::Problem;
use crate::operator::https::{self, Https};

/// Aggregated discovery of that server alone. Servers ignore parameters that they do not know.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;q=0.9";
const JSON: &str = "application/json";

/// A server to ask, under the name that people know it by.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) way: Https,
}

/// Asks all of them at the same time.
pub(crate) async fn ask_all(targets: &[Target]) -> Vec<Server> {
    join_all(targets.iter().map(Target::ask)).await
}

impl Target {
    async fn ask(&self) -> Server {
        let version = self.get("/version", JSON);
        let (version, api, apis) =
            join3(version, self.part(Part::Api), self.part(Part::Apis)).await;
        let answer = match (api, apis) {
            (Ok(api), Ok(apis)) => {
                let mut surface = Surface::default();
                surface.add(&api);
                surface.add(&apis);
                Answer::Serves(surface)
            }
            (Err(error), _) | (_, Err(error)) => Answer::None(format!("{error:#}")),
        };
        let release = version.ok().and_then(|answer| release(&answer.body));
        Server { name: self.name.clone(), release, answer, way: Some(self.way.clone()) }
    }

    async fn part(&self, part: Part) -> anyhow::Result<GroupList> {
        let answer = self.get(part.path(), ACCEPT).await?;
        let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !kind.is_some_and(|kind| kind.contains("APIGroupDiscoveryList")) {
            anyhow::bail!(
                "it has no aggregated discovery, which Kubernetes has since 1.26; ask through a \
                 gateway (--admin-socket)"
            );
        }
        let source = Source { server: &self.name, document: part.path() };
        Ok(GroupList::parse(source, part, answer.body, &Limits::default())?.value)
    }

    async fn get(&self, path: &str, accept: &str) -> anyhow::Result<https::Answer> {
        let answer = self.way.get(path, &[("accept", accept)]).await?;
        match refusal(answer.status, &answer.body) {
            None => Ok(answer),
            Some(problem) => Err(problem).with_context(|| path.to_owned()),
        }
    }
}

/// Why an answer is of no use, and what to do.
pub(crate) fn refusal(status: StatusCode, body: &Bytes) -> Option<Problem> {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let hint = match status {
        StatusCode::OK => return None,
        StatusCode::UNAUTHORIZED => "; the server rejects the credentials",
        StatusCode::FORBIDDEN => "; the user may not read it",
        _ => "",
    };
    let said =
        serde_json::from_slice::<Status>(body).map_or_else(|_| String::new(), |it| it.message);
    let said: String = said.chars().take(300).collect();
    let said = if said.is_empty() { said } else { format!(": {said}") };
    Some(format!("status {}{said}{hint}", status.as_u16()).into())
}

/// The release in a `/version` document. A server that emulates an older version has its APIs.
fn release(document: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        git_version: String,
        #[serde(default)]
        minor: String,
        #[serde(default)]
        emulation_major: String,
        #[serde(default)]
        emulation_minor: String,
    }
    let info: Info = serde_json::from_slice(document).ok()?;
    let emulates = !info.emulation_minor.is_empty() && info.emulation_minor != info.minor;
    Some(match emulates {
        true => {
            let Info { git_version, emulation_major, emulation_minor, .. } = info;
            format!("{emulation_major}.{emulation_minor} (emulated by {git_version})")
        }
        false => info.git_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_version_comes_first() {
        let plain = br#"{"major":"1","minor":"34","gitVersion":"v1.34.10"}"#;
        assert_eq!(release(plain).as_deref(), Some("v1.34.10"));
        let same =
            br#"{"minor":"36","gitVersion":"v1.36.4","emulationMajor":"1","emulationMinor":"36"}"#;
        assert_eq!(release(same).as_deref(), Some("v1.36.4"));
        let older =
            br#"{"minor":"36","gitVersion":"v1.36.4","emulationMajor":"1","emulationMinor":"34"}"#;
        assert_eq!(release(older).as_deref(), Some("1.34 (emulated by v1.36.4)"));
        assert_eq!(release(b"no JSON"), None);
    }

    #[test]
    fn a_refusal_has_the_words_of_the_server() {
        let body = Bytes::from_static(br#"{"kind":"Status","message":"pods is forbidden"}"#);
        let problem = refusal(StatusCode::FORBIDDEN, &body).unwrap().to_string();
        assert_eq!(problem, "status 403: pods is forbidden; the user may not read it");
        assert_eq!(refusal(StatusCode::OK, &body), None);
        let problem = refusal(StatusCode::BAD_GATEWAY, &Bytes::from_static(b"<html>")).unwrap();
        assert_eq!(problem.to_string(), "status 502");
    }
}
