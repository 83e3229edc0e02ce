//! Reads of objects and collections.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;

use super::Call;
use crate::object::Rendered;
use crate::respond::{self, Body};
use crate::selector::Selector;
use crate::status::Failure;
use crate::storage::Object;

impl Call<'_> {
    pub(super) fn get(self) -> Result<Response<Body>, Failure> {
        let found = self.storage.get(&self.target.collection(), &self.target.key());
        let object = found.ok_or_else(|| Failure::not_found(self.target, &self.target.name))?;
        Ok(self.show(StatusCode::OK, &object))
    }

    pub(super) fn list(self) -> Result<Response<Body>, Failure> {
        self.query.number("resourceVersion")?;
        let selector = Selector::new(self.target, self.query)?;
        let (revision, mut objects) = self.storage.list(&self.target.collection());
        objects.retain(|object| selector.matches(object));
        Ok(self.show_list(revision, &objects))
    }

    /// Returns one object in the requested version.
    pub(super) fn show(self, code: StatusCode, object: &Object) -> Response<Body> {
        respond::json(code, &self.target.type_meta().render(&object.fields))
    }

    /// Returns a collection in the requested version.
    pub(super) fn show_list(self, revision: u64, objects: &[Arc<Object>]) -> Response<Body> {
        let type_meta = self.target.type_meta();
        let list = List {
            kind: format!("{}List", type_meta.kind),
            api_version: &type_meta.api_version,
            metadata: ListMetadata { resource_version: revision.to_string() },
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}
