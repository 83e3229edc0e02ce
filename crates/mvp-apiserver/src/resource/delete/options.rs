//! The options of a deletion, from its body or its query. Entry: [`DeleteOptions::parse`].

use serde_json::Value;

use super::super::Call;
use super::finalizers_of;
use crate::body;
use crate::object;
use crate::route::Target;
use crate::status::{Failure, OptionFault};
use crate::storage::{Fields, Object};

/// What a deletion requires and wants.
#[derive(Debug, Default)]
pub(super) struct DeleteOptions {
    pub(super) dry_run: bool,
    pub(super) grace_period: Option<i64>,
    propagation: Option<Propagation>,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    /// They are deleted first; until then, the object remains.
    Foreground,
    /// They are deleted later.
    Background,
    /// They stay, without their owner.
    Orphan,
}

/// The finalizer of an object whose dependents are deleted first.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
const ORPHAN: &str = "orphan";

impl DeleteOptions {
    pub(super) fn parse(call: Call<'_>) -> Result<DeleteOptions, Failure> {
        let query = call.query;
        if call.body.is_empty() {
            let number = query.get("gracePeriodSeconds");
            let grace_period = match number {
                "" => None,
                text => Some(text.parse().map_err(|_| malformed("gracePeriodSeconds"))?),
            };
            return Ok(DeleteOptions {
                dry_run: query.dry_run()?,
                grace_period,
                propagation: propagation(
                    Some(query.get("propagationPolicy")).filter(|policy| !policy.is_empty()),
                    query.flag("orphanDependents"),
                )?,
                uid: None,
                resource_version: None,
            });
        }
        let fields = body::object(call.headers, call.body)?;
        DeleteOptions::of(&fields, query.dry_run()?)
    }

    /// The options in a body.
    pub(super) fn of(fields: &Fields, is_dry_run: bool) -> Result<DeleteOptions, Failure> {
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !["", "DeleteOptions"].contains(&kind) {
            let message = "decoded object cannot be converted to DeleteOptions";
            return Err(Failure::bad_request(message));
        }
        let text = |name: &'static str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(malformed(name)),
        };
        let orphan = match fields.get("orphanDependents") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(orphan)) => Some(*orphan),
            Some(_) => return Err(malformed("orphanDependents")),
        };
        let grace_period = match fields.get("gracePeriodSeconds") {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_i64().ok_or_else(|| malformed("gracePeriodSeconds"))?),
        };
        let wanted = |name: &str| {
            let value = fields.get("preconditions").and_then(|wanted| wanted.get(name)?.as_str());
            value.map(str::to_owned)
        };
        Ok(DeleteOptions {
            dry_run: is_dry_run || dry_run(fields)?,
            grace_period,
            propagation: propagation(text("propagationPolicy")?, orphan)?,
            uid: wanted("uid"),
            resource_version: wanted("resourceVersion"),
        })
    }

    /// Checks that the object is the one that the caller means.
    pub(super) fn check_preconditions(
        &self,
        target: &Target<'_>,
        current: &Object,
    ) -> Result<(), Failure> {
        let checks = [
            ("UID", "uid", &self.uid, "deleted and then recreated"),
            ("ResourceVersion", "resourceVersion", &self.resource_version, "modified"),
        ];
        for (what, field, wanted, guess) in checks {
            let actual = object::metadata_text(&current.fields, field);
            if let Some(wanted) = wanted
                && wanted != actual
            {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record \
                     ({actual}). The object might have been {guess}"
                );
                return Err(Failure::conflict(target, &current.key.name, &why));
            }
        }
        Ok(())
    }

    /// The finalizers that the object has from now on.
    pub(super) fn finalizers(&self, fields: &Fields) -> Vec<String> {
        let mut finalizers = finalizers_of(fields);
        if let Some(propagation) = self.propagation {
            finalizers.retain(|name| name != FOREGROUND && name != ORPHAN);
            match propagation {
                Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
                Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
                Propagation::Background => {}
            }
        }
        finalizers
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Option<Propagation>, Failure> {
    let refused = |fault| Err(Failure::invalid_options("DeleteOptions", vec![fault]));
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let value = format!("\"{policy}\"");
        return refused(OptionFault::invalid("propagationPolicy", &value, why));
    }
    match (policy, orphan) {
        (Some("Foreground"), _) => Ok(Some(Propagation::Foreground)),
        (Some("Background"), _) | (None, Some(false)) => Ok(Some(Propagation::Background)),
        (Some("Orphan"), _) | (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (None, None) => Ok(None),
        (Some(other), _) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            refused(OptionFault::unsupported("propagationPolicy", other, &known))
        }
    }
}

fn dry_run(fields: &Fields) -> Result<bool, Failure> {
    match fields.get("dryRun") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Array(values)) => {
            let other = values.iter().find(|value| value.as_str() != Some("All"));
            match other {
                None => Ok(!values.is_empty()),
                Some(other) => {
                    let other = other.as_str().unwrap_or_default();
                    let fault = OptionFault::unsupported("dryRun", other, &["All"]);
                    Err(Failure::invalid_options("DeleteOptions", vec![fault]))
                }
            }
        }
        Some(_) => Err(malformed("dryRun")),
    }
}

fn malformed(field: &str) -> Failure {
    Failure::bad_request(format!("json: cannot unmarshal DeleteOptions.{field}"))
}
