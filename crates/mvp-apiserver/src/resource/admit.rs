//! Objects that callers send: checked by their target, then by the schema of their kind. Entry:
//! [`Call::admit`].

use http::Response;
use http::header::{HeaderValue, WARNING};
use mvp_core::Verb;

use super::Call;
use crate::defaults;
use crate::fields;
use crate::object;
use crate::respond::Body;
use crate::schema::Schema;
use crate::status::Failure;
use crate::storage::Fields;

/// Remarks about an object that was accepted, for the `Warning` header.
#[derive(Debug, Default)]
pub(super) struct Warnings(Vec<String>);

impl Warnings {
    /// Adds the remarks to a response.
    pub(super) fn add_to(self, mut response: Response<Body>) -> Response<Body> {
        for text in self.0 {
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::try_from(format!("299 - \"{quoted}\"")) {
                response.headers_mut().append(WARNING, value);
            }
        }
        response
    }
}

impl Call<'_> {
    /// Validates an object. Unknown fields of built-in kinds are dropped; `fieldValidation` decides
    /// whether they are an error. Absent ones get their defaults. The result has no `apiVersion` and `kind`.
    pub(super) fn admit(self, sent: Fields) -> Result<(Fields, Warnings), Failure> {
        let mut sent = object::admit(self.target, sent)?;
        let built_in =
            |schema: &Schema<'_>| schema.keyword("x-kubernetes-group-version-kind").is_some();
        let Some(schema) = self.schema.filter(built_in) else {
            return Ok((sent, Warnings::default()));
        };
        let unknown = fields::decode(schema, &mut sent)
            .map_err(|mistyped| self.not_decoded(&mistyped.message()))?;
        defaults::set(&self.target.group.name, &self.target.resource.plural, &mut sent);
        let unknown: Vec<_> =
            unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        match self.query.get("fieldValidation") {
            "Ignore" => Ok((sent, Warnings::default())),
            "Strict" if !unknown.is_empty() => {
                Err(self.not_decoded(&format!("strict decoding error: {}", unknown.join(", "))))
            }
            _ => Ok((sent, Warnings(unknown))),
        }
    }

    fn not_decoded(self, why: &str) -> Failure {
        let (kind, version) = (&self.target.resource.kind, self.target.version);
        match self.target.verb {
            Verb::Patch => Failure::invalid_patch(&String::from_utf8_lossy(self.body), why),
            _ => Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            )),
        }
    }
}
