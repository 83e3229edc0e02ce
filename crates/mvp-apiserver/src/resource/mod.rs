//! The verbs of a resource. Entry: [`Call::serve`].

mod admit;
mod change;
mod custom;
mod delete;
mod list;
mod options;
mod ownership;
mod page;
mod read;
mod scale;
mod subresource;
mod watch;
mod write;

use bytes::Bytes;
use http::{HeaderMap, Response};
use mvp_core::Verb;

use crate::access::Access;
use crate::crd::Custom;
use crate::form::Form;
use crate::query::Query;
use crate::respond::Body;
use crate::review::Caller;
use crate::route::Target;
use crate::schema::Schema;
use crate::spec::GroupSpec;
use crate::status::Failure;
use crate::storage::Storage;
use crate::warning::Warnings;

/// A request for a served resource, with its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The groups that the server serves.
    pub(crate) groups: &'a [GroupSpec],
    pub(crate) target: &'a Target<'a>,
    pub(crate) access: Access,
    /// Who asks; `None` if nobody authenticates callers.
    pub(crate) caller: Option<&'a Caller>,
    /// The schema of the resource's objects, if it is known.
    pub(crate) schema: Option<Schema<'a>>,
    /// The custom resource, if it is one.
    pub(crate) custom: Option<&'a Custom>,
    pub(crate) warnings: &'a Warnings,
    pub(crate) storage: &'a Storage,
    pub(crate) query: &'a Query<'a>,
    pub(crate) form: Form,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
}

impl Call<'_> {
    /// Executes the request.
    pub(crate) fn serve(self) -> Result<Response<Body>, Failure> {
        self.check_write_options()?;
        self.warn_of_deprecation();
        if let Some(response) = self.serve_subresource() {
            return response;
        }
        match self.target.verb {
            Verb::Get => self.get(),
            Verb::List => self.list(),
            Verb::Watch => self.watch(),
            // Creating a subresource has a different meaning for each of them.
            Verb::Create if self.target.subresource.is_none() => self.create(),
            Verb::Update => self.update(),
            Verb::Patch => self.patch(),
            Verb::Delete if self.target.subresource.is_none() => self.delete(),
            Verb::DeleteCollection => self.delete_collection(),
            _ => Err(Failure::method_not_allowed()),
        }
    }
}
