//! What may happen next in a world. Entry item: [`World::steps`].

use super::bits::Bits;
use super::cluster::{A, Ask, B, C, DOWN, Life, Reply, STARTING, Version};
use super::control::health_of;
use super::invariants::{Invariant, Violation};
use super::outcome::{Came, Failure};
use super::peer::{self, Peer};
use super::request::{Phase, Request};
use super::world::{Fetch, Slot, Step, World};
use crate::control::model::Facts;

impl World {
    /// What may happen next.
    pub(super) fn steps(&self) -> Result<Vec<Step>, Violation> {
        let mut steps = Vec::new();
        // Nothing takes time between a decision and a send.
        for (slot, request) in self.slots.iter().enumerate() {
            let Slot::Here(request) = request else { continue };
            if let Phase::Choosing { sending, .. } = request.phase {
                steps.extend(sending.left.iter().map(|member| Step::Send(slot, member)));
                return Ok(steps);
            }
        }
        self.control_steps(&mut steps);
        self.server_steps(&mut steps);
        for (slot, request) in self.slots.iter().enumerate() {
            match request {
                Slot::Awaited => steps.push(Step::Arrive(slot)),
                Slot::Here(request) => self.request_steps(slot, request, &mut steps)?,
                Slot::Gone => {}
            }
        }
        Ok(steps)
    }

    fn may_fail(&self) -> bool {
        self.faults < self.setup.faults
    }

    fn control_steps(&self, steps: &mut Vec<Step>) {
        let idle = |facts: &Facts<'_>| facts.left.is_none() && facts.running.is_none();
        if self.roster.facts().any(|facts| idle(&facts)) {
            steps.push(Step::Tick);
        }
        for (member, fetch) in self.fetches.iter().enumerate() {
            let Some(Fetch { seen, .. }) = fetch else { continue };
            let is_mute = self.setup.mute.is_some_and(|(mute, _)| mute == member);
            if !is_mute {
                let sent = Version::ALL.into_iter().filter(|version| seen.has(*version as usize));
                steps.extend(sent.map(|version| Step::Fetched(member, version)));
            }
            if is_mute || seen.meets(DOWN.with(STARTING)) || self.may_fail() {
                steps.push(Step::FetchLost(member));
            }
        }
        if !self.complete {
            steps.push(Step::Complete);
        }
        if self.setup.local && self.health != health_of(self.servers[A].life) {
            steps.push(Step::Probe);
        }
    }

    fn server_steps(&self, steps: &mut Vec<Step>) {
        for (member, server) in self.servers.iter().enumerate() {
            match server.life {
                Life::Up(_) if self.may_fail() => {
                    steps.extend([Step::Change(member), Step::Crash(member)]);
                }
                Life::Up(_) => {}
                Life::Starting(_) => steps.push(Step::Ready),
                Life::Down(version) => {
                    steps.push(Step::Start(member, version));
                    if self.may_fail() || self.setup.away == Some(member) {
                        steps.push(Step::Start(member, version.other()));
                    }
                    if server.named && !self.is_local(member) {
                        steps.push(Step::Unlist(member));
                    }
                }
            }
        }
        if self.may_fail() && !self.slots.iter().any(|slot| matches!(slot, Slot::Here(_))) {
            steps.extend(self.setup.jumps.iter().map(|seconds| Step::Pass(*seconds)));
        }
    }

    fn request_steps(
        &self,
        slot: usize,
        request: &Request,
        steps: &mut Vec<Step>,
    ) -> Result<(), Violation> {
        match request.phase {
            Phase::Arrived | Phase::Done(_) | Phase::Choosing { .. } => {}
            Phase::Refreshing { .. } => steps.push(Step::WaitOver(slot)),
            Phase::Sent { to, seen, sending, .. } => {
                let insists = sending.is_some_and(|sending| sending.insists);
                let came = self.comes_of(request.ask, to, seen, insists)?;
                if came.is_empty() {
                    return Err(Invariant::Ends.broken("nothing can come of a request"));
                }
                steps.extend(came.into_iter().map(|came| Step::Came(slot, came)));
            }
        }
        Ok(())
    }

    /// What can come of a request that a server with these states got.
    pub(super) fn comes_of(
        &self,
        ask: &'static Ask,
        to: usize,
        seen: Bits,
        insists: bool,
    ) -> Result<Vec<Came>, Violation> {
        let mut came = Vec::new();
        let ups = || Version::ALL.into_iter().filter(|version| seen.has(*version as usize));
        if self.has_gateway(to) {
            let [had, others] =
                [self.servers[B].had, self.servers[A].had.with(self.servers[C].had)];
            let peer = Peer { rules: self.rules, ask, had, others, insists };
            for version in ups() {
                came.extend(peer::outcomes(&peer, Life::Up(version))?);
            }
            if seen.meets(DOWN) {
                came.extend(peer::outcomes(&peer, Life::Down(Version::Old))?);
            }
        } else {
            came.extend(ups().map(|version| Came::Reply(ask.answered_by(version))));
        }
        if seen.meets(STARTING) {
            came.push(Came::Reply(Reply::Forbidden));
        }
        if seen.meets(DOWN) {
            came.push(Came::Failed { stage: Failure::Connect, processed: false });
        }
        // It was cut off: by a crash, or by the network.
        if !seen.is_empty() && seen != DOWN && (seen.meets(DOWN) || self.may_fail()) {
            let processed =
                ups().any(|version| Came::Reply(ask.answered_by(version)).is_processed());
            came.push(Came::Failed { stage: Failure::Exchange, processed });
        }
        came.sort();
        came.dedup();
        Ok(came)
    }
}
