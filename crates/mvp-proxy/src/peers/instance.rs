//! Which process answers: what a gateway tells its peers of itself. Entry items: [`Instance`], what we
//! tell, and [`who`], what we are told.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{HeaderName, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue};

use crate::control::Who;

/// Says to a peer which process answers, as `ID_INSTANCE`.
pub(crate) const INSTANCE: HeaderName = HeaderName::from_static("x-mvp-instance");

/// This process, as peers know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance(HeaderValue);

impl Instance {
    /// Of the server of that ID; a load balancer has none.
    pub fn new(id: &str) -> Result<Instance, InvalidHeaderValue> {
        // Whatever an embedder calls itself, others are told in ASCII.
        HeaderValue::from_str(&format!("{}_{}", id.escape_default(), unique())).map(Instance)
    }

    /// As it is told.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// A name for this process that no other has.
pub fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

/// Who sent these headers.
pub(crate) fn who(headers: &HeaderMap, own: Option<&Instance>) -> Who {
    let Some(told) = headers.get(INSTANCE) else { return Who::Server };
    if own.is_some_and(|own| own.0 == *told) {
        return Who::Ourselves;
    }
    let told = told.to_str().unwrap_or_default();
    match told.rsplit_once('_') {
        Some((id, instance)) => Who::Gateway { id: id.into(), instance: instance.into() },
        None => Who::Gateway { id: "".into(), instance: told.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_says_who_it_is_and_knows_itself() {
        let (own, other) = (Instance::new("a_1").unwrap(), Instance::new("b_2").unwrap());
        let told = |instance: &Instance| HeaderMap::from_iter([(INSTANCE, instance.header())]);
        assert_eq!(who(&HeaderMap::new(), Some(&own)), Who::Server);
        assert_eq!(who(&told(&own), Some(&own)), Who::Ourselves);
        let gateway = |who: Who| match who {
            Who::Gateway { id, instance } => (id.to_string(), instance.to_string()),
            other => panic!("{other:?}"),
        };
        let (id, instance) = gateway(who(&told(&other), Some(&own)));
        assert_eq!(id, "b_2");
        assert!(!instance.is_empty() && !instance.contains('_'));
        assert_eq!(gateway(who(&told(&own), None)).0, "a_1");
        let odd = Instance::new("é\n").unwrap();
        assert_eq!(gateway(who(&told(&odd), None)).0, "\\u{e9}\\n");
        let odd = HeaderMap::from_iter([(INSTANCE, HeaderValue::from_bytes(b"\xff").unwrap())]);
        assert_eq!(who(&odd, None), Who::Gateway { id: "".into(), instance: "".into() });
    }
}
