//! The extent and duration of measurements.

use crate::load::Protocol;
use crate::targets::Target;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) full: bool,
    /// The number of rounds. Each measures every target once.
    pub(crate) rounds: usize,
    pub(crate) warm_up_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) latency_seconds: f64,
    pub(crate) requests: Vec<RequestCase>,
    pub(crate) watches: Vec<WatchCase>,
    pub(crate) kube_seconds: f64,
    /// The rounds of the members scenario: it takes long and varies little.
    pub(crate) members_seconds: f64,
    pub(crate) members_rounds: usize,
    pub(crate) embedded_seconds: f64,
    pub(crate) embedded_rounds: usize,
    pub(crate) growth: GrowthPlan,
    pub(crate) fairness_seconds: f64,
}

/// The sizes of clusters that are compared, in one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrowthPlan {
    pub(crate) members: &'static [usize],
    pub(crate) apis: &'static [usize],
    pub(crate) watches: &'static [usize],
    /// The time for each figure of each size.
    pub(crate) seconds: f64,
}

/// A case of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestCase {
    pub(crate) bytes: usize,
    pub(crate) protocol: Protocol,
    pub(crate) connections: usize,
    pub(crate) streams: usize,
}

impl RequestCase {
    /// One connection carries as many streams as HTTP/2 allows.
    fn new(bytes: usize, protocol: Protocol, connections: usize) -> RequestCase {
        let streams = match (bytes, protocol, connections) {
            (LARGE.., ..) | (_, Protocol::Http1, _) => 1,
            (_, Protocol::Http2, 1) => 32,
            _ => 1,
        };
        RequestCase { bytes, protocol, connections, streams }
    }

    pub(crate) fn name(&self) -> String {
        let size = match self.bytes {
            bytes if bytes >= 1_000_000 => format!("{} MB", bytes / 1_000_000),
            bytes => format!("{} kB", bytes / 1_000),
        };
        let connections = counted(self.connections, "connection");
        match self.streams {
            1 => format!("{size}, {}, {connections}", self.protocol.name()),
            more => format!("{size}, {}, {connections} × {more} streams", self.protocol.name()),
        }
    }
}

/// A case of watches, over HTTP/2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchCase {
    pub(crate) connections: usize,
    pub(crate) streams: usize,
}

impl WatchCase {
    pub(crate) fn name(&self) -> String {
        let watches = thousands(self.connections * self.streams);
        format!("{watches} watches on {}", counted(self.connections, "connection"))
    }
}

/// The rounds in which peers are measured that few goals refer to.
const FURTHER_ROUNDS: usize = 3;
const SMALL: usize = 2_000;
const MIDDLE: usize = 200_000;
const LARGE: usize = 100_000_000;

/// The case that goals about requests refer to.
pub(crate) fn main_case(protocol: Protocol) -> RequestCase {
    RequestCase::new(SMALL, protocol, 32)
}

/// A case of small requests on this many connections.
pub(crate) fn small_case(protocol: Protocol, connections: usize) -> RequestCase {
    RequestCase::new(SMALL, protocol, connections)
}

/// The case that goals about large bodies refer to.
pub(crate) fn large_case(protocol: Protocol) -> RequestCase {
    RequestCase::new(LARGE, protocol, 4)
}

impl Plan {
    /// The targets that a scenario compares in a round. A quick run measures latency, handshakes and
    /// watches only with those that goals refer to.
    pub(crate) fn compared(&self, mut targets: Vec<Target>, round: usize) -> Vec<Target> {
        targets.retain(|target| self.full || !target.is_further_peer());
        Plan::in_round(targets, round)
    }

    /// The targets that are measured in a round.
    pub(crate) fn in_round(mut targets: Vec<Target>, round: usize) -> Vec<Target> {
        targets.retain(|target| round < FURTHER_ROUNDS || !target.is_further_peer());
        targets
    }

