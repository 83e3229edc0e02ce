//! The control side of a gateway: the control loop, its background tasks, and the admin endpoint.
//! Entry: [`Gateway::control`].

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context;
use mvp_core::member::{MemberKind, Presence, ViewState};
use mvp_proxy::LocalSlot;
use mvp_proxy::control;
use mvp_proxy::data::{Forwarder, Target, server_name};
use mvp_proxy::peers::{AnyMember, Reachable};
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::Gateway;
use crate::admin::{self, Admin};
use crate::health::Readiness;
use crate::inside;
use crate::members::{self, Members, Seed, Standing, Witness};
use crate::signals::Signals;

impl Gateway {
    /// Who is asked where servers are.
    fn witness(
        &self,
        standing: &Standing,
        slot: &LocalSlot,
        forwarder: &Arc<Forwarder>,
    ) -> Witness {
        if self.local.is_some() {
            return Witness::Local(slot.clone());
        }
        let seed = standing.seed().map(|address| {
            let target = Target {
                id: Arc::clone(address),
                address: Arc::clone(address),
                server_name: server_name(),
                kind: MemberKind::Bare,
                local: false,
            };
            Arc::new(Seed::new(Arc::clone(forwarder), target))
        });
        Witness::Members(AnyMember::new(self.peers(forwarder), self.reader.clone()), seed)
    }

    /// The control loop and the admin endpoint, until a signal comes and the workers have ended.
    pub(super) async fn control(
        self: Arc<Gateway>,
        standing: Standing,
        listener: TcpListener,
        signals: Signals,
        reload: mpsc::Sender<()>,
        workers: Vec<JoinHandle<bool>>,
    ) -> anyhow::Result<()> {
        let slot = LocalSlot::default();
        let (forwarder, layer) = self.layer(slot.clone());
        let _local = layer.layer(self.local(&forwarder));
        self.spawn_let_go(&forwarder);
        tokio::spawn(self.probes.heartbeats().add("control").run());
        // A plain way through without a certificate of its own cannot ask, and need not.
        let can_ask = self.in_force.outbound_local.current().vouched.is_some();
        let local = self.local.as_ref().filter(|_| can_ask);
        if can_ask && self.in_force.outbound_peers.is_some() {
            let never = CancellationToken::new();
            if let Some(local) = local.cloned() {
                let (forwarder, state) = (Arc::clone(&forwarder), self.local_state.clone());
                let never = never.clone();
                let watch = move || {
                    let (forwarder, local) = (Arc::clone(&forwarder), local.clone());
                    control::watch_local(forwarder, local, state.clone(), never.clone())
                };
                tokio::spawn(self.supervisor.clone().run("local-health", watch));
            }
            let (forwarder, reader) = (Arc::clone(&forwarder), self.reader.clone());
            let health = self.health.clone();
            let watch = move || {
                let (forwarder, reader) = (Arc::clone(&forwarder), reader.clone());
                control::watch_members(forwarder, reader, health.clone(), never.clone())
            };
            tokio::spawn(self.supervisor.clone().run("member-health", watch));
        }
        let local = local.map(|local| (Arc::clone(&local.id), slot.clone()));
        let witness = self.witness(&standing, &slot, &forwarder);
        let (membership, members) = members::start(
            &standing,
            self.in_force.members.subscribe(),
            slot,
            witness,
            &self.reader,
            &self.shutdown.leaving,
            &self.supervisor,
        );
        let reach = Reachable { local, peers: Some((forwarder, self.health.clone())) };
        let writer = self.writer.lock().ok().and_then(|mut writer| writer.take());
        let writer = writer.context("the control loop runs once")?;
        // Both go on while the workers drain: requests that are under way need the one, and who
        // waits for the end the other.
        let control = tokio::spawn(control::run(
            membership,
            reach,
            self.settings.clone(),
            writer,
            Arc::clone(&self.metrics),
            CancellationToken::new(),
        ));
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let handed_over = CancellationToken::new();
        let closes = handed_over.clone().cancelled_owned();
        let admin = tokio::spawn(admin::serve(listener, self.admin(&members), closes));

        until_end(control, admin, self.shutdown.run(signals, &reload)).await?;
        self.shutdown.leaving.cancel();
        self.shutdown.stop.cancel();
        if self.share_port {
            handed_over.cancel();
        }
        // Here, so that a second signal is heard meanwhile.
        let join = move || workers.into_iter().all(|worker| worker.join().unwrap_or(false));
        let joined = tokio::task::spawn_blocking(join).await?;
        members.withdrawn().await;
        // Not before: who must not be trusted any more must not be while we drain either.
        drop(reload);
        anyhow::ensure!(joined, "a worker ended by itself; the log has the reason");
        Ok(())
    }

    fn admin(&self, members: &Members) -> Admin {
        let snapshot = self.reader.clone();
        self.probes.ready_when(self.readiness(members));
        let (ready, live) = (Arc::clone(&self.probes), Arc::clone(&self.probes));
        let (metrics, beside) = (Arc::clone(&self.metrics), Arc::clone(&self.registry));
        let (handle, conflicts) = (members.handle(), members.handle());
        let reader = self.reader.clone();
        Admin {
            readiness: Arc::new(move || ready.readiness()),
            liveness: Arc::new(move || live.liveness()),
            forget: Arc::new(move |id| {
                let snapshot = reader.load();
                let member = snapshot.member_by_id(id);
                let member = member.ok_or_else(|| format!("there is no member {id}"))?;
                if snapshot.local().is_some_and(|local| local.id == member.id) {
                    return Err(format!("{id} is the local server"));
                }
                // Until its next heartbeat, what only it serves would be 404.
                if member.presence == Presence::Present
                    && snapshot.view_state(id) == Some(ViewState::Fresh)
                {
                    return Err(format!("{id} is alive: it has just said what it serves"));
                }
                handle.forget(id).map_err(|error| error.to_string())?;
                reader.forget(id);
                Ok(())
            }),
            metrics: Arc::new(move |text| metrics.encode_beside(text, &beside)),
            snapshot: Arc::new(move || inside::described(&snapshot, &conflicts.conflicts())),
        }
    }

    /// All checks of readiness.
    fn readiness(&self, members: &Members) -> Arc<Readiness> {
        let (reader, local) = (self.reader.clone(), self.local_state.clone());
        let merges = self.in_force.outbound_peers.is_some();
        let (leaving, membership) = (self.shutdown.leaving.clone(), members.checks());
        Arc::new(move || {
            let mut checks = vec![inside::shutdown(leaving.is_cancelled())];
            // A plain way through depends on nobody's discovery.
            if merges {
                checks.extend(inside::readiness(&reader, &local));
                checks.extend(membership.get());
            }
            checks
        })
    }
}

/// Waits for the end that was asked for, or that of a task without which nothing can go on: the
/// control loop owns the writer of snapshots, and cannot be started again.
async fn until_end(
    control: tokio::task::JoinHandle<()>,
    admin: tokio::task::JoinHandle<io::Result<()>>,
    asked: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::select! {
        outcome = control => outcome.context("the control loop ended")?,
        outcome = admin => outcome?.context("the admin endpoint ended")?,
        () = asked => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_panic_of_the_control_loop_ends_the_process() {
        let control = tokio::spawn(async { panic!("a bug") });
        let error = until_end(control, tokio::spawn(pending()), pending()).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("the control loop ended: "), "{error:#}");
    }

    #[tokio::test]
    async fn the_end_that_was_asked_for_is_no_error() {
        let (control, admin) = (tokio::spawn(pending()), tokio::spawn(pending()));
        until_end(control, admin, async {}).await.unwrap();
    }
}
