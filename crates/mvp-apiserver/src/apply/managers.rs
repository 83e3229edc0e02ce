//! The managers of an object's fields, as `metadata.managedFields` lists them. Entry: [`Managers`].

use serde_json::{Map, Value, json};

use super::fields::FieldSet;

/// The kind of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// Who manages fields. An applier is the same one in every version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// A manager with its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// All managers of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Managers(pub(super) Vec<Entry>);

/// How many managers of updates an object has. Older ones become one.
const MOST_UPDATERS: usize = 10;

impl Manager {
    fn is(&self, other: &Manager) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

impl Managers {
    /// Reads `managedFields`. An error says what is malformed.
    pub(super) fn read(value: Option<&Value>) -> Result<Managers, String> {
        let entries = match value {
            None | Some(Value::Null) => return Ok(Managers::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("managedFields must be a list".to_owned()),
        };
        let read = |(place, entry): (usize, &Value)| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion").to_owned();
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            if text("fieldsType") != "FieldsV1" {
                return Err(format!("missing fieldsType in managed fields entry {place}"));
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => Some(FieldSet::default()),
                Some(fields) => FieldSet::from_json(fields),
            };
            let fields = fields.ok_or_else(|| format!("malformed fieldsV1 in entry {place}"))?;
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            let (name, subresource) = (text("manager").to_owned(), text("subresource").to_owned());
            let manager = Manager { name, operation, api_version, subresource };
            Ok(Entry { manager, time, fields })
        };
        entries.iter().enumerate().map(read).collect::<Result<_, _>>().map(Managers)
    }

    /// Writes `managedFields`; `None` without managers.
    pub(super) fn write(mut self) -> Option<Value> {
        self.0.sort_by(|left, right| {
            let key = |entry: &Entry| {
                let manager = entry.manager.clone();
                let time = entry.time.clone().unwrap_or_default();
                let rest = (manager.name, manager.api_version, manager.subresource);
                (manager.operation, time, rest)
            };
            key(left).cmp(&key(right))
        });
        let write = |entry: Entry| {
            let mut value = Map::new();
            value.insert("manager".to_owned(), entry.manager.name.into());
            let operation = format!("{:?}", entry.manager.operation);
            value.insert("operation".to_owned(), operation.into());
            value.insert("apiVersion".to_owned(), entry.manager.api_version.into());
            value.extend(entry.time.map(|time| ("time".to_owned(), time.into())));
            value.insert("fieldsType".to_owned(), "FieldsV1".into());
            value.insert("fieldsV1".to_owned(), entry.fields.to_json());
            if !entry.manager.subresource.is_empty() {
                value.insert("subresource".to_owned(), entry.manager.subresource.into());
            }
            Value::Object(value)
        };
        (!self.0.is_empty()).then(|| Value::Array(self.0.into_iter().map(write).collect()))
    }

    pub(super) fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.manager.is(manager))
    }

    /// The entry of a manager, which may be new.
    pub(super) fn entry(&mut self, manager: &Manager) -> &mut Entry {
        let place = self.0.iter().position(|entry| entry.manager.is(manager));
        let place = place.unwrap_or_else(|| {
            let fields = FieldSet::default();
            self.0.push(Entry { manager: manager.clone(), time: None, fields });
            self.0.len() - 1
        });
        #[allow(clippy::indexing_slicing, reason = "the place was found or just added")]
        &mut self.0[place]
    }

    /// The managers but one.
    pub(super) fn others<'a>(&'a self, manager: &'a Manager) -> impl Iterator<Item = &'a Entry> {
        self.0.iter().filter(|entry| !entry.manager.is(manager))
    }

    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// Merges the oldest managers of updates until there are few enough.
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters: Vec<Entry> = Vec::new();
        let is_updater = |entry: &Entry| entry.manager.operation == Operation::Update;
        if self.0.iter().filter(|entry| is_updater(entry)).count() <= MOST_UPDATERS {
            return;
        }
        self.0.retain(|entry| {
            let updates = is_updater(entry);
            updaters.extend(updates.then(|| entry.clone()));
            !updates
        });
        updaters.sort_by(|left, right| {
            (&left.time, &left.manager.name).cmp(&(&right.time, &right.manager.name))
        });
        let surplus = updaters.len() + 1 - MOST_UPDATERS;
        let mut rest = updaters.split_off(surplus);
        for old in updaters {
            let bucket = Manager {
                name: "ancient-changes".to_owned(),
                subresource: String::new(),
                ..old.manager
            };
            let place = rest.iter().position(|entry| entry.manager.is(&bucket));
            match place.and_then(|place| rest.get_mut(place)) {
                Some(entry) => {
                    entry.fields = std::mem::take(&mut entry.fields).union(&old.fields);
                    entry.time = old.time;
                }
                None => rest.push(Entry { manager: bucket, ..old }),
            }
        }
        self.0.extend(rest);
    }
}

/// Whether sent `managedFields` ask to forget all managers: an empty list, or one empty entry.
pub(super) fn asks_to_reset(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Array(entries)) => {
            entries.is_empty() || (entries.len() == 1 && entries.first() == Some(&json!({})))
        }
        _ => false,
    }
}
