//! The APIs of servers side by side. Entry: [`rows`].

use mvp_core::VerbSet;

use super::server::{Server, together};
use super::surface::Api;

/// An API, and what each server does with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) api: Api,
    /// The verbs of all servers together.
    pub(crate) all: VerbSet,
    /// One for each server, in their order.
    pub(crate) cells: Vec<Served>,
}

impl Row {
    /// Whether all servers that answered serve it alike.
    pub(crate) fn is_alike(&self) -> bool {
        let mut known = self.cells.iter().filter(|cell| **cell != Served::Unknown);
        let first = known.next();
        known.all(|cell| Some(cell) == first)
    }
}

/// What one server does with an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// The server did not answer.
    Unknown,
    No,
    Yes(VerbSet),
}

/// The APIs that differ between servers, or all of them; sorted by group, version and name.
///
/// A subresource differs only among servers that have its resource: a missing resource is one row.
pub(crate) fn rows(servers: &[Server], all_apis: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (api, all) in together(servers).iter() {
        let served = |server: &Server| match server.surface() {
            None => Served::Unknown,
            Some(surface) => surface.verbs(api).map_or(Served::No, Served::Yes),
        };
        let parent = api.parent();
        let counts = |server: &&Server| {
            server.surface().is_some_and(|known| known.has(&parent) || *api == parent)
        };
        let mut counted = servers.iter().filter(counts).map(served);
        let first = counted.next();
        if all_apis || counted.any(|cell| Some(cell) != first) {
            rows.push(Row { api: api.clone(), all, cells: servers.iter().map(served).collect() });
        }
    }
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::operator::skew::server::Answer;
    use crate::operator::skew::surface::Surface;

    /// A server with APIs such as `batch/v1 jobs/status get,list`.
    pub(crate) fn server(name: &str, release: &str, apis: &[&str]) -> Server {
        let mut surface = Surface::default();
        for line in apis {
            let words: Vec<&str> = line.split(' ').collect();
            let (group, version) = words[0].split_once('/').unwrap_or(("", words[0]));
            let (resource, part) = words[1].split_once('/').unwrap_or((words[1], ""));
            let api = Api::new(group, version, resource);
            let api = if part.is_empty() { api } else { api.sub(part) };
            surface.insert(api, words[2].split(',').collect());
        }
        let release = Some(release.to_owned());
        Server { name: name.to_owned(), release, answer: Answer::Serves(surface), way: None }
    }

    fn names(servers: &[Server], all: bool) -> Vec<String> {
        rows(servers, all).iter().map(|row| row.api.to_string()).collect()
    }

    #[test]
    fn differences_are_resources_subresources_and_verbs() {
        let servers = [
            server("a", "1.34", &["v1 pods get,list", "v1 pods/status get", "v1 nodes get"]),
            server(
                "b",
                "1.36",
                &[
                    "v1 pods get",
                    "v1 pods/status get",
                    "v1 pods/resize get",
                    "v1 nodes get",
                    "batch/v1 jobs get",
                    "batch/v1 jobs/status get",
                ],
            ),
        ];
        assert_eq!(names(&servers, false), ["v1 pods", "v1 pods/resize", "batch/v1 jobs"]);
        assert_eq!(names(&servers, true).len(), 6);
        let pods = &rows(&servers, false)[0];
        assert_eq!(
            pods.cells,
            [
                Served::Yes(["get", "list"].into_iter().collect()),
                Served::Yes(["get"].into_iter().collect())
            ]
        );
        assert_eq!(rows(&servers, false)[2].cells[0], Served::No);
    }

    #[test]
    fn a_server_without_an_answer_makes_no_difference() {
        let mut servers =
            vec![server("a", "1.34", &["v1 pods get"]), server("b", "1.34", &["v1 pods get"])];
        servers[1].answer = Answer::None("it is down".to_owned());
        assert_eq!(names(&servers, false), <[&str; 0]>::default());
        assert_eq!(rows(&servers, true)[0].cells[1], Served::Unknown);
    }
}
