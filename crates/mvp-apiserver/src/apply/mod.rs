//! Server-side apply, and who manages which field of an object. Entries: [`apply`], [`record`].
//!
//! [`types`] says which maps and lists have owners for their parts, [`walk`] compares objects,
//! [`merge`] changes them, [`fields`] is the set of fields of one of the [`managers`]. The rules are
//! those of Kubernetes' structured-merge-diff. Objects have one form for all versions here, so that the
//! fields of a manager are never converted.

mod fields;
mod managers;
mod merge;
mod types;
mod walk;

use serde_json::{Map, Value};

use self::fields::{FieldSet, show};
use self::managers::{Manager, Managers, Operation, asks_to_reset};
use self::types::Type;
use self::walk::{Difference, compare, fields_of};
use crate::schema::Schema;

/// The annotation of `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A write of an object: who writes what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// The name of the manager.
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The one top-level field that the request changes; empty if it changes more.
    pub(crate) only: &'a str,
    /// The top-level fields that only subresources change.
    pub(crate) separate: &'a [&'a str],
    pub(crate) schema: Option<Schema<'a>>,
    /// The current time, as in metadata.
    pub(crate) now: &'a str,
}

/// Why an object cannot be applied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others manage some of the fields: the message, and for each field who manages it.
    Conflicts(String, Vec<(String, String)>),
    /// The object does not fit its schema, or the managed fields are malformed.
    Malformed(String),
    /// The request is not one of apply.
    BadRequest(String),
}

