//! Limits the time for the head of a request to arrive. Entry: [`HeadTimeout`].
//!
//! A connection may be idle between requests, but once a request has begun, its head must arrive in
//! time. hyper's own timeout would close every idle connection. (A head that begins in the same read
//! as the end of the previous request has the time of an idle connection.)

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::delegate::delegate_write;
use super::request::Activity;
use crate::limits::deadline;

/// The length of the HTTP/2 preface, `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`.
const PREFACE_LENGTH: usize = 24;

/// A stream whose reads fail if the head of a request, or the HTTP/2 preface, takes too long.
///
/// The time starts with the connection: a client that opens one should send a request.
pub(crate) struct HeadTimeout<T> {
    stream: T,
    limit: Duration,
    activity: Arc<Activity>,
    waiting: Option<Waiting>,
    /// Reused. Created only when a read must wait: a head in one piece needs none.
    timer: Option<Pin<Box<Sleep>>>,
    /// HTTP/2: the bytes of the preface that are missing.
    preface: Option<usize>,
}

/// The wait for a head.
struct Waiting {
    deadline: Instant,
    /// The number of requests before: one more means that the head has arrived.
    started: usize,
}

impl<T> HeadTimeout<T> {
    pub(crate) fn new(stream: T, http2: bool, limit: Duration, activity: Arc<Activity>) -> Self {
        let waiting = Some(Waiting { deadline: deadline(limit), started: 0 });
        let preface = http2.then_some(PREFACE_LENGTH);
        Self { stream, limit, activity, waiting, timer: None, preface }
    }

    /// Notes that at least one byte arrived.
    fn heard(&mut self, bytes: usize) {
        if let Some(missing) = &mut self.preface {
            // After the preface, HTTP/2 sends frames that are not requests; PING detects a dead client.
            *missing = missing.saturating_sub(bytes);
            if *missing == 0 {
                self.waiting = None;
            }
            return;
        }
        self.clear_if_arrived();
        if self.waiting.is_none() && self.activity.in_flight() == 0 && !self.activity.upgraded() {
            let started = self.activity.started();
            self.waiting = Some(Waiting { deadline: deadline(self.limit), started });
        }
    }

    fn clear_if_arrived(&mut self) {
        let started = self.activity.started();
        self.waiting.take_if(|waiting| waiting.started != started);
    }

    /// Nothing arrived: ready once the deadline has passed.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.clear_if_arrived();
        let Some(waiting) = &self.waiting else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(waiting.deadline)));
        if timer.deadline() != waiting.deadline {
            timer.as_mut().reset(waiting.deadline);
        }
        timer.as_mut().poll(context)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HeadTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                let bytes = buffer.filled().len().saturating_sub(before);
                if bytes > 0 {
                    self.heard(bytes);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(self.poll_deadline(context));
                let message = "timed out waiting for the head of a request";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
            }
        }
    }
}

delegate_write!(HeadTimeout);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::super::request::Guard;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const HOUR: Duration = Duration::from_secs(3600);

    fn pair(http2: bool) -> (DuplexStream, HeadTimeout<DuplexStream>, Arc<Activity>) {
        let (client, server) = duplex(1024);
        let activity = Arc::new(Activity::default());
        (client, HeadTimeout::new(server, http2, LIMIT, Arc::clone(&activity)), activity)
    }

    /// Reads until it times out. Returns after how long.
    async fn cut(stream: &mut HeadTimeout<DuplexStream>) -> Duration {
        let start = Instant::now();
        let mut buffer = [0; 64];
        loop {
            if let Err(error) = stream.read(&mut buffer).await {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                return start.elapsed();
            }
        }
    }

    /// Reads for an hour, and nothing happens.
    async fn stays_idle(stream: &mut HeadTimeout<DuplexStream>) {
        let mut buffer = [0; 64];
        assert!(timeout(HOUR, stream.read(&mut buffer)).await.is_err(), "nothing to read");
    }

    async fn hear(client: &mut DuplexStream, stream: &mut HeadTimeout<DuplexStream>, said: &[u8]) {
        client.write_all(said).await.unwrap();
        stream.read_exact(&mut vec![0; said.len()]).await.unwrap();
    }

    fn is_about_the_limit(elapsed: Duration) -> bool {
        (LIMIT..LIMIT + Duration::from_millis(10)).contains(&elapsed)
    }

    #[tokio::test(start_paused = true)]
    async fn silence_after_the_handshake_times_out() {
        for http2 in [false, true] {
            let (_client, mut stream, _) = pair(http2);
            assert!(is_about_the_limit(cut(&mut stream).await));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn single_bytes_do_not_extend_the_deadline() {
        let (mut client, mut stream, _) = pair(false);
        tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert!(is_about_the_limit(cut(&mut stream).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_be_idle_between_requests_but_not_within_a_head() {
        let (mut client, mut stream, activity) = pair(false);
        hear(&mut client, &mut stream, b"GET").await;
        let request = Guard::new(Arc::clone(&activity));
        stays_idle(&mut stream).await;
        hear(&mut client, &mut stream, b"of its body").await;
        stays_idle(&mut stream).await;
        drop(request);
        stays_idle(&mut stream).await;
        hear(&mut client, &mut stream, b"GET").await;
        assert!(is_about_the_limit(cut(&mut stream).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_has_no_deadline() {
        let (mut client, mut stream, activity) = pair(false);
        hear(&mut client, &mut stream, b"GET").await;
        let request = Guard::new(activity);
        request.upgrades();
        drop(request);
        for _ in 0..2 {
            hear(&mut client, &mut stream, b"anything").await;
            stays_idle(&mut stream).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn http2_has_no_deadline_after_its_preface() {
        let (mut client, mut stream, _) = pair(true);
        hear(&mut client, &mut stream, &[0; PREFACE_LENGTH - 1]).await;
        assert!(timeout(LIMIT / 2, stream.read(&mut [0])).await.is_err());
        hear(&mut client, &mut stream, &[0]).await;
        for _ in 0..2 {
            stays_idle(&mut stream).await;
            hear(&mut client, &mut stream, b"PING").await;
        }
    }
}
