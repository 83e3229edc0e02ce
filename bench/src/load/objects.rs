//! Many objects at an embedded server: created, then listed whole and in pages. A list in which an
//! object is missing or twice is an error.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::sender::Sender;
use super::{Figures, Order, figure};
use crate::usage::Usage;

/// The requests under way while objects are created.
const AT_ONCE: usize = 32;

/// Creates this many ConfigMaps in the collection of the order, and lists them.
pub(super) async fn run(order: &Order, count: usize, page: usize) -> anyhow::Result<Figures> {
    let sender = Sender::connect(order, order.to).await?;
    let (before, started) = (Usage::of(&order.processes), Instant::now());
    let creations = (0..count).map(|index| create(&sender, &order.path, index));
    stream::iter(creations).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let created_seconds = started.elapsed().as_secs_f64();
    let cpu = Usage::of(&order.processes).cpu_seconds - before.cpu_seconds;

    let started = Instant::now();
    let list = sender.object("GET", &order.path, &Bytes::new()).await?;
    let list_seconds = started.elapsed().as_secs_f64();
    complete(&names(&list)?, count).context("the whole list")?;

    let started = Instant::now();
    let (paged, pages) = in_pages(&sender, &order.path, page).await?;
    let pages_seconds = started.elapsed().as_secs_f64();
    complete(&paged, count).context("the list in pages")?;
    Ok(Figures::from([
        ("objects".to_owned(), figure(count)),
        ("created_per_second".to_owned(), figure(count) / created_seconds),
        ("cpu_us_per_write".to_owned(), cpu * 1e6 / figure(count)),
        ("list_seconds".to_owned(), list_seconds),
        ("pages".to_owned(), figure(pages)),
        ("pages_seconds".to_owned(), pages_seconds),
    ]))
}

async fn create(sender: &Sender, path: &str, index: usize) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)},
        "data": {"index": index.to_string()},
    });
    sender.object("POST", path, &Bytes::from(object.to_string())).await.map(drop)
}

fn name(index: usize) -> String {
    format!("object-{index:06}")
}

/// The names in all pages, and the number of pages. They must be of one revision.
async fn in_pages(
    sender: &Sender,
    path: &str,
    limit: usize,
) -> anyhow::Result<(Vec<String>, usize)> {
    let (mut all, mut pages, mut revision) = (Vec::new(), 0, None);
    let mut next = format!("{path}?limit={limit}");
    loop {
        let page = sender.object("GET", &next, &Bytes::new()).await?;
        pages += 1;
        let names = names(&page)?;
        ensure!(names.len() <= limit, "a page has {} objects", names.len());
        all.extend(names);
        let metadata = |name: &str| page.get("metadata")?.get(name)?.as_str().map(str::to_owned);
        let this = metadata("resourceVersion");
        let of_one = revision.is_none() || revision == this;
        ensure!(of_one, "pages of the revisions {revision:?} and {this:?}");
        revision = this;
        match metadata("continue").filter(|token| !token.is_empty()) {
            Some(token) => next = format!("{path}?limit={limit}&continue={}", escaped(&token)),
            None => return Ok((all, pages)),
        }
    }
}

/// A token in a query: base64 has characters that mean something else there.
fn escaped(token: &str) -> String {
    token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")
}

/// The names of the created objects in a list, in its order.
fn names(list: &Value) -> anyhow::Result<Vec<String>> {
    let items = list.get("items").and_then(Value::as_array).context("no items")?;
    let name = |item: &Value| item.get("metadata")?.get("name")?.as_str().map(str::to_owned);
    let names: Option<Vec<String>> = items.iter().map(name).collect();
    let mut names = names.context("an object without a name")?;
    names.retain(|name| name.starts_with("object-"));
    Ok(names)
}

/// Fails unless every object is there once.
fn complete(names: &[String], count: usize) -> anyhow::Result<()> {
    let wanted: BTreeSet<String> = (0..count).map(name).collect();
    let found: BTreeSet<String> = names.iter().cloned().collect();
    let (missing, twice) = (wanted.difference(&found).count(), names.len() - found.len());
    ensure!(missing == 0 && twice == 0, "{missing} objects are missing, {twice} are twice");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_noticed_and_a_second_one_too() {
        let names = |indexes: &[usize]| indexes.iter().map(|at| name(*at)).collect::<Vec<_>>();
        assert!(complete(&names(&[0, 1, 2]), 3).is_ok());
        let said = complete(&names(&[0, 2, 2]), 3).expect_err("a gap").to_string();
        assert_eq!(said, "1 objects are missing, 1 are twice");
    }

    #[test]
    fn a_token_is_one_value_of_a_query() {
        assert_eq!(escaped("a+b/c=%"), "a%2Bb%2Fc%3D%25");
    }
}
