//! Selection of objects by label, field, namespace and name. Entry: [`Selector`].

mod fields;
mod labels;

use fields::FieldTerm;
use labels::LabelTerm;

use crate::object;
use crate::query::Query;
use crate::route::Target;
use crate::status::Failure;
use crate::storage::Object;

/// The selection of objects in a collection.
#[derive(Debug)]
pub(crate) struct Selector {
    namespace: String,
    name: String,
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
}

impl Selector {
    /// Parses the selectors of a request.
    pub(crate) fn new(target: &Target<'_>, query: &Query<'_>) -> Result<Selector, Failure> {
        let labels = labels::parse(query.get("labelSelector"))
            .map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = fields::parse(target, query.get("fieldSelector"))?;
        // The name of a request for a collection may come from the selector; then it adds nothing.
        Ok(Selector {
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            labels,
            fields,
        })
    }

    /// Whether neither labels nor fields restrict the selection.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        let key = &object.key;
        let here = (self.namespace.is_empty() || self.namespace == key.namespace)
            && (self.name.is_empty() || self.name == key.name);
        let labels = object::metadata_of(&object.fields)
            .and_then(|metadata| metadata.get("labels").and_then(serde_json::Value::as_object));
        let label = |key: &str| labels?.get(key)?.as_str();
        here && self.labels.iter().all(|term| term.holds(label(&term.key)))
            && self.fields.iter().all(|term| term.holds(object))
    }
}
