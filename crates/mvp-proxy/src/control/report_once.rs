//! A condition that is reported once, not in every round. Entry item: [`ReportOnce`].

/// Whether a condition has been reported since it last cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportOnce {
    reported: bool,
}

impl ReportOnce {
    /// The condition holds. Returns whether to report it now: the first time since it cleared.
    pub fn report(&mut self) -> bool {
        !std::mem::replace(&mut self.reported, true)
    }

    /// The condition does not hold. Returns whether it had been reported: then report the recovery.
    pub fn clear(&mut self) -> bool {
        std::mem::take(&mut self.reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_reported_again_only_after_it_cleared() {
        let mut once = ReportOnce::default();
        assert!(!once.clear(), "nothing was reported yet");
        assert!(once.report() && !once.report());
        assert!(once.clear() && !once.clear());
        assert!(once.report());
    }
}
