//! The reviews of what a caller may do. Entry: [`Review::own_access`].

use serde_json::{Value, json};

use super::{Caller, Review};
use crate::access::Attributes;
use crate::status::{Failure, OptionFault};
use crate::storage::Fields;

/// The verbs of resources, as authorizers name them.
const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The methods of other paths.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

impl Review<'_> {
    /// What the caller itself may do.
    pub(super) fn own_access(&self) -> Result<(Option<Fields>, Value), Failure> {
        let spec = self.spec()?;
        let status = self.decide(&spec, &self.caller())?;
        Ok((Some(spec), status))
    }

    /// What another user may do.
    pub(super) fn access_of_others(&self) -> Result<(Option<Fields>, Value), Failure> {
        let spec = self.spec()?;
        let groups = spec.get("groups").or_else(|| spec.get("group")).and_then(Value::as_array);
        let groups = groups.into_iter().flatten().filter_map(Value::as_str);
        let caller = Caller {
            name: text(&spec, "user").to_owned(),
            groups: groups.map(str::to_owned).collect(),
        };
        if caller.name.is_empty() && caller.groups.is_empty() {
            let why = "at least one of user or group must be specified";
            return Err(self.invalid(OptionFault::invalid("spec.user", "\"\"", why)));
        }
        if self.target.resource.namespaced {
            let namespace = spec.get("resourceAttributes").and_then(Value::as_object);
            let namespace = namespace.map_or("", |attributes| text(attributes, "namespace"));
            if namespace != self.target.namespace {
                let field = "spec.resourceAttributes.namespace";
                let why = "must match metadata.namespace";
                let value = format!("\"{namespace}\"");
                return Err(self.invalid(OptionFault::invalid(field, &value, why)));
            }
        }
        let status = self.decide(&spec, &caller)?;
        Ok((Some(spec), status))
    }

    /// Everything that the caller may do.
    pub(super) fn own_rules(&self) -> Result<(Option<Fields>, Value), Failure> {
        let spec = self.spec()?;
        let namespace = text(&spec, "namespace");
        if namespace.is_empty() {
            return Err(Failure::bad_request("no namespace on request"));
        }
        let caller = self.caller();
        let verbs = |verbs: &[&'static str],
                     wanted: &dyn Fn(&'static str) -> Attributes<'static>| {
            let allowed: Vec<_> =
                verbs.iter().copied().filter(|verb| (self.allows)(&caller, wanted(verb))).collect();
            if allowed.len() == verbs.len() { vec!["*"] } else { allowed }
        };
        let any = |verb| Attributes::Resource {
            verb,
            group: "*",
            resource: "*",
            subresource: "",
            namespace: "*",
            name: "",
        };
        let resources = match verbs(&VERBS, &any) {
            verbs if verbs.is_empty() => json!([]),
            verbs => json!([{ "verbs": verbs, "apiGroups": ["*"], "resources": ["*"] }]),
        };
        let mut paths = Vec::new();
        for path in ["*", "/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version"]
        {
            let verbs = verbs(&METHODS, &|verb| Attributes::Path { verb, path });
            let all = path == "*";
            if !verbs.is_empty() {
                paths.push(json!({ "verbs": verbs, "nonResourceURLs": [path] }));
                if all {
                    break;
                }
            }
        }
        let status =
            json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false });
        Ok((Some(spec), status))
    }

    /// The `status` of an access review.
    fn decide(&self, spec: &Fields, caller: &Caller) -> Result<Value, Failure> {
        let part = |name: &str| spec.get(name).and_then(Value::as_object);
        let wanted = match (part("resourceAttributes"), part("nonResourceAttributes")) {
            (Some(wanted), None) => Attributes::Resource {
                verb: text(wanted, "verb"),
                group: text(wanted, "group"),
                resource: text(wanted, "resource"),
                subresource: text(wanted, "subresource"),
                namespace: text(wanted, "namespace"),
                name: text(wanted, "name"),
            },
            (None, Some(wanted)) => {
                Attributes::Path { verb: text(wanted, "verb"), path: text(wanted, "path") }
            }
            (None, None) => {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be \
                           specified";
                let field = "spec.resourceAttributes";
                return Err(self.invalid(OptionFault::invalid(field, "null", why)));
            }
            (Some(_), Some(_)) => {
                let why = "cannot be specified in combination with resourceAttributes";
                let field = "spec.nonResourceAttributes";
                return Err(self.invalid(OptionFault::invalid(field, "{}", why)));
            }
        };
        Ok(json!({ "allowed": (self.allows)(caller, wanted) }))
    }

    fn invalid(&self, fault: OptionFault) -> Failure {
        let kind = &self.target.resource.kind;
        Failure::invalid_of(kind, &self.target.group.name, "", vec![fault])
    }
}

fn text<'a>(fields: &'a Fields, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}
