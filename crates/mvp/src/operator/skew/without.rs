//! `--without`: what is lost when a server goes. Entry: [`lost`].

use super::finding::{Finding, Kind};
use super::server::{Answer, Server};
use super::surface::{Surface, minus};

/// The APIs that only the server at this place serves. A lost resource stands for its subresources.
pub(crate) fn lost(servers: &[Server], gone: usize) -> Vec<Finding> {
    let others = servers.iter().enumerate().filter(|(place, _)| *place != gone);
    // A server that does not answer keeps nothing, whatever it served before.
    let left = Surface::union(others.filter_map(|(_, server)| match &server.answer {
        Answer::Serves(surface) => Some(surface),
        Answer::Served(..) | Answer::None(_) => None,
    }));
    let Some(surface) = servers.get(gone).and_then(Server::surface) else { return Vec::new() };
    let mut lost = Vec::new();
    for (api, verbs) in surface.iter() {
        let found = |kind| Finding::new(api, verbs, kind, &left);
        match left.verbs(api) {
            None if api.subresource.is_none() || left.has(&api.parent()) => {
                lost.push(found(Kind::All))
            }
            None => {}
            Some(stay) => {
                let only_there = minus(verbs, stay);
                if only_there.iter().next().is_some() {
                    lost.push(found(Kind::Verbs(only_there)));
                }
            }
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::skew::compare::tests::server;
    use crate::operator::skew::finding::Objects;

    fn names(lost: &[Finding]) -> Vec<String> {
        lost.iter()
            .map(|finding| format!("{} {}", finding.api.group_version(), finding.what()))
            .collect()
    }

    #[test]
    fn what_only_one_server_serves_is_lost_with_it() {
        let mut servers = vec![
            server(
                "a",
                "1.34",
                &["v1 pods get,list", "v1 pods/status get", "x/v1beta1 things get,list"],
            ),
            server(
                "b",
                "1.36",
                &[
                    "v1 pods get,list,watch",
                    "v1 pods/status get",
                    "v1 pods/resize get",
                    "x/v1 things get,list",
                    "x/v1 things/status get",
                    "x/v1 reviews create",
                ],
            ),
            server("c", "1.34", &["v1 pods get"]),
        ];
        let of_b = lost(&servers, 1);
        assert_eq!(
            names(&of_b),
            ["v1 pods (watch)", "v1 pods/resize", "x/v1 reviews", "x/v1 things"]
        );
        assert_eq!(of_b[3].stays_as, ["v1beta1"]);
        assert!(matches!(of_b[3].objects, Objects::Unknown(_)), "to be counted");
        assert_eq!(of_b[2].objects, Objects::NotApplicable, "a review is not stored");
        assert_eq!(names(&lost(&servers, 2)), <[&str; 0]>::default());
        // A server that does not answer keeps nothing.
        servers[0].answer = Answer::None("it is down".to_owned());
        assert_eq!(names(&lost(&servers, 2)), <[&str; 0]>::default());
        assert_eq!(names(&lost(&servers, 1)).len(), 5);
        let served = server("a", "1.34", &["v1 pods get,list,watch", "v1 pods/resize get"]);
        let served = served.surface().unwrap().clone();
        servers[0].answer = Answer::Served(served, "silent for an hour".to_owned());
        assert_eq!(names(&lost(&servers, 1)).len(), 5);
    }
}
