//! Custom resources and their definitions, on their way into the storage. Entries: [`Call::shaped`],
//! [`Call::accepted`].

use mvp_core::Verb;

use super::Call;
use crate::crd;
use crate::object;
use crate::status::Failure;
use crate::storage::{Change, Fields, Object};

impl Call<'_> {
    /// An object that was sent, in the shape of its schema; a definition with its defaults.
    pub(super) fn shaped(self, mut fields: Fields) -> Result<Fields, Failure> {
        if crd::is_definition(self.target) {
            crd::warnings(&fields).into_iter().for_each(|warning| self.warnings.push(warning));
            return Ok(crd::prepared(fields));
        }
        let Some(custom) = self.custom else {
            return Ok(fields);
        };
        if self.target.verb == Verb::Create {
            self.check_not_terminating()?;
        }
        let (unknown, outcome) = custom.version.shape(&mut fields);
        outcome.map_err(|too_large| Failure::too_large_for(too_large.to_string()))?;
        let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        self.report_unknown(unknown)?;
        Ok(fields)
    }

    /// Checks that the definition of a custom resource does not end.
    pub(super) fn check_not_terminating(self) -> Result<(), Failure> {
        match self.custom {
            Some(custom) if custom.resource.terminating => Err(Failure::terminating(self.target)),
            _ => Ok(()),
        }
    }

    /// A change, if the object after it is valid.
    pub(super) fn accepted(
        self,
        change: Change,
        current: Option<&Object>,
    ) -> Result<Change, Failure> {
        let Change::Put(fields) = change else {
            return Ok(change);
        };
        let name = object::metadata_text(&fields, "name").to_owned();
        if crd::is_definition(self.target) {
            let checked = crd::checked(fields, current.map(|current| &current.fields));
            return checked
                .map(Change::Put)
                .map_err(|errors| Failure::invalid(self.target, &name, errors));
        }
        match self.custom.map(|custom| custom.version.check(&fields)) {
            Some(errors) if !errors.is_empty() => Err(Failure::invalid(self.target, &name, errors)),
            _ => Ok(Change::Put(fields)),
        }
    }

    /// Warns a caller of a deprecated version.
    pub(super) fn warn_of_deprecation(self) {
        let deprecation = self.custom.and_then(|custom| custom.version.deprecation.clone());
        deprecation.into_iter().for_each(|warning| self.warnings.push(warning));
    }
}
