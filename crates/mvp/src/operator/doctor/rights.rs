//! The rights of the user under which `mvp serve` asks the API server. Each is asked for with a
//! SelfSubjectAccessReview, which everybody may create and nobody stores. Entry: [`check`].

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use super::check::{Check, Group};
use super::probe::{Way, parsed};
use super::settings::Settings;
use crate::cli::MembershipSource;

const GROUP: Group = Group::Rights;
const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const FIX: &str = "kubectl apply -f deploy/rbac.yaml";

/// Something that `mvp serve` does at the API server.
struct Need {
    name: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: &'static str,
    object: &'static str,
    verbs: &'static [&'static str],
    /// What happens without it.
    without: &'static str,
    /// Whether `mvp serve` does not work without it.
    fatal: bool,
}

const LEASES: Need = Need {
    name: "Leases",
    group: "coordination.k8s.io",
    resource: "leases",
    namespace: "kube-system",
    object: "",
    verbs: &["list", "watch", "create", "patch", "delete"],
    without: "members cannot find each other by Leases, and /readyz fails",
    fatal: true,
};
const ENDPOINTS: Need = Need {
    name: "EndpointSlices",
    group: "discovery.k8s.io",
    resource: "endpointslices",
    namespace: "default",
    object: "",
    verbs: &["list", "watch"],
    without: "members cannot be found by EndpointSlices, and /readyz fails",
    fatal: true,
};
/// The same, if `--servers` are enough.
const MORE_SERVERS: Need = Need {
    without: "members are those of --servers only, and later servers are not found",
    fatal: false,
    ..ENDPOINTS
};
const API_SERVICES: Need = Need {
    name: "APIServices",
    group: "apiregistration.k8s.io",
    resource: "apiservices",
    namespace: "",
    object: "",
    verbs: &["list"],
    without: "404s of extension servers can become 503s",
    fatal: false,
};
const STORAGE_VERSIONS: Need = Need {
    name: "StorageVersions",
    group: "internal.apiserver.k8s.io",
    resource: "storageversions",
    namespace: "",
    object: "",
    verbs: &["list"],
    without: "APIs of a server that was never seen are 404, not 503",
    fatal: false,
};
const CONFIG_MAP: Need = Need {
    name: "authentication ConfigMap",
    group: "",
    resource: "configmaps",
    namespace: "kube-system",
    object: "extension-apiserver-authentication",
    verbs: &["get"],
    without: "headers in which servers read users, and that no flag of mvp names, reach them from \
              any caller",
    fatal: false,
};

/// Asks the server for each right that this configuration needs.
pub(crate) async fn check(settings: &Settings, way: &Way) -> Vec<Check> {
    if !way.is_vouched() {
        return vec![GROUP.skip("rights", "there is no usable proxy client certificate")];
    }
    let mut needs = vec![API_SERVICES, STORAGE_VERSIONS, CONFIG_MAP];
    if settings.finds_by(MembershipSource::Leases) {
        needs.push(LEASES);
    }
    if settings.finds_by(MembershipSource::Endpoints) {
        let optional = settings.config.as_ref().is_ok_and(|c| c.peers.endpoints_optional);
        needs.push(if optional { MORE_SERVERS } else { ENDPOINTS });
    }
    join_all(needs.iter().map(|need| asked(way, need))).await
}

async fn asked(way: &Way, need: &Need) -> Check {
    let reviews = need.verbs.iter().map(|verb| async move {
        let answer = way.review(PATH, &need.review(verb)).await;
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        match answer.status {
            StatusCode::CREATED | StatusCode::OK => Ok((*verb, parsed(&answer))),
            status => Err(format!("the server does not answer reviews: {status}")),
        }
    });
    let answers: Result<Vec<_>, String> = join_all(reviews).await.into_iter().collect();
    match answers {
        Ok(answers) => need.judged(&answers),
        Err(why) => GROUP.skip(need.name, why),
    }
}

impl Need {
    fn review(&self, verb: &str) -> Value {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": self.group,
                "resource": self.resource,
                "namespace": self.namespace,
                "name": self.object,
                "verb": verb,
            }},
        })
    }

    fn judged(&self, answers: &[(&str, Value)]) -> Check {
        let allowed =
            |answer: &Value| answer.pointer("/status/allowed").is_some_and(|value| value == true);
        let denied: Vec<&str> =
            answers.iter().filter(|(_, answer)| !allowed(answer)).map(|(verb, _)| *verb).collect();
        if denied.is_empty() {
            return GROUP.ok(self.name, self.verbs.join(", "));
        }
        let what = format!("may not {}: {}", denied.join(", "), self.without);
        match self.fatal {
            true => GROUP.fail(self.name, what, FIX),
            false => GROUP.warn(self.name, what, FIX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::doctor::check::Outcome;

    #[test]
    fn denied_verbs_are_named() {
        let answer = |allowed: bool| json!({"status": {"allowed": allowed}});
        let all = [("list", answer(true)), ("create", answer(true))];
        assert_eq!(LEASES.judged(&all).result, Outcome::Ok);
        let some = [("list", answer(true)), ("create", answer(false)), ("patch", json!(null))];
        let check = LEASES.judged(&some);
        assert_eq!(check.result, Outcome::Fail);
        assert!(check.detail.starts_with("may not create, patch: "), "{}", check.detail);
        assert_eq!(CONFIG_MAP.judged(&[("get", answer(false))]).result, Outcome::Warn);
    }
}