/// Applies an object to the live one. Both have their `apiVersion` and `kind`. Returns the new object
/// with its `managedFields`.
pub(crate) fn apply(
    write: Write<'_>,
    live: &Value,
    applied: &Value,
    force: bool,
) -> Result<Value, Refusal> {
    if metadata(applied).is_some_and(|metadata| metadata.contains_key("managedFields")) {
        return Err(Refusal::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let kind = Type::of(write.schema);
    walk::check(applied, kind).map_err(|why| {
        Refusal::Malformed(format!(
            "failed to create typed patch object ({}): {why}",
            title(applied)
        ))
    })?;
    let mut live = live.clone();
    let managed = take_managed(&mut live);
    let managers = Managers::read(managed.as_ref())
        .map_err(|why| Refusal::Malformed(format!("failed to decode managed fields: {why}")))?;
    match write.try_apply(kind, &live, applied, managers.clone(), force) {
        Ok(object) => Ok(write.note_last_applied(object, applied)),
        Err(conflicts) => {
            let allowed = write.allowed_conflicts(kind, &live);
            let left: Vec<_> =
                conflicts.into_iter().filter(|(_, path)| !allowed.contains(path)).collect();
            if !left.is_empty() {
                return Err(refuse(&left));
            }
            let forced = write.try_apply(kind, &live, applied, managers, true);
            let object = forced.map_err(|conflicts| refuse(&conflicts))?;
            Ok(write.note_last_applied(object, applied))
        }
    }
}

/// Records the manager of an update. `new` is the object after the update, `live` the one before it,
/// `None` if it is created. Sets the `managedFields` of `new`.
pub(crate) fn record(write: Write<'_>, live: Option<&Value>, new: &mut Value) {
    let kind = Type::of(write.schema);
    let sent = take_managed(new);
    let mut live = live.cloned().unwrap_or_else(|| type_meta_of(new));
    let known = take_managed(&mut live);
    let known = || Managers::read(known.as_ref()).unwrap_or_default();
    let mut managers = match sent {
        _ if !write.subresource.is_empty() => known(),
        sent if asks_to_reset(sent.as_ref()) => Managers::default(),
        sent => match Managers::read(sent.as_ref()) {
            Ok(managers) if !managers.0.is_empty() => managers,
            _ => known(),
        },
    };
    // An object without managers gets them when it is created or first applied.
    let exists = metadata(&live).is_some_and(|metadata| metadata.contains_key("uid"));
    if !(exists && managers.0.is_empty()) {
        write.update(kind, &live, new, &mut managers);
        managers.cap_updaters();
    }
    put_managed(new, managers.write());
}

type Conflict = (Manager, Vec<String>);

impl Write<'_> {
    fn by(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    /// Gives the changed fields to the manager of an update.
    fn update(&self, kind: Type<'_>, live: &Value, new: &Value, managers: &mut Managers) {
        let Difference { added, modified, removed } = compare(live, new, kind);
        let changed = added.union(&modified);
        for entry in &mut managers.0 {
            entry.fields = entry.fields.difference(&changed).difference(&removed);
        }
        let own = without_metadata(self.relevant(changed));
        if !own.is_empty() {
            let entry = managers.entry(&self.by(self.manager, Operation::Update));
            entry.fields = std::mem::take(&mut entry.fields).union(&own);
            entry.time = Some(self.now.to_owned());
        }
        managers.drop_empty();
    }

    fn try_apply(
        &self,
        kind: Type<'_>,
        live: &Value,
        applied: &Value,
        mut managers: Managers,
        force: bool,
    ) -> Result<Value, Vec<Conflict>> {
        let me = self.by(self.manager, Operation::Apply);
        if managers.0.is_empty() {
            let before = Write { manager: "before-first-apply", ..*self };
            before.update(kind, &type_meta_of(live), live, &mut managers);
        }
        let last = managers.get(&me).map(|entry| entry.fields.clone()).unwrap_or_default();
        let entry = managers.entry(&me);
        entry.fields = self.relevant(fields_of(applied, kind));
        self.api_version.clone_into(&mut entry.manager.api_version);
        let merged = self.without_irrelevant(merge::merge(live, applied, kind), live);
        let mut new = prune(merged, kind, &managers, &last);

        let Difference { added, modified, removed } = compare(live, &new, kind);
        let changed = added.union(&modified);
        if !force {
            let conflicts: Vec<Conflict> = managers
                .others(&me)
                .flat_map(|entry| {
                    let paths = entry.fields.intersection(&changed).paths();
                    paths.into_iter().map(|path| (entry.manager.clone(), path))
                })
                .collect();
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        for entry in &mut managers.0 {
            if entry.manager != me {
                entry.fields = entry.fields.difference(&changed).difference(&removed);
            }
        }
        let entry = managers.entry(&me);
        entry.fields = without_metadata(std::mem::take(&mut entry.fields));
        if *live != new {
            entry.time = Some(self.now.to_owned());
        }
        managers.drop_empty();
        put_managed(&mut new, managers.write());
        Ok(new)
    }

    /// The fields that this request can change: a subresource changes its own field only.
    fn relevant(&self, mut set: FieldSet) -> FieldSet {
        set.retain(|step| {
            let name = step.strip_prefix("f:").unwrap_or_default();
            match self.only {
                "" => !self.separate.contains(&name),
                only => name == only,
            }
        });
        set
    }

    /// The merged object with the fields of the live one that this request cannot change.
    fn without_irrelevant(&self, mut merged: Value, live: &Value) -> Value {
        let Value::Object(fields) = &mut merged else { return merged };
        let names: Vec<String> = match self.only {
            "" => self.separate.iter().map(|name| (*name).to_owned()).collect(),
            only => {
                let own = ["apiVersion", "kind", "metadata", only];
                fields.keys().filter(|name| !own.contains(&name.as_str())).cloned().collect()
            }
        };
        for name in names {
            match live.get(&name) {
                Some(value) => drop(fields.insert(name, value.clone())),
                None => drop(fields.remove(&name)),
            }
        }
        merged
    }

    /// The fields that `kubectl apply` on the client's side set, and that still have that value:
    /// kubectl may take them over.
    fn allowed_conflicts(&self, kind: Type<'_>, live: &Value) -> FieldSet {
        let annotations = metadata(live).and_then(|metadata| metadata.get("annotations"));
        let text = annotations.and_then(|annotations| annotations.get(LAST_APPLIED)?.as_str());
        let last: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
        let last = last.filter(|last| last.get("apiVersion") == live.get("apiVersion"));
        match last {
            Some(last) if self.manager == "kubectl" => {
                let Difference { added, modified, removed } = compare(&last, live, kind);
                let changed = added.union(&modified).union(&removed);
                fields_of(&last, kind).difference(&changed)
            }
            _ => FieldSet::default(),
        }
    }

    /// Keeps the annotation of `kubectl apply` on the client's side true.
    fn note_last_applied(&self, mut object: Value, applied: &Value) -> Value {
        let pointer = "/metadata/annotations";
        if self.manager == "kubectl"
            && let Some(Value::Object(annotations)) = object.pointer_mut(pointer)
            && annotations.contains_key(LAST_APPLIED)
        {
            let mut applied = applied.clone();
            if let Some(Value::Object(annotations)) = applied.pointer_mut(pointer) {
                annotations.remove(LAST_APPLIED);
            }
            annotations.insert(LAST_APPLIED.to_owned(), format!("{applied}\n").into());
        }
        object
    }
}

/// Removes the fields that the manager applied before, and that nobody applies or owns now.
fn prune(merged: Value, kind: Type<'_>, managers: &Managers, last: &FieldSet) -> Value {
    if last.is_empty() {
        return merged;
    }
    let last = with_named(last, kind, 0);
    let named_fields = |value: &Value| with_named(&fields_of(value, kind), kind, 0);
    let all = named_fields(&merged);
    let pruned = merge::remove(&merged, &last, kind);
    // What somebody owns stays, ...
    let owned = managers.0.iter().fold(FieldSet::default(), |set, entry| set.union(&entry.fields));
    let kept = named_fields(&pruned).union(&with_named(&owned, kind, 0));
    let pruned = merge::remove(&merged, &all.difference(&kept), kind);
    // ... and so does what the manager did not own before.
    let gone = all.difference(&named_fields(&pruned)).intersection(&last);
    merge::remove(&merged, &gone, kind)
}

/// The set with the fields of structs that have fields in it.
fn with_named(set: &FieldSet, kind: Type<'_>, depth: usize) -> FieldSet {
    set.map_steps(|step, inner| {
        let (named, below) = match step.split_once(':') {
            Some(("f", name)) => {
                let is_root = depth == 0 && name == "metadata";
                (kind.declares(name) || is_root, walk::type_at(kind, depth, name))
            }
            Some(("k", _)) => (false, kind.list_rule().elements()),
            _ => (false, Type::Undeclared),
        };
        (named, with_named(inner, below, depth + 1))
    })
}

/// A set without the fields that nobody manages.
fn without_metadata(set: FieldSet) -> FieldSet {
    const NOBODYS: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut strip = FieldSet::default();
    let step = |name: &str| fields::field_step(name);
    for name in ["apiVersion", "kind", "metadata"] {
        strip.insert(&[step(name)]);
    }
    for name in NOBODYS {
        strip.insert(&[step("metadata"), step(name)]);
    }
    set.difference(&strip)
}

fn refuse(conflicts: &[Conflict]) -> Refusal {
    let quoted = |manager: &Manager| {
        let mut text = format!("\"{}\"", manager.name);
        if !manager.subresource.is_empty() {
            text.push_str(&format!(" with subresource \"{}\"", manager.subresource));
        }
        if manager.operation == Operation::Update {
            text.push_str(&format!(" using {}", manager.api_version));
        }
        text
    };
    let causes: Vec<_> =
        conflicts.iter().map(|(manager, path)| (quoted(manager), show(path))).collect();
    let message = match causes.as_slice() {
        [(manager, path)] => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
        }
        causes => {
            let mut lines: Vec<String> = Vec::new();
            let mut names: Vec<&String> = causes.iter().map(|(manager, _)| manager).collect();
            names.sort();
            names.dedup();
            for name in names {
                lines.push(format!("conflicts with {name}:"));
                let theirs = causes.iter().filter(|(manager, _)| manager == name);
                lines.extend(theirs.map(|(_, path)| format!("- {path}")));
            }
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    Refusal::Conflicts(message, causes)
}

/// `default/web; apps/v1, Kind=Deployment`.
fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    format!("{namespace}/{name}; {version}, Kind={kind}")
}

/// An object without any other fields than its version and kind.
fn type_meta_of(object: &Value) -> Value {
    let field = |key: &str| Some((key.to_owned(), object.get(key)?.clone()));
    Value::Object(["apiVersion", "kind"].into_iter().filter_map(field).collect())
}

fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed(object: &mut Value, managed: Option<Value>) {
    if let Some(managed) = managed
        && let Value::Object(fields) = object
        && let Value::Object(metadata) =
            fields.entry("metadata").or_insert_with(|| Map::new().into())
    {
        metadata.insert("managedFields".to_owned(), managed);
    }
}

#[cfg(test)]
mod tests;
