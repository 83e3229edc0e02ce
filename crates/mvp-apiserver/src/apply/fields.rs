//! Sets of fields, as `FieldsV1` writes them. Entry: [`FieldSet`].
//!
//! A step of a path has the form of `FieldsV1`: `f:<name>` for a field, `k:<json>` for the element of a
//! list with these keys, `v:<json>` for the element of a set. The step `.` stands for the path itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FieldSet(BTreeMap<String, Node>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    /// Whether the path itself is in the set.
    member: bool,
    children: FieldSet,
}

/// The deepest set that a caller may send.
const DEEPEST: usize = 128;

/// The step of a field.
pub(super) fn field_step(name: &str) -> String {
    format!("f:{name}")
}

impl FieldSet {
    /// Adds a path. The empty path stands for the whole object, which nobody owns.
    pub(super) fn insert(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.0.entry(first.clone()).or_default();
        match rest {
            [] => node.member = true,
            rest => node.children.insert(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(|node| !node.member && node.children.is_empty())
    }

    /// Whether a path of one step is in the set.
    pub(super) fn has(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|node| node.member)
    }

    pub(super) fn contains(&self, path: &[String]) -> bool {
        match path {
            [] => false,
            [only] => self.has(only),
            [first, rest @ ..] => self.under(first).is_some_and(|set| set.contains(rest)),
        }
    }

    /// The paths behind a step, if there are any.
    pub(super) fn under(&self, step: &str) -> Option<&FieldSet> {
        self.0.get(step).map(|node| &node.children).filter(|set| !set.is_empty())
    }

    pub(super) fn union(mut self, other: &FieldSet) -> FieldSet {
        for (step, node) in &other.0 {
            let mine = self.0.entry(step.clone()).or_default();
            mine.member |= node.member;
            mine.children = std::mem::take(&mut mine.children).union(&node.children);
        }
        self
    }

    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let both = self.0.iter().filter_map(|(step, node)| Some((step, node, other.0.get(step)?)));
        FieldSet::of(both.map(|(step, mine, theirs)| {
            let children = mine.children.intersection(&theirs.children);
            (step.clone(), Node { member: mine.member && theirs.member, children })
        }))
    }

    /// The paths that are not in another set. A path stays when only its parent is in the other set.
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        FieldSet::of(self.0.iter().map(|(step, mine)| {
            let node = match other.0.get(step) {
                None => mine.clone(),
                Some(theirs) => Node {
                    member: mine.member && !theirs.member,
                    children: mine.children.difference(&theirs.children),
                },
            };
            (step.clone(), node)
        }))
    }

    /// Keeps the first steps that fit.
    pub(super) fn retain(&mut self, mut fits: impl FnMut(&str) -> bool) {
        self.0.retain(|step, _| fits(step));
    }

    /// Adds the steps that have paths behind them and fit, and does the same in each of them.
    /// `visit` gets a step and returns whether it fits, and the set behind it.
    pub(super) fn map_steps(
        &self,
        mut visit: impl FnMut(&str, &FieldSet) -> (bool, FieldSet),
    ) -> FieldSet {
        FieldSet::of(self.0.iter().map(|(step, node)| {
            let (fits, children) = visit(step, &node.children);
            let member = node.member || (fits && !node.children.is_empty());
            (step.clone(), Node { member, children })
        }))
    }

    /// All paths, those of a level before deeper ones.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        for (step, _) in self.0.iter().filter(|(_, node)| node.member) {
            paths.push(prefix.iter().chain([step]).cloned().collect());
        }
        for (step, node) in &self.0 {
            prefix.push(step.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }

    fn of(nodes: impl Iterator<Item = (String, Node)>) -> FieldSet {
        FieldSet(nodes.filter(|(_, node)| node.member || !node.children.is_empty()).collect())
    }

    /// The set as `FieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let nodes = self.0.iter().map(|(step, node)| {
            let mut value = node.children.to_json();
            if let Value::Object(fields) = &mut value
                && node.member
                && !fields.is_empty()
            {
                fields.insert(".".to_owned(), Map::new().into());
            }
            (step.clone(), value)
        });
        Value::Object(nodes.collect())
    }

    /// Reads `FieldsV1`; `None` if it is malformed.
    pub(super) fn from_json(value: &Value) -> Option<FieldSet> {
        FieldSet::read(value, DEEPEST)
    }

    fn read(value: &Value, depth: usize) -> Option<FieldSet> {
        let depth = depth.checked_sub(1)?;
        let mut set = FieldSet::default();
        for (step, inner) in value.as_object()?.iter().filter(|(step, _)| *step != ".") {
            let inner_fields = inner.as_object()?;
            let member = inner_fields.is_empty() || inner_fields.contains_key(".");
            let node = Node { member, children: FieldSet::read(inner, depth)? };
            set.0.insert(canonical(step)?, node);
        }
        Some(set)
    }
}

/// A step with its JSON as this server writes it.
fn canonical(step: &str) -> Option<String> {
    match step.split_once(':')? {
        ("f", _) => Some(step.to_owned()),
        ("i", index) => index.parse::<u64>().ok().map(|_| step.to_owned()),
        ("k", keys) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
            Some(key_step(keys))
        }
        ("v", value) => {
            let value: Value = serde_json::from_str(value).ok()?;
            Some(value_step(&value))
        }
        _ => None,
    }
}

/// The step of the element of a list with these keys.
pub(super) fn key_step(keys: Map<String, Value>) -> String {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by(|(left, _), (right, _)| left.cmp(right));
    let keys: Map<String, Value> = keys.into_iter().collect();
    format!("k:{}", Value::Object(keys))
}

/// The step of the element of a set.
pub(super) fn value_step(value: &Value) -> String {
    format!("v:{value}")
}

/// A path as errors show it: `.spec.ports[port=80,protocol="TCP"].name`.
pub(super) fn show(path: &[String]) -> String {
    path.iter().map(|step| show_step(step)).collect()
}

fn show_step(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let mut keys: Vec<_> =
                keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            keys.sort();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, index)) => format!("[{index}]"),
        None => step.to_owned(),
    }
}
