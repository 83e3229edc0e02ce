//! Standard error behind a bounded queue, so that logging never blocks. Entry: [`LogQueue`].
//!
//! A pipe that nobody reads, or a disk that hangs, blocks one thread: the writer. Other threads put
//! lines into the queue. If it is full, lines are dropped and counted. When the writer catches up, it
//! reports how many lines were dropped.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tracing_subscriber::fmt::MakeWriter;

/// The most lines in the queue.
const MAX_LINES: usize = 4096;
/// The most bytes in the queue.
const MAX_BYTES: usize = 4 << 20;
/// The size of one write.
const BATCH_BYTES: usize = 64 << 10;
/// The longest time that the end of the process waits for the queue.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay before a non-blocking standard error is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// The interval of reports of dropped lines while the queue never becomes empty.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The queue of log lines. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LogQueue {
    lines: SyncSender<Vec<u8>>,
    counts: Counts,
}

#[derive(Debug, Clone, Default)]
struct Counts {
    /// Bytes that are not written yet.
    queued: Arc<AtomicUsize>,
    /// Lines dropped since the process started.
    dropped: Counter,
    /// Lines dropped since the last report.
    unreported: Arc<AtomicU64>,
}

impl Counts {
    fn drop_lines(&self, lines: u64) {
        self.dropped.inc_by(lines);
        self.unreported.fetch_add(lines, Ordering::Relaxed);
    }
}

impl LogQueue {
    /// Starts the writer thread. `report` logs the number of dropped lines. It runs on that thread, so
    /// it must write to `out` directly.
    pub(crate) fn start(
        out: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<LogQueue> {
        let (lines, queued) = mpsc::sync_channel(MAX_LINES);
        let counts = Counts::default();
        let writer = Writer { lines: queued, counts: counts.clone(), out, report };
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.run())?;
        Ok(LogQueue { lines, counts })
    }

    /// Queues one line with its line feed, or drops it. Never blocks.
    pub(crate) fn push(&self, line: &[u8]) {
        let before = self.counts.queued.fetch_add(line.len(), Ordering::Relaxed);
        let fits = before.saturating_add(line.len()) <= MAX_BYTES;
        if fits && self.try_send(line.to_vec()) {
            return;
        }
        self.counts.queued.fetch_sub(line.len(), Ordering::Relaxed);
        self.counts.drop_lines(1);
    }

    fn try_send(&self, line: Vec<u8>) -> bool {
        match self.lines.try_send(line) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Waits until the queue is written, for a bounded time.
    pub(crate) fn flush(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while self.counts.queued.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Adds `mvp_log_lines_dropped_total`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "mvp_log_lines_dropped",
            "Log lines dropped because the queue to standard error was full",
            self.counts.dropped.clone(),
        );
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = QueuedLine<'a>;

    fn make_writer(&'a self) -> QueuedLine<'a> {
        QueuedLine(self)
    }
}

/// The writer of one event: `tracing_subscriber` writes each event with one call.
pub(crate) struct QueuedLine<'a>(&'a LogQueue);

impl Write for QueuedLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Flushes the queue when it is dropped, however `mvp serve` ends.
pub(crate) struct FlushGuard(pub(crate) LogQueue);

impl Drop for FlushGuard {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// The only thread that blocks on standard error.
struct Writer<W, R> {
    lines: Receiver<Vec<u8>>,
    counts: Counts,
    out: W,
    report: R,
}

impl<W: Write, R: Fn(u64)> Writer<W, R> {
    fn run(mut self) {
        let mut reported = Instant::now();
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        while let Ok(first) = self.lines.recv() {
            batch.clear();
            batch.extend_from_slice(&first);
            let mut lines = 1;
            while batch.len() < BATCH_BYTES
                && let Ok(next) = self.lines.try_recv()
            {
                batch.extend_from_slice(&next);
                lines += 1;
            }
            let written = self.write(&batch);
            let caught_up = self.counts.queued.load(Ordering::Relaxed) <= batch.len();
            if written.is_err() {
                // Standard error is closed, so this cannot be logged.
                self.counts.drop_lines(lines);
            } else if caught_up || reported.elapsed() >= REPORT_INTERVAL {
                let dropped = self.counts.unreported.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    reported = Instant::now();
                    (self.report)(dropped);
                }
            }
            // Last, so that a flush waits for the report, too.
            self.counts.queued.fetch_sub(batch.len(), Ordering::Relaxed);
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_dropped_counted_and_reported() {
        let (mut reader, writer) = io::pipe().unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&reports);
        let report = move |count| told.lock().unwrap().push(count);
        let queue = LogQueue::start(writer, report).unwrap();
        // More than the pipe, a batch and the queue hold; this test would hang if it blocked.
        let line = [&[b'x'; 99][..], b"\n"].concat();
        for _ in 0..20_000 {
            queue.push(&line);
        }
        let dropped = queue.counts.dropped.get();
        assert!(dropped > 10_000 && dropped < 20_000, "{dropped}");
        let mut written = vec![0; line.len() * (20_000 - usize::try_from(dropped).unwrap())];
        reader.read_exact(&mut written).unwrap();
        queue.flush();
        assert_eq!(queue.counts.queued.load(Ordering::Relaxed), 0);
        drop(queue);
        // The writer ends when the queue is gone, and closes the pipe.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        assert_eq!(reports.lock().unwrap().iter().sum::<u64>(), dropped);
    }

    #[test]
    fn queued_bytes_are_bounded() {
        let (_reader, writer) = io::pipe().unwrap();
        let queue = LogQueue::start(writer, |_| ()).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..20 {
            queue.push(&line);
            assert!(queue.counts.queued.load(Ordering::Relaxed) <= MAX_BYTES);
        }
        assert!(queue.counts.dropped.get() >= 16);
        queue.push(&vec![b'x'; MAX_BYTES + 1]);
        assert!(queue.counts.queued.load(Ordering::Relaxed) <= MAX_BYTES);
    }

    #[test]
    fn a_closed_pipe_drops_lines() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let queue = LogQueue::start(writer, |_| ()).unwrap();
        queue.push(b"nobody reads this\n");
        queue.flush();
        while queue.counts.dropped.get() == 0 {
            thread::yield_now();
        }
    }
}
