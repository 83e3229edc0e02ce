//! Objects that callers send: checked by their target, then by the schema of their kind. Entry:
//! [`Call::admit`].

use mvp_core::Verb;

use super::Call;
use crate::defaults;
use crate::fields;
use crate::object;
use crate::schema::Schema;
use crate::status::Failure;
use crate::storage::Fields;

impl Call<'_> {
    /// Validates an object. Unknown fields of built-in kinds are dropped; `fieldValidation` decides
    /// whether they are an error. Absent ones get their defaults. Custom resources get the shape of
    /// their schema. The result has no `apiVersion` and `kind`.
    pub(super) fn admit(self, sent: Fields) -> Result<Fields, Failure> {
        let mut sent = object::admit(self.target, sent)?;
        let built_in =
            |schema: &Schema<'_>| schema.keyword("x-kubernetes-group-version-kind").is_some();
        let Some(schema) = self.schema.filter(built_in) else {
            return self.shaped(sent);
        };
        let unknown = fields::decode(schema, &mut sent)
            .map_err(|mistyped| self.not_decoded(&mistyped.message()))?;
        defaults::set(&self.target.group.name, &self.target.resource.plural, &mut sent);
        let unknown: Vec<_> =
            unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        self.report_unknown(unknown)?;
        self.shaped(sent)
    }

    /// Reports unknown fields of an object, which have been dropped, as `fieldValidation` wants it.
    pub(super) fn report_unknown(self, unknown: Vec<String>) -> Result<(), Failure> {
        match self.query.get("fieldValidation") {
            "Ignore" => {}
            "Strict" if !unknown.is_empty() => {
                let why = format!("strict decoding error: {}", unknown.join(", "));
                return Err(self.not_decoded(&why));
            }
            _ => unknown.into_iter().for_each(|warning| self.warnings.push(warning)),
        }
        Ok(())
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
