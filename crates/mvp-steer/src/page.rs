//! The memory that this process shares with the program in the kernel: one beat for each thread.
//! Entry item: [`Beat`].
//!
//! A beat is the time at which it expires, stored to memory: no system call, no rights.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest time that a beat can hold.
pub const LONGEST_BEAT: Duration = Duration::from_secs(2);

/// Memory of a map, as an array of times.
#[derive(Debug)]
pub(crate) struct Page {
    first: NonNull<AtomicU64>,
    count: u16,
}

// SAFETY: the memory belongs to this value until it is dropped, and is only accessed as atomics.
#[allow(unsafe_code)]
unsafe impl Send for Page {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Page {}

impl Page {
    /// Maps the memory of a map with `count` times in its only value.
    pub(crate) fn map(map: BorrowedFd<'_>, count: u16) -> io::Result<Arc<Page>> {
        let bytes = bytes(count);
        // SAFETY: a new mapping at an address of the kernel's choice. It touches no memory of ours.
        #[allow(unsafe_code)]
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let first = NonNull::new(address.cast::<AtomicU64>()).ok_or_else(no_memory)?;
        Ok(Arc::new(Page { first, count }))
    }

    /// Whether no beat has expired, by the rule of the program.
    pub(crate) fn is_valid(&self) -> bool {
        let now = monotonic_time();
        let valid = now..=now.saturating_add(nanoseconds(LONGEST_BEAT));
        (0..self.count)
            .filter_map(|index| self.slot(index))
            .all(|slot| valid.contains(&slot.load(Ordering::Relaxed)))
    }

    fn slot(&self, index: u16) -> Option<&AtomicU64> {
        if index >= self.count {
            return None;
        }
        // SAFETY: the mapping has `count` times, and `index` is below that.
        #[allow(unsafe_code)]
        let slot = unsafe { self.first.add(usize::from(index)) };
        // SAFETY: the mapping is aligned to a page, valid for as long as `self` lives, and only
        // accessed as atomics, by the kernel's program, too.
        #[allow(unsafe_code)]
        Some(unsafe { slot.as_ref() })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map` with this length, and no reference to it is left.
        #[allow(unsafe_code)]
        unsafe {
            libc::munmap(self.first.as_ptr().cast(), bytes(self.count))
        };
    }
}

fn bytes(count: u16) -> usize {
    usize::from(count) * size_of::<u64>()
}

/// The beat of one thread. Connections are steered only while no beat has expired.
#[derive(Debug)]
pub struct Beat {
    page: Arc<Page>,
    index: u16,
}

impl Beat {
    pub(crate) fn new(page: &Arc<Page>, index: u16) -> Beat {
        Beat { page: Arc::clone(page), index }
    }

    /// This thread is alive, and can serve new connections. It says so for this long, at most for
    /// [`LONGEST_BEAT`].
    pub fn beat(&self, holds: Duration) {
        let holds = nanoseconds(holds.min(LONGEST_BEAT));
        self.store(monotonic_time().saturating_add(holds));
    }

    /// For how long the last beat has expired, if it has. A pause does not expire.
    pub fn late(&self) -> Option<Duration> {
        let (now, expires) = (monotonic_time(), self.last());
        (expires != 0 && expires < now).then(|| Duration::from_nanos(now - expires))
    }

    /// This thread cannot serve new connections: from now on none is steered, until the next
    /// [`beat`](Self::beat).
    pub fn pause(&self) {
        self.store(0);
    }

    fn store(&self, time: u64) {
        if let Some(slot) = self.page.slot(self.index) {
            slot.store(time, Ordering::Relaxed);
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.page.slot(self.index).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }
}

impl Drop for Beat {
    /// A thread that ended serves nobody.
    fn drop(&mut self) {
        self.pause();
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The time in nanoseconds by the clock that the program reads.
fn monotonic_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes during the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    match (result, u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec)) {
        (0, Ok(seconds), Ok(nanoseconds)) => {
            seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
        }
        // As a beat that has expired: this clock cannot fail on Linux.
        _ => 0,
    }
}
