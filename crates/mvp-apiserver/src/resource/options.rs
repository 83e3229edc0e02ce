//! The options that all writes have. Entry: [`Call::check_write_options`].

use mvp_core::Verb;

use super::Call;
use crate::status::{Failure, OptionFault};

/// The longest name of a field manager.
const LONGEST_MANAGER: usize = 128;
const VALIDATIONS: [&str; 4] = ["", "Ignore", "Strict", "Warn"];

impl Call<'_> {
    /// Checks `dryRun`, `fieldManager` and `fieldValidation` of a write.
    pub(super) fn check_write_options(self) -> Result<(), Failure> {
        let kind = match self.target.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
            _ => return Ok(()),
        };
        let mut faults = Vec::new();
        if let Some(other) = self.query.all("dryRun").find(|value| !["", "All"].contains(value)) {
            faults.push(OptionFault::unsupported("dryRun", other, &["All"]));
        }
        if kind != "DeleteOptions" {
            faults.extend(manager_fault(self.query.get("fieldManager")));
            let validation = self.query.get("fieldValidation");
            if !VALIDATIONS.contains(&validation) {
                let fault = OptionFault::unsupported("fieldValidation", validation, &VALIDATIONS);
                faults.push(fault);
            }
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(Failure::invalid_options(kind, faults)),
        }
    }
}

fn manager_fault(manager: &str) -> Option<OptionFault> {
    if manager.len() > LONGEST_MANAGER {
        return Some(OptionFault {
            reason: "FieldValueTooLong",
            field: "fieldManager",
            message: format!("Too long: may not be more than {LONGEST_MANAGER} bytes"),
        });
    }
    let (position, wrong) = manager.char_indices().find(|(_, character)| character.is_control())?;
    let why = format!("invalid character U+{:04X} (at position {position})", u32::from(wrong));
    Some(OptionFault::invalid("fieldManager", &format!("{manager:?}"), &why))
}
