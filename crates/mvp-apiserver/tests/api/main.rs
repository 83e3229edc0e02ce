//! Servers in process, without a socket: objects, watches, discovery and errors, as clients of a real
//! server see them.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod access;
mod announcements;
mod applies;
mod bodies;
mod controllers;
mod crds;
mod custom_objects;
mod defaults;
mod deletions;
mod discovery;
mod fields;
mod objects;
mod openapi;
mod pages;
mod patches;
mod properties;
mod refusals;
mod reviews;
mod sharing;
mod support;
mod tables;
mod taken_names;
mod watches;
mod writes;
