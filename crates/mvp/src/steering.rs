//! `--steer`: connections of the local server's port are handed to this process. Entry: [`Prepared`].
//!
//! The rights for it are needed for a moment only, before the first thread starts ([`prepare`]). The
//! program in the kernel stays inert until every worker and the control loop beat
//! ([`Steered::beat_worker`], [`Steered::beat_control`]), and the control loop begins with the first
//! readiness. Whatever stops a beat lets new connections reach the server itself.

pub(crate) mod fault;
mod lapses;
pub(crate) mod unsteered;

use std::fmt;
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use mvp_core::decide::LocalHealth;
use mvp_net::{ConnectionLimit, bind_steered};
use mvp_proxy::LocalState;
use mvp_steer::connections::Place;
use mvp_steer::{BEAT_INTERVAL, BEAT_LIMIT, Beat, LONGEST_BEAT, Steering, capabilities};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use self::fault::Fault;
use self::lapses::Lapses;
use self::unsteered::Unsteered;
use crate::admin::Check;
use crate::config::ServeConfig;
use crate::report::SteeringState;

/// How often the control loop looks whether the gateway is ready for the first time.
const READY_INTERVAL: Duration = Duration::from_millis(100);

/// The sockets of a gateway that steers, and the program in the kernel.
pub(crate) struct Prepared {
    /// For each worker, one for IPv4 and one for IPv6.
    pub(crate) listeners: Vec<Vec<TcpListener>>,
    pub(crate) steered: Steered,
}

/// Opens the sockets, attaches the program, and drops the rights for it. `None` without `--steer`.
///
/// Call it before any thread is started: rights belong to threads. A program that cannot be attached
/// is no error here: the gateway runs, tells why, and is not ready.
pub(crate) fn prepare(config: &ServeConfig) -> anyhow::Result<Option<Prepared>> {
    if config.steer.is_none() {
        return Ok(None);
    }
    let listeners = bind_steered(config.workers).context("cannot listen on 127.0.0.1")?;
    let of_family = |family| listeners.iter().filter_map(move |l: &Vec<_>| l.get(family));
    let [ipv4, ipv6] = [0, 1].map(|family| of_family(family).map(AsFd::as_fd).collect::<Vec<_>>());
    let place = Place {
        port: config.listen.port(),
        // A server on one address: nobody expects it, or us, at the others.
        address: config.around().map(|around| around.server.ip()),
    };
    let steered =
        mvp_steer::Steered { port: place.port, address: place.address, ipv4: &ipv4, ipv6: &ipv6 };
    let beats = u16::try_from(listeners.len() + 1).context("too many workers")?;
    let attached = Steering::attach(&steered, beats).map_err(|error| error.to_string());
    capabilities::drop_all().context("cannot drop capabilities")?;
    let state = State {
        attached,
        place,
        unsteered: Unsteered::default(),
        lapses: Lapses::default(),
        holds: AtomicU64::new(0),
        begun: AtomicBool::new(false),
        fault: Mutex::default(),
    };
    Ok(Some(Prepared { listeners, steered: Steered(Arc::new(state)) }))
}

/// The steering of this process. Clones share it.
#[derive(Clone)]
pub(crate) struct Steered(Arc<State>);

struct State {
    /// The program in the kernel, or why there is none.
    attached: Result<Steering, String>,
    place: Place,
    /// The connections that do not come to this process all the same.
    unsteered: Unsteered,
    lapses: Lapses,
    /// How long the last beat holds, in milliseconds.
    holds: AtomicU64,
    /// Whether the gateway was ready once, so that the control loop beats.
    begun: AtomicBool,
    fault: Mutex<Fault>,
}

/// What happens to new connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no program in the kernel.
    Unavailable(String),
    /// The gateway is not ready yet.
    Waiting,
    /// They come to this process.
    Active,
    /// They go to the server, because this process could not serve them.
    Paused(String),
    /// They go to the server, because this process shuts down.
    Ended,
}

