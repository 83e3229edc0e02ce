//! Reads of objects and collections.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;

use super::Call;
use crate::object::Rendered;
use crate::respond::{self, Body};
use crate::status::Failure;
use crate::storage::Object;

impl Call<'_> {
    pub(super) fn get(self) -> Result<Response<Body>, Failure> {
        if let Some(wanted) = self.query.number("resourceVersion")? {
            let current = self.storage.resource_version();
            if wanted > current {
                return Err(Failure::too_large_version(wanted, current));
            }
        }
        let found = self.storage.get(&self.target.collection(), &self.target.key());
        let object = found.ok_or_else(|| Failure::not_found(self.target, &self.target.name))?;
        Ok(self.show(StatusCode::OK, &object))
    }

    /// Returns one object in the requested version.
    pub(super) fn show(self, code: StatusCode, object: &Object) -> Response<Body> {
        respond::json(code, &self.target.type_meta().render(&object.fields))
    }

    /// Returns a collection in the requested version.
    pub(super) fn show_list(
        self,
        metadata: ListMetadata,
        objects: &[Arc<Object>],
    ) -> Response<Body> {
        let type_meta = self.target.type_meta();
        let list = List {
            kind: format!("{}List", type_meta.kind),
            api_version: &type_meta.api_version,
            metadata,
            items: objects.iter().map(|object| type_meta.render(&object.fields)).collect(),
        };
        respond::json(StatusCode::OK, &list)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: &'a str,
    metadata: ListMetadata,
    items: Vec<Rendered<'a>>,
}

/// The metadata of a list.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: String,
    /// The token of the next page.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub(crate) continue_token: String,
    /// The number of objects after this page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_item_count: Option<usize>,
}

impl ListMetadata {
    /// The metadata of a whole list.
    pub(crate) fn at(revision: u64) -> ListMetadata {
        ListMetadata { resource_version: revision.to_string(), ..ListMetadata::default() }
    }
}
