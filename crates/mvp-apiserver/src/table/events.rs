//! Columns of events. Their fields have other names in `events.k8s.io`. Entry: [`EVENTS`].

use serde_json::Value;

use super::cell::{Cell, Column, NAME, View, text, text_of};

pub(super) const EVENTS: &[Column] = &[
    text("Last Seen", Cell::Computed(last_seen)),
    text("Type", Cell::Text("type", "")),
    text("Reason", Cell::Text("reason", "")),
    text("Object", Cell::Computed(subject)),
    text("Subobject", Cell::Computed(subobject)).wide(),
    text("Source", Cell::Computed(source)).wide(),
    text("Message", Cell::Computed(message)),
    text("First Seen", Cell::Computed(|view| first_seen(view).into())).wide(),
    text("Count", Cell::Computed(count)).wide(),
    NAME.wide(),
];

fn first_seen(view: &View<'_>) -> String {
    let timestamps = ["firstTimestamp", "deprecatedFirstTimestamp"];
    let known = timestamps.into_iter().find(|path| !view.text(path).is_empty());
    view.since(known.unwrap_or("eventTime"))
}

fn last_seen(view: &View<'_>) -> Value {
    if view.at("series").is_some() {
        return view.since("series.lastObservedTime").into();
    }
    let timestamps = ["lastTimestamp", "deprecatedLastTimestamp"];
    match timestamps.into_iter().find(|path| !view.text(path).is_empty()) {
        Some(path) => view.since(path).into(),
        None => first_seen(view).into(),
    }
}

fn count(view: &View<'_>) -> Value {
    if view.at("series").is_some() {
        return view.integer("series.count").into();
    }
    match view.integer_or("count", view.integer("deprecatedCount")) {
        // A single event has no count.
        0 => 1.into(),
        count => count.into(),
    }
}

fn involved<'a>(view: &View<'a>, field: &str) -> &'a str {
    let object = view.at("involvedObject").or_else(|| view.at("regarding"));
    object.map_or("", |object| text_of(object, field))
}

fn subject(view: &View<'_>) -> Value {
    let kind = involved(view, "kind").to_lowercase();
    match involved(view, "name") {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn subobject(view: &View<'_>) -> Value {
    involved(view, "fieldPath").into()
}

fn source(view: &View<'_>) -> Value {
    let first = |paths: [&str; 4]| {
        paths.map(|path| view.text(path)).into_iter().find(|text| !text.is_empty())
    };
    let component = first([
        "source.component",
        "deprecatedSource.component",
        "reportingComponent",
        "reportingController",
    ]);
    let host = first(["source.host", "deprecatedSource.host", "reportingInstance", ""]);
    let component = component.unwrap_or_default();
    match host {
        Some(host) => format!("{component}, {host}").into(),
        None => component.into(),
    }
}

fn message(view: &View<'_>) -> Value {
    view.text_or("message", view.text("note")).trim().into()
}
