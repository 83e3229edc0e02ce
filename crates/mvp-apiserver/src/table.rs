//! Objects as a `Table`, the form that `kubectl get` asks for. Entry: [`render`].
//!
//! Columns and cells of built-in kinds follow Kubernetes' printers ([`layout`]); other kinds have a name
//! and the time of their creation. Columns have no descriptions.

pub(crate) mod age;
mod autoscaling;
mod cell;
mod cluster;
mod events;
mod layout;
mod networking;
mod nodes;
mod pods;
mod storage;
mod workloads;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::crd::CustomColumn;
use crate::form::{Include, MetaVersion};
use crate::object::TypeMeta;
use crate::storage::Fields;
use cell::{Column, View};
pub(crate) use layout::layout;

/// How to print a table.
#[derive(Debug)]
pub(crate) struct Printer<'a> {
    /// The version of the table.
    pub(crate) version: MetaVersion,
    /// What the rows have of their objects.
    pub(crate) include: Include,
    /// The columns.
    pub(crate) columns: &'a Columns,
    /// The version and kind of the objects.
    pub(crate) type_meta: &'a TypeMeta,
    /// The current time, in seconds since 1970.
    pub(crate) now: i64,
}

/// The columns of a resource.
#[derive(Debug, Clone)]
pub(crate) enum Columns {
    /// Of a built-in resource.
    BuiltIn(&'static [Column]),
    /// Of a custom resource, after its name.
    Custom(Arc<[CustomColumn]>),
}

/// Prints objects as a table. `metadata` is that of the list; `headers` is false for the later events of
/// a watch.
pub(crate) fn render<'f>(
    printer: &Printer<'_>,
    metadata: Value,
    headers: bool,
    objects: impl IntoIterator<Item = &'f Fields>,
) -> Value {
    let headers = headers.then(|| printer.columns.definitions());
    json!({
        "kind": "Table",
        "apiVersion": printer.version.api_version(),
        "metadata": metadata,
        "columnDefinitions": headers,
        "rows": objects.into_iter().map(|fields| row(printer, fields)).collect::<Vec<_>>(),
    })
}

impl Columns {
    fn definitions(&self) -> Vec<Value> {
        match self {
            Columns::BuiltIn(columns) => columns.iter().map(definition).collect(),
            Columns::Custom(columns) => {
                let name = std::iter::once(definition(&cell::NAME));
                name.chain(columns.iter().map(CustomColumn::definition)).collect()
            }
        }
    }

    fn cells(&self, view: &View<'_>) -> Vec<Value> {
        match self {
            Columns::BuiltIn(columns) => columns.iter().map(|column| column.print(view)).collect(),
            Columns::Custom(columns) => {
                let name = std::iter::once(view.name().into());
                let cells = columns.iter().map(|column| column.print(view.fields, view.now));
                name.chain(cells).collect()
            }
        }
    }
}

fn row(printer: &Printer<'_>, fields: &Fields) -> Value {
    let view = View { fields, now: printer.now };
    let cells = printer.columns.cells(&view);
    let object = match printer.include {
        Include::None => Value::Null,
        Include::Metadata => printer.version.partial(fields),
        Include::Object => json!(printer.type_meta.render(fields)),
    };
    let mut row = json!({ "cells": cells, "object": object });
    if let (Value::Object(row), Some(condition)) = (&mut row, pods::completed(printer, &view)) {
        row.insert("conditions".to_owned(), json!([condition]));
    }
    row
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": "",
        "priority": column.priority,
    })
}

#[cfg(test)]
mod tests;
