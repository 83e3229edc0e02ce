//! Objects and lists in the form that the client wants. Entry: [`Renderer`].

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::crd::Custom;
use crate::form::{Form, MetaVersion};
use crate::object::{self, Rendered, TypeMeta};
use crate::route::Target;
use crate::stamp;
use crate::status::Failure;
use crate::storage::Fields;
use crate::table::{self, Columns, Printer};

/// Renders the objects of a target. It borrows nothing, so that a watch can hold it.
#[derive(Debug)]
pub(crate) struct Renderer {
    type_meta: TypeMeta,
    list_kind: String,
    form: Form,
    columns: Columns,
    custom: Option<Custom>,
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

impl Renderer {
    /// A renderer for a target. A list cannot be shown as one object, nor one object as a list.
    pub(crate) fn new(target: &Target<'_>, form: Form, custom: Option<&Custom>) -> Renderer {
        let subresource = target.subresource.map_or("", |subresource| &*subresource.name);
        let columns = match custom {
            Some(custom) => Columns::Custom(Arc::clone(&custom.version.columns)),
            None => {
                let (group, plural) = (&target.group.name, &target.resource.plural);
                Columns::BuiltIn(table::layout(group, plural, subresource))
            }
        };
        let list_kind = match custom {
            Some(custom) => custom.resource.list_kind.clone(),
            None => format!("{}List", target.resource.kind),
        };
        Renderer {
            type_meta: target.type_meta(),
            list_kind,
            form,
            columns,
            custom: custom.cloned(),
        }
    }

    /// A description of what objects look like, if other renderers with it render alike. Tables have
    /// ages, and the definition of a custom resource can change: they have none.
    pub(crate) fn shared_form(&self) -> Option<Arc<str>> {
        let is_alike = self.custom.is_none() && !matches!(self.form, Form::Table(..));
        is_alike.then(|| format!("{:?} {:?}", self.form, self.type_meta).into())
    }

    /// Checks that a list can be shown.
    pub(crate) fn check_list(&self) -> Result<(), Failure> {
        match self.form {
            Form::Metadata(_) => Err(Failure::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                self.list_kind
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that one object can be shown.
    pub(crate) fn check_object(&self) -> Result<(), Failure> {
        match self.form {
            Form::MetadataList(_) => Err(Failure::not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list \
                 ({})",
                self.type_meta.kind
            ))),
            _ => Ok(()),
        }
    }

    /// One object. `headers` is false for the later events of a watch, whose tables have no columns.
    pub(crate) fn object<'a>(&'a self, fields: &'a Fields, headers: bool) -> Shown<'a> {
        match self.form {
            Form::Whole => match self.shaped(fields) {
                Cow::Borrowed(fields) => Shown::Whole(self.type_meta.render(fields)),
                Cow::Owned(fields) => Shown::Other(json!(self.type_meta.render(&fields))),
            },
            Form::Metadata(version) | Form::MetadataList(version) => {
                Shown::Other(version.partial(fields))
            }
            Form::Table(version, include) => {
                let printer = self.printer(version, include);
                let revision = object::metadata_text(fields, "resourceVersion");
                let metadata = json!({ "resourceVersion": revision });
                let fields = self.shaped(fields);
                Shown::Other(table::render(&printer, metadata, headers, [&*fields]))
            }
        }
    }

    /// A list of objects.
    pub(crate) fn list<'a>(
        &'a self,
        metadata: ListMetadata,
        objects: impl IntoIterator<Item = &'a Fields>,
    ) -> ShownList<'a> {
        let objects = objects.into_iter();
        match self.form {
            Form::Whole => ShownList::Whole(List {
                kind: &self.list_kind,
                api_version: &self.type_meta.api_version,
                metadata,
                items: objects.map(|fields| self.object(fields, true)).collect(),
            }),
            Form::Metadata(version) | Form::MetadataList(version) => ShownList::Other(json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": version.api_version(),
                "metadata": metadata,
                "items": objects.map(|fields| version.partial(fields)).collect::<Vec<_>>(),
            })),
            Form::Table(version, include) => {
                let printer = self.printer(version, include);
                let objects: Vec<_> = objects.map(|fields| self.shaped(fields)).collect();
                let objects = objects.iter().map(|fields| &**fields);
                ShownList::Other(table::render(&printer, json!(metadata), true, objects))
            }
        }
    }

    /// A custom resource has the shape of the requested version, whichever version it was written in.
    fn shaped<'f>(&self, fields: &'f Fields) -> Cow<'f, Fields> {
        match &self.custom {
            None => Cow::Borrowed(fields),
            Some(custom) => {
                let mut fields = fields.clone();
                // A definition that changed can have too large defaults: a reader gets none of those.
                let _ = custom.version.shape(&mut fields);
                Cow::Owned(fields)
            }
        }
    }

    fn printer(&self, version: MetaVersion, include: crate::form::Include) -> Printer<'_> {
        Printer {
            version,
            include,
            columns: &self.columns,
            type_meta: &self.type_meta,
            now: stamp::now_seconds(),
        }
    }
}

/// A rendered object.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Shown<'a> {
    /// As it is.
    Whole(Rendered<'a>),
    /// In another form.
    Other(Value),
}

/// A rendered list.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ShownList<'a> {
    /// Of whole objects.
    Whole(List<'a>),
    /// In another form.
    Other(Value),
}

/// A list of whole objects.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: ListMetadata,
    items: Vec<Shown<'a>>,
}
