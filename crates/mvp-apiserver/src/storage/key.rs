//! The keys of resources and objects. Entries: [`CollectionKey`], [`ObjectKey`].

use std::cmp::Ordering;

/// The group and plural name of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CollectionKey {
    pub(crate) group: String,
    pub(crate) resource: String,
}

/// The namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    /// The bytes of `namespace/name`, which is the key in etcd.
    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain(std::iter::once(b'/')).chain(self.name.bytes())
    }
}

/// The order of keys in etcd, so that lists have the order of real servers. Namespace `a-b` comes
/// before `a`, because `-` comes before `/`.
impl Ord for ObjectKey {
    fn cmp(&self, other: &ObjectKey) -> Ordering {
        let by_bytes = match self.namespace == other.namespace {
            true => self.name.cmp(&other.name),
            false => self.bytes().cmp(other.bytes()),
        };
        by_bytes.then_with(|| self.namespace.cmp(&other.namespace))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &ObjectKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_etcd() {
        let key = |(namespace, name): (&str, &str)| ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let ordered = [("", "a"), ("", "b"), ("a-b", "x"), ("a", "x"), ("a", "y"), ("ab", "c")];
        let keys = ordered.map(key);
        assert!(keys.is_sorted_by(|one, next| one < next));
    }
}