impl Steered {
    /// Logs what was done before the log was there.
    pub(crate) fn report(&self) {
        if let Err(error) = &self.0.attached {
            tracing::error!(error, "cannot steer connections");
        }
    }

    /// The port whose connections are steered.
    pub(crate) fn place(&self) -> Place {
        self.0.place
    }

    /// The connections that do not come to this process all the same.
    pub(crate) fn unsteered(&self) -> Unsteered {
        self.0.unsteered.clone()
    }

    /// The times in which connections did not come to this process because a thread was late.
    pub(crate) fn lapses(&self) -> Lapses {
        self.0.lapses.clone()
    }

    /// The state for reports.
    pub(crate) fn state(&self) -> SteeringState {
        let counted = self.0.unsteered.last();
        SteeringState {
            port: self.0.place.port,
            address: self.0.place.address,
            active: self.phase() == Phase::Active,
            unsteered_connections: counted.map(|counted| counted.clients),
            unclear_connections: counted.map_or(0, |counted| counted.unclear),
            lapses: self.0.lapses.count(),
            lapsed_seconds_ago: self.0.lapses.last(Instant::now()).map(|ago| ago.as_secs()),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match &self.0.attached {
            Err(reason) => Phase::Unavailable(reason.clone()),
            Ok(steering) if !steering.is_attached() => Phase::Ended,
            Ok(_) if !self.0.begun.load(Ordering::Relaxed) => Phase::Waiting,
            Ok(steering) if steering.is_active() => Phase::Active,
            Ok(_) => Phase::Paused(match self.fault() {
                Fault::Confirmed(reason) => reason,
                Fault::None | Fault::Suspected => {
                    "no room for connections, or a thread is stuck; see the log".to_owned()
                }
            }),
        }
    }

    /// Beats for one worker as long as its runtime polls this, and has room for connections.
    pub(crate) async fn beat_worker(
        self,
        index: usize,
        limit: ConnectionLimit,
        local: Option<LocalState>,
    ) {
        // The first beat is that of the control loop.
        let Some(beat) = u16::try_from(index + 1).ok().and_then(|index| self.beat(index)) else {
            return;
        };
        let (thread, mut had_room) = (format!("worker-{index}"), true);
        let mut before = Instant::now();
        loop {
            before = self.note_late(&thread, &beat, before);
            let has_room = limit.has_room() && (had_room || has_descriptor());
            if has_room {
                beat.beat(self.holds(local.as_ref()));
            } else {
                beat.pause();
            }
            match (had_room, has_room) {
                (true, false) => {
                    let reason = "no descriptors, memory or ports, or no room for connections";
                    tracing::warn!(worker = index, reason, "steering paused");
                }
                (false, true) => tracing::info!(worker = index, "steering resumed"),
                _ => {}
            }
            had_room = has_room;
            tokio::time::sleep(BEAT_INTERVAL).await;
        }
    }

    /// Waits for the first readiness, then beats for the control loop, as long as it makes progress and
    /// this gateway is not at fault.
    pub(crate) async fn beat_control(
        self,
        is_ready: impl Fn() -> bool,
        makes_progress: impl Fn() -> bool,
        local: Option<LocalState>,
    ) {
        let Some(beat) = self.beat(0) else { return };
        while !is_ready() {
            tokio::time::sleep(READY_INTERVAL).await;
        }
        self.0.begun.store(true, Ordering::Relaxed);
        if self.phase() != Phase::Ended {
            tracing::info!(port = self.0.place.port, "steering started");
        }
        let mut before = Instant::now();
        loop {
            before = self.note_late("control", &beat, before);
            let at_fault = matches!(self.fault(), Fault::Confirmed(_));
            if !at_fault && makes_progress() {
                beat.beat(self.holds(local.as_ref()));
            } else {
                beat.pause();
            }
            tokio::time::sleep(BEAT_INTERVAL).await;
        }
    }

    /// How long a beat holds. New connections are of no use to a server that is down or starting: its
    /// port is closed, or it sends false 403s and 404s. Then a thread may be late for longer. So it may
    /// on a host that is short of CPU time: each time that it is late, clients could get false 404s.
    fn holds(&self, local: Option<&LocalState>) -> Duration {
        let is_down = local.is_some_and(|local| local.get() != LocalHealth::Ready);
        let may_be_late = is_down || self.0.lapses.are_likely(Instant::now());
        let is_long = may_be_late && self.fault() == Fault::None;
        let holds = if is_long { LONGEST_BEAT } else { BEAT_LIMIT };
        let milliseconds = u64::try_from(holds.as_millis()).unwrap_or(u64::MAX);
        self.0.holds.store(milliseconds, Ordering::Relaxed);
        holds
    }

    /// Notes that a beat has expired before the next one, unless connections do not come anyway. `before`
    /// is the time of the beat before; returns that of this one.
    fn note_late(&self, thread: &str, beat: &Beat, before: Instant) -> Instant {
        let now = Instant::now();
        self.0.lapses.note_gap(now.duration_since(before), now);
        let Some(late) = beat.late() else { return now };
        let attached = self.0.attached.as_ref().is_ok_and(Steering::is_attached);
        let begun = self.0.begun.load(Ordering::Relaxed);
        if attached && begun && !matches!(self.fault(), Fault::Confirmed(_)) {
            self.0.lapses.note(thread, late, now);
        }
        now
    }

    fn fault(&self) -> Fault {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives new connections back to the server while there is a fault of this gateway.
    fn set_fault(&self, fault: Fault) {
        let before = {
            let mut current = self.0.fault.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, fault.clone())
        };
        match (before, fault) {
            (Fault::Confirmed(_), Fault::Confirmed(_)) => {}
            (_, Fault::Confirmed(reason)) => tracing::error!(reason, "steering paused"),
            (Fault::Confirmed(_), _) => tracing::info!("steering resumed"),
            _ => {}
        }
    }

    fn beat(&self, index: u16) -> Option<Beat> {
        self.0.attached.as_ref().ok().map(|steering| steering.beat(index))
    }

    /// Ends the steering: from now on, new connections reach the server itself.
    pub(crate) fn end(&self) {
        if let Ok(steering) = &self.0.attached
            && steering.is_attached()
        {
            steering.detach();
            tracing::info!(port = self.0.place.port, "steering ended");
        }
    }

    /// The check of readiness.
    pub(crate) fn check(&self) -> Check {
        let (problem, remark) = match self.phase() {
            Phase::Unavailable(reason) => {
                (Some(format!("connections are not steered: {reason}")), None)
            }
            Phase::Waiting => (Some("it begins when the other checks pass".to_owned()), None),
            Phase::Ended => (Some("the process is shutting down".to_owned()), None),
            Phase::Paused(reason) => {
                (Some(format!("new connections reach the server itself: {reason}")), None)
            }
            Phase::Active => (None, None),
        };
        Check { name: "steering".to_owned(), problem, remark }
    }
}

impl fmt::Debug for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Steered").field(&self.phase()).finish()
    }
}

/// Whether a descriptor is left for the next connection.
fn has_descriptor() -> bool {
    File::open("/dev/null").is_ok()
}

/// Whether connections are steered, as a metric.
#[derive(Debug)]
pub(crate) struct SteeringMetrics(pub(crate) Steered);

impl Collector for SteeringMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help =
            "Steering of new connections for the API port to this process: 1 if active, else 0";
        let active = ConstGauge::new(i64::from(self.0.phase() == Phase::Active));
        let metric =
            encoder.encode_descriptor("mvp_steering_active", help, None, active.metric_type())?;
        active.encode(metric)?;
        let (name, help) = (
            "mvp_steering_tolerance_seconds",
            "How late a thread may be before new connections reach the server itself, in seconds",
        );
        let holds = Duration::from_millis(self.0.0.holds.load(Ordering::Relaxed));
        let holds = ConstGauge::new(holds.as_secs_f64());
        holds.encode(encoder.encode_descriptor(name, help, None, holds.metric_type())?)
    }
}

#[cfg(test)]
mod tests;
