//! A running steering. Entry item: [`Steering::attach`].

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::SteerError;
use crate::bpf::{self, MapKind};
use crate::page::{Beat, LONGEST_BEAT, Page};
use crate::program::{self, Settings};

/// How often each thread must beat.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(50);
/// How long a beat holds as a rule: the time to fail open when a thread hangs.
pub const BEAT_LIMIT: Duration = Duration::from_millis(250);

/// What is steered to where.
#[derive(Debug, Clone, Copy)]
pub struct Steered<'a> {
    /// The port of the other process.
    pub port: u16,
    /// The only address that it listens on; `None` if it listens on all.
    pub address: Option<IpAddr>,
    /// Our listeners for IPv4, over which connections are spread.
    pub ipv4: &'a [BorrowedFd<'a>],
    /// The same for IPv6: as many, or none.
    pub ipv6: &'a [BorrowedFd<'a>],
}

/// New connections are steered as long as this value lives, and no beat has expired. Clones share it.
#[derive(Debug, Clone)]
pub struct Steering {
    page: Arc<Page>,
    beats: u16,
    /// The program is attached until this descriptor is closed, by us or by the end of the process.
    link: Arc<Mutex<Option<OwnedFd>>>,
}

impl Steering {
    /// Attaches a program that is inert until each of the `beats` happened. Needs CAP_BPF and
    /// CAP_NET_ADMIN, for this call only.
    ///
    /// A program that was attached before, such as that of an older process, is replaced in effect:
    /// as soon as ours chooses a listener, that choice counts.
    pub fn attach(steered: &Steered<'_>, beats: u16) -> Result<Steering, SteerError> {
        let step = |what| move |error| SteerError::new(what, error);
        let bytes = u32::from(beats.max(1)) * 8;
        let memory =
            bpf::create_map(MapKind::Memory, bytes, 1).map_err(step("creating a BPF map"))?;
        let page = Page::map(memory.as_fd(), beats.max(1))
            .map_err(step("mapping the memory of a BPF map"))?;
        // As many as there are beats of workers, so the numbers fit.
        let each = steered.ipv4.len().max(steered.ipv6.len()).max(1);
        let each = u16::try_from(each).unwrap_or(u16::MAX);
        let sockets = bpf::create_map(MapKind::Sockets, 4, u32::from(each) * 2)
            .map_err(step("creating a BPF map of sockets"))?;
        let ipv4 = (0..u32::from(each)).zip(steered.ipv4);
        let ipv6 = (u32::from(each)..).zip(steered.ipv6);
        for (index, socket) in ipv4.chain(ipv6) {
            bpf::put_socket(sockets.as_fd(), index, *socket)
                .map_err(step("adding a listener to a BPF map of sockets"))?;
        }
        let program = program::assemble(&Settings {
            port: steered.port,
            address: steered.address,
            beats: beats.max(1),
            furthest: LONGEST_BEAT,
            beats_map: memory.as_raw_fd(),
            listeners: each,
            listeners_map: sockets.as_raw_fd(),
        });
        let program =
            bpf::load(&program).map_err(step("loading a BPF program of type sk_lookup"))?;
        // The link holds the program, and the program holds the maps.
        let link = bpf::attach(program.as_fd()).map_err(step("attaching a BPF program"))?;
        Ok(Steering { page, beats: beats.max(1), link: Arc::new(Mutex::new(Some(link))) })
    }

    /// The beat at this index, below the number of [`attach`](Self::attach). Beats at an index beyond it have no
    /// effect.
    pub fn beat(&self, index: u16) -> Beat {
        Beat::new(&self.page, index)
    }

    /// The number of beats.
    pub fn beats(&self) -> u16 {
        self.beats
    }

    /// Ends the steering. From now on, new connections reach the other process. Those that were
    /// steered before may still be in the queues of our listeners.
    pub fn detach(&self) {
        drop(self.link.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether connections are steered now: the program is attached, and no beat has expired.
    pub fn is_active(&self) -> bool {
        self.is_attached() && self.page.is_valid()
    }

    /// Whether the program is attached.
    pub fn is_attached(&self) -> bool {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

#[cfg(test)]
mod tests;
