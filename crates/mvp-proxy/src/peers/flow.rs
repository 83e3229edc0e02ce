//! Who sends a request, as far as fairness between users is concerned. Entry item: [`Flows::of`].
//!
//! It is the authenticated user, as in kube-apiserver's priority and fairness, but not the one that is
//! impersonated: only the server knows who may impersonate whom. The owner of a token that a server
//! has accepted is a user; those with other tokens share a few turns, by the network of their
//! address: whoever has many addresses has no more turns for it.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use http::HeaderValue;
use http::request::Parts;
use mvp_net::ConnectionInfo;

use super::fair::{Class, Flow};
use crate::identity::{Identity, User};
use crate::upstream::Forwarder;

/// The turns of all tokens that no server has accepted.
const UNKNOWN_TOKENS: u64 = 16;

/// Hashes users, under a random key of this process.
#[derive(Debug, Clone, Default)]
pub(super) struct Flows(RandomState);

/// What the flows of a kind have in common.
#[derive(Hash)]
enum Who<'a> {
    User(Option<&'a [u8]>),
    Token(u64),
    /// The number of its turn.
    UnknownToken(u64),
    Anonymous,
    System,
}

impl Flows {
    /// The flow of a request; `None` stands for a request of our own.
    pub(super) fn of(&self, parts: Option<&Parts>, forwarder: &Forwarder) -> Flow {
        let identity = parts.and_then(|parts| Some((parts, parts.extensions.get::<Identity>()?)));
        let (class, who) = match identity {
            None | Some((_, Identity::System)) => (Class::Exempt, Who::System),
            Some((_, Identity::User(user))) => {
                (class(user), Who::User(user.name.as_ref().map(HeaderValue::as_bytes)))
            }
            Some((parts, Identity::Token)) => {
                let address = || Some(parts.extensions.get::<ConnectionInfo>()?.remote().ip());
                let token = forwarder.accepted_token(&parts.headers);
                let unknown =
                    || Who::UnknownToken(self.0.hash_one(address().map(network)) % UNKNOWN_TOKENS);
                (Class::Other, token.map_or_else(unknown, Who::Token))
            }
            Some((_, Identity::Anonymous)) => (Class::Other, Who::Anonymous),
        };
        Flow { hash: self.0.hash_one(who), class }
    }
}

/// The addresses that a client can choose from: with IPv6 a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
    }
}

fn class(user: &User) -> Class {
    let is_in = |name: &str| user.groups.iter().any(|group| group == name);
    if is_in("system:masters") {
        Class::Exempt
    } else if is_in("system:nodes") {
        Class::Node
    } else {
        Class::Other
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;
    use testkit::certificates::Ca;

    use super::*;
    use crate::upstream::OutboundTls;

    fn forwarder() -> Forwarder {
        let tls = OutboundTls::new(Ca::new("servers").pem().as_bytes(), None).unwrap();
        Forwarder::new(tls.clone(), tls)
    }

    fn user(name: &'static str, group: &'static str) -> Identity {
        let (name, group) = (HeaderValue::from_static(name), HeaderValue::from_static(group));
        let user = User { name: Some(name), groups: vec![group], ..User::default() };
        Identity::User(Arc::new(user))
    }

    fn parts(identity: Identity, more: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::new(());
        request.extensions_mut().insert(identity);
        for (name, value) in more {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        request.into_parts().0
    }

    #[test]
    fn users_are_told_apart_by_name_and_privileged_by_group() {
        let (flows, forwarder) = (Flows::default(), forwarder());
        let of = |identity| flows.of(Some(&parts(identity, &[])), &forwarder);
        let alice = of(user("alice", "developers"));
        assert_eq!(alice, of(user("alice", "developers")));
        assert_ne!(alice, of(user("bob", "developers")));
        assert_ne!(alice.hash, of(Identity::Anonymous).hash);
        assert_eq!(alice.class, Class::Other);
        assert_eq!(of(user("alice", "system:masters")).class, Class::Exempt);
        assert_eq!(of(user("system:node:a", "system:nodes")).class, Class::Node);
        assert_eq!(of(Identity::System).class, Class::Exempt);
        assert_eq!(flows.of(None, &forwarder).class, Class::Exempt);
    }

    #[test]
    fn neither_another_name_to_impersonate_nor_another_unknown_token_is_another_turn() {
        let (flows, forwarder) = (Flows::default(), forwarder());
        let of = |parts: Parts| flows.of(Some(&parts), &forwarder);
        let alice = of(parts(user("alice", "developers"), &[]));
        let as_bob = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
        assert_eq!(alice, of(parts(user("alice", "developers"), &as_bob)));
        let with_token = |token| of(parts(Identity::Token, &[("authorization", token)]));
        assert_eq!(with_token("Bearer one"), with_token("Bearer two"));
    }

    #[test]
    fn addresses_that_one_client_can_choose_from_are_one_network() {
        let network = |address: &str| network(address.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2::1"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:3::1"), "2001:db8:1:3::");
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
    }
}
