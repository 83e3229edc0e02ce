//! Where groups are in a list, by name: a cluster can have thousands. Entry item: [`Places::find`].

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;

use super::Group;

/// The places of groups, found at the first question. They follow from the list, so that all are
/// equal, and a copy of a list finds its own.
#[derive(Debug, Default)]
pub(super) struct Places(OnceLock<HashMap<Arc<str>, usize>>);

/// Up to here a list is read from its start.
const FEW: usize = 32;

impl Places {
    /// The first group with this name.
    pub(super) fn find<'a>(&self, groups: &'a [Arc<Group>], name: &str) -> Option<&'a Arc<Group>> {
        let is_named = |group: &&Arc<Group>| &*group.name == name;
        if groups.len() <= FEW {
            return groups.iter().find(is_named);
        }
        let places = self.0.get_or_init(|| {
            // The first of two counts.
            let groups = groups.iter().enumerate().rev();
            groups.map(|(place, group)| (Arc::clone(&group.name), place)).collect()
        });
        groups.get(*places.get(name)?).filter(is_named)
    }
}

impl Clone for Places {
    fn clone(&self) -> Places {
        Places::default()
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Places) -> bool {
        true
    }
}

impl Eq for Places {}
