//! The CPUs on which the programs of a run are placed.

/// The CPUs of a program. With two or more, the proxy has the first one to itself, so that neither
/// the load nor the server behind it takes its time or its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    Proxy,
    Load,
    Any,
}

impl Cores {
    /// The list for `taskset`; none where there is no choice.
    pub(crate) fn cpus(self) -> Option<String> {
        self.of(std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn of(self, present: usize) -> Option<String> {
        match (self, present) {
            (Cores::Any, _) | (_, 0 | 1) => None,
            (Cores::Proxy, _) => Some("0".to_owned()),
            (Cores::Load, 2) => Some("1".to_owned()),
            (Cores::Load, more) => Some(format!("1-{}", more - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_has_a_core_to_itself() {
        assert_eq!(Cores::Proxy.of(2).as_deref(), Some("0"));
        assert_eq!(Cores::Load.of(2).as_deref(), Some("1"));
        assert_eq!(Cores::Load.of(8).as_deref(), Some("1-7"));
        assert_eq!(Cores::Proxy.of(1), None);
        assert_eq!(Cores::Any.of(8), None);
    }
}
