//! Failures that pass by themselves are nobody's business; one that lasts is told, once. Entry item:
//! [`Lasting`].

use std::time::Duration;

use tokio::time::Instant;

/// A server that starts fails for some seconds, and even forbids what it will allow.
const LASTS: Duration = Duration::from_secs(10);

/// Since when something fails.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    since: Option<Instant>,
    told: bool,
}

impl Lasting {
    /// It failed again. Whether it does for so long that it has to be mended.
    pub(crate) fn failed(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= LASTS
    }

    /// Whether it is to be told now, that it failed for so long; once.
    pub(crate) fn is_news(&mut self) -> bool {
        self.failed() && !std::mem::replace(&mut self.told, true)
    }

    /// It works. Whether it was told that it does not.
    pub(crate) fn works(&mut self) -> bool {
        std::mem::take(self).told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_lasts_is_told_once() {
        let mut lasting = Lasting::default();
        assert!(!lasting.failed() && !lasting.is_news());
        tokio::time::advance(LASTS).await;
        assert!(lasting.failed() && lasting.is_news() && !lasting.is_news());
        assert!(lasting.works() && !lasting.works());
        assert!(!lasting.is_news(), "it begins anew");
    }
}