    /// The plan of five minutes at most, without builds.
    pub(crate) fn quick() -> Plan {
        use Protocol::{Http1, Http2};
        Plan {
            full: false,
            rounds: 2,
            warm_up_seconds: 0.3,
            seconds: 0.8,
            latency_seconds: 1.5,
            requests: vec![main_case(Http2), main_case(Http1), large_case(Http2)],
            watches: vec![
                WatchCase { connections: 1_000, streams: 1 },
                WatchCase { connections: 10, streams: 100 },
            ],
            kube_seconds: 1.5,
            members_seconds: 15.0,
            members_rounds: 1,
            embedded_seconds: 5.0,
            embedded_rounds: 1,
            growth: GrowthPlan {
                members: &[3, 50],
                apis: &[100, 5_000],
                watches: &[0, 1_000],
                seconds: 1.0,
            },
            fairness_seconds: 4.0,
        }
    }

    /// The load that the compiler learns from.
    pub(crate) fn training() -> Plan {
        use Protocol::{Http1, Http2};
        let mut requests = Vec::new();
        for protocol in [Http2, Http1] {
            // Most requests share their connection with few others.
            requests.extend([32, 32, 1, 1_000].map(|count| small_case(protocol, count)));
            requests.push(RequestCase::new(MIDDLE, protocol, 32));
            requests.push(large_case(protocol));
        }
        Plan { requests, warm_up_seconds: 0.1, ..Plan::quick() }
    }

    /// The full plan.
    pub(crate) fn full() -> Plan {
        let mut requests = Vec::new();
        for protocol in [Protocol::Http2, Protocol::Http1] {
            for connections in [32, 1, 1_000] {
                requests.push(RequestCase::new(SMALL, protocol, connections));
            }
            requests.push(RequestCase::new(MIDDLE, protocol, 32));
            requests.push(large_case(protocol));
        }
        Plan {
            full: true,
            rounds: 5,
            warm_up_seconds: 0.3,
            seconds: 1.2,
            latency_seconds: 3.0,
            requests,
            watches: vec![
                WatchCase { connections: 1_000, streams: 1 },
                WatchCase { connections: 10, streams: 100 },
                WatchCase { connections: 100, streams: 100 },
            ],
            kube_seconds: 4.0,
            members_seconds: 30.0,
            members_rounds: 3,
            embedded_seconds: 20.0,
            embedded_rounds: 3,
            growth: GrowthPlan {
                members: &[1, 3, 10, 25, 50],
                apis: &[100, 1_000, 5_000, 20_000],
                watches: &[0, 1_000, 10_000],
                seconds: 2.0,
            },
            fairness_seconds: 10.0,
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        more => format!("{} {what}s", thousands(more)),
    }
}

/// 10,000
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_for_people() {
        let name =
            |bytes, connections| RequestCase::new(bytes, Protocol::Http2, connections).name();
        assert_eq!(name(SMALL, 1), "2 kB, HTTP/2, 1 connection × 32 streams");
        assert_eq!(name(LARGE, 1_000), "100 MB, HTTP/2, 1,000 connections");
        let watches = WatchCase { connections: 100, streams: 100 };
        assert_eq!(watches.name(), "10,000 watches on 100 connections");
    }

    #[test]
    fn a_quick_run_compares_with_haproxy_alone_beyond_requests() {
        let quick = Plan::quick().compared(Target::ALL.to_vec(), 0);
        assert!(quick.contains(&Target::Haproxy) && quick.contains(&Target::Bare));
        assert!(!quick.contains(&Target::Envoy) && !quick.contains(&Target::Nginx));
        let compared = |round| Plan::full().compared(Target::ALL.to_vec(), round);
        assert_eq!(compared(0), Target::ALL);
        assert!(compared(4).contains(&Target::Haproxy) && !compared(4).contains(&Target::Nginx));
    }

    #[test]
    fn every_case_of_a_quick_run_is_one_of_the_full() {
        let full: Vec<String> = Plan::full().requests.iter().map(RequestCase::name).collect();
        assert!(Plan::quick().requests.iter().all(|case| full.contains(&case.name())));
    }
}
