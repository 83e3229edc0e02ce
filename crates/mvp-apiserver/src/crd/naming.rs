//! Accepts the names of a definition, or says which other definition has them. Entry: [`named`].

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::validate::{list, text};
use super::{condition_is_true, set_condition};
use crate::object;
use crate::storage::{Fields, Object};

/// A definition with its accepted names and conditions. `all` are the definitions of the cluster. The
/// plural name of a built-in resource of the group is taken, too.
pub(super) fn named(
    fields: &Fields,
    all: &[Arc<Object>],
    is_built_in: impl Fn(&str, &str) -> bool,
) -> Fields {
    let spec = fields.get("spec").and_then(Value::as_object);
    let names = spec.and_then(|spec| spec.get("names")?.as_object());
    let accepted = accepted_names(fields);
    if names.is_some() && names == accepted && has_condition(fields, "NamesAccepted") {
        return fields.clone();
    }
    let (mut resources, kinds) = taken(fields, text(spec, "group"), all);
    if is_built_in(text(spec, "group"), text(names, "plural")) {
        resources.insert(text(names, "plural"));
    }
    let mut conflict = None;
    let mut next = accepted.cloned().unwrap_or_default();
    let rules = [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ];
    for (key, reason, taken) in rules {
        let wanted = text(names, key);
        if wanted != text(accepted, key) && taken.contains(wanted) {
            conflict = Some((reason, format!("\"{wanted}\" is already in use")));
        } else {
            next.insert(key.to_owned(), wanted.into());
        }
    }
    let own: Vec<_> = list(accepted, "shortNames").iter().filter_map(Value::as_str).collect();
    let short = list(names, "shortNames").iter().filter_map(Value::as_str);
    let used = short.filter(|name| !own.contains(name) && resources.contains(*name));
    let used: Vec<_> = used.map(|name| format!("\"{name}\" is already in use")).collect();
    match used.as_slice() {
        [] => copy(&mut next, names, "shortNames"),
        [one] => conflict = Some(("ShortNamesConflict", one.clone())),
        more => conflict = Some(("ShortNamesConflict", format!("[{}]", more.join(", ")))),
    }
    copy(&mut next, names, "categories");

    let mut fields = fields.clone();
    if let Value::Object(status) = fields.entry("status").or_insert_with(|| json!({})) {
        status.insert("acceptedNames".to_owned(), next.into());
    }
    match &conflict {
        Some((reason, message)) => {
            set_condition(&mut fields, "NamesAccepted", "False", reason, message);
        }
        None => {
            let message = "no conflicts found";
            set_condition(&mut fields, "NamesAccepted", "True", "NoConflicts", message);
        }
    }
    if !condition_is_true(&fields, "Established") {
        let (reason, message) = match &conflict {
            None => ("Installing", "the initial names have been accepted"),
            Some(_) => ("NotAccepted", "not all names are accepted"),
        };
        set_condition(&mut fields, "Established", "False", reason, message);
    }
    fields
}

/// The names that other definitions of the group have: of resources, and of kinds.
fn taken<'o>(
    fields: &Fields,
    group: &str,
    all: &'o [Arc<Object>],
) -> (HashSet<&'o str>, HashSet<&'o str>) {
    let name = object::metadata_text(fields, "name");
    let (mut resources, mut kinds) = (HashSet::new(), HashSet::new());
    for other in all.iter().filter(|other| other.key.name != name) {
        let spec = other.fields.get("spec").and_then(Value::as_object);
        if text(spec, "group") != group {
            continue;
        }
        let names = accepted_names(&other.fields);
        resources.extend(["plural", "singular"].map(|key| text(names, key)));
        resources.extend(list(names, "shortNames").iter().filter_map(Value::as_str));
        kinds.extend(["kind", "listKind"].map(|key| text(names, key)));
    }
    resources.remove("");
    kinds.remove("");
    (resources, kinds)
}

fn accepted_names(fields: &Fields) -> Option<&Fields> {
    fields.get("status")?.get("acceptedNames")?.as_object()
}

fn has_condition(fields: &Fields, kind: &str) -> bool {
    let conditions = fields.get("status").and_then(|status| status.get("conditions")?.as_array());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.get("type").is_some_and(|value| value == kind))
}

fn copy(next: &mut Fields, names: Option<&Fields>, key: &str) {
    match names.and_then(|names| names.get(key)) {
        Some(value) => drop(next.insert(key.to_owned(), value.clone())),
        None => drop(next.remove(key)),
    }
}
