//! Reads of objects and collections.

use std::sync::Arc;

use http::{Response, StatusCode};

use super::Call;
use crate::render::{ListMetadata, Renderer};
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

    /// Returns one object in the requested version and form.
    pub(super) fn show(self, code: StatusCode, object: &Object) -> Response<Body> {
        let renderer = Renderer::new(self.target, self.form, self.custom);
        match renderer.check_object() {
            Ok(()) => respond::json(code, &renderer.object(&object.fields, true)),
            Err(failure) => failure.into_response(),
        }
    }

    /// Returns a collection in the requested version and form.
    pub(super) fn show_list(
        self,
        metadata: ListMetadata,
        objects: &[Arc<Object>],
    ) -> Response<Body> {
        let renderer = Renderer::new(self.target, self.form, self.custom);
        if let Err(failure) = renderer.check_list() {
            return failure.into_response();
        }
        let list = renderer.list(metadata, objects.iter().map(|object| &object.fields));
        respond::json(StatusCode::OK, &list)
    }
}
