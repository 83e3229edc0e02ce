//! Whether a request may be sent to another server. This is where a second send of a write is
//! prevented: failed attempts and withheld 404s are noted here, and every further send at another
//! server depends on [`Delivery::may_send`] or [`Delivery::failed`]. The only sends that are not
//! seen here repeat a request at the same server, which provably did not process it.

use http::request::Parts;
use mvp_core::RequestInfo;

use super::tunnel::is_upgrade;
use crate::error::Stage;

/// The delivery of one request: what servers may have done with it so far.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    state: State,
    request: Request<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No server can have processed any of it.
    Untouched,
    /// A server may have processed it.
    MaybeProcessed,
    /// The same, and its one retry is used.
    Retried,
    /// It must not be sent again.
    Exhausted,
}

/// Whether a request may be repeated. Looked at only after a failure.
#[derive(Debug)]
enum Request<'a> {
    /// A client's request.
    Of(&'a RequestInfo<'a>, &'a Parts),
    /// One of our own, which only reads.
    Read,
}

impl<'a> Delivery<'a> {
    /// The delivery of a client's request, before it is sent.
    pub(crate) fn new(info: &'a RequestInfo<'a>, parts: &'a Parts) -> Delivery<'a> {
        Delivery { state: State::Untouched, request: Request::Of(info, parts) }
    }

    /// The delivery of a read of our own.
    pub(crate) fn of_read() -> Delivery<'static> {
        Delivery { state: State::Untouched, request: Request::Read }
    }

    /// Whether no server can have processed any of it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.state == State::Untouched
    }

    /// Whether it may be sent to a server now.
    pub(crate) fn may_send(&self) -> bool {
        match self.state {
            State::Untouched => true,
            State::MaybeProcessed | State::Retried => self.is_repeatable(),
            State::Exhausted => false,
        }
    }

    /// Whether another server may be asked if the next one receives the request and fails.
    pub(crate) fn may_retry(&self) -> bool {
        matches!(self.state, State::Untouched | State::MaybeProcessed) && self.is_repeatable()
    }

    /// Notes that a server sent no response. Returns whether another server may be asked: always if
    /// the server processed nothing, once if the request can be repeated, else never.
    pub(crate) fn failed(&mut self, stage: Stage) -> bool {
        #[cfg(test)]
        let stage = crate::missing::stage(stage);
        if stage.is_unprocessed() {
            return true;
        }
        let retry = self.may_retry();
        self.state = if retry { State::Retried } else { State::Exhausted };
        retry
    }

    /// Notes a withheld 404. A server that has no such API processed nothing; one that has it may
    /// have processed the request.
    pub(crate) fn not_found(&mut self, unrouted: bool) {
        if !unrouted && self.state == State::Untouched {
            self.state = State::MaybeProcessed;
        }
    }

    fn is_repeatable(&self) -> bool {
        match self.request {
            Request::Read => true,
            Request::Of(info, parts) => info.may_be_replayed(is_upgrade(parts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Stage = Stage::Exchange;

    fn parts() -> Parts {
        http::Request::new(()).into_parts().0
    }

    /// What can happen to a request on its way.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Failed(Stage),
        NotFound { unrouted: bool },
    }

    const EVENTS: [Event; 5] = [
        Event::Failed(Stage::Connect),
        Event::Failed(Stage::Unready),
        Event::Failed(LOST),
        Event::NotFound { unrouted: true },
        Event::NotFound { unrouted: false },
    ];

    /// Whether a server may have processed a request after this.
    fn may_be_processed(event: Event) -> bool {
        match event {
            Event::Failed(stage) => !stage.is_unprocessed(),
            Event::NotFound { unrouted } => !unrouted,
        }
    }

    /// Every sequence of events of this length.
    fn sequences(length: u32) -> impl Iterator<Item = Vec<Event>> {
        let count = EVENTS.len().pow(length);
        (0..count).map(move |number| {
            let digit = |place| number / EVENTS.len().pow(place) % EVENTS.len();
            (0..length).map(|place| EVENTS[digit(place)]).collect()
        })
    }

    /// Sends while it is allowed. Returns the events that were reached.
    fn deliver(delivery: &mut Delivery<'_>, events: &[Event]) -> usize {
        for (sent, event) in events.iter().enumerate() {
            if !delivery.may_send() {
                return sent;
            }
            match *event {
                Event::Failed(stage) => {
                    if !delivery.failed(stage) {
                        return sent + 1;
                    }
                }
                Event::NotFound { unrouted } => delivery.not_found(unrouted),
            }
        }
        events.len()
    }

    #[test]
    fn a_write_is_never_sent_again_once_a_server_may_have_processed_it() {
        let parts = parts();
        let writes = [
            RequestInfo::parse("POST", "/api/v1/namespaces/x/pods", None),
            RequestInfo::parse("DELETE", "/api/v1/namespaces/x/pods/y", None),
            RequestInfo::parse("GET", "/api/v1/namespaces/x/pods/y/exec", None),
            RequestInfo::parse("GET", "/api/v1/nodes/x/proxy", None),
        ];
        for (info, events) in writes.iter().flat_map(|info| sequences(4).map(move |e| (info, e))) {
            let mut delivery = Delivery::new(info, &parts);
            let reached = deliver(&mut delivery, &events);
            let processed = events[..reached].iter().filter(|e| may_be_processed(**e)).count();
            assert!(processed <= 1, "{info}: {events:?}");
            assert_eq!(processed == 0, delivery.is_untouched(), "{info}: {events:?}");
            assert_eq!(delivery.may_send(), processed == 0, "{info}: {events:?}");
            assert!(!delivery.may_retry(), "{info}");
        }
    }

    #[test]
    fn a_read_is_retried_once_after_a_server_received_it() {
        let (info, parts) = (RequestInfo::parse("GET", "/api/v1/pods", None), parts());
        let lost = |event: &Event| matches!(event, Event::Failed(LOST));
        for events in sequences(5) {
            let mut delivery = Delivery::new(&info, &parts);
            let reached = deliver(&mut delivery, &events);
            let losses = events[..reached].iter().filter(|event| lost(event)).count();
            assert!(losses <= 2, "{events:?}");
            assert_eq!(delivery.may_send(), losses < 2, "{events:?}");
            assert_eq!(delivery.may_retry(), losses == 0, "{events:?}");
            // Nothing but a second loss stops it.
            assert!(reached == events.len() || losses == 2, "{events:?}");
        }
    }

    #[test]
    fn an_upgrade_is_not_repeated() {
        let info = RequestInfo::parse("GET", "/api/v1/pods", None);
        let request = http::Request::builder()
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .body(())
            .unwrap();
        let mut request = request;
        let upgrade = hyper::upgrade::on(&mut request);
        let (mut parts, ()) = request.into_parts();
        parts.extensions.insert(upgrade);
        let mut delivery = Delivery::new(&info, &parts);
        assert!(!delivery.failed(LOST));
        assert!(!delivery.may_send());
    }
}
