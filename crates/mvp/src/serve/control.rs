//! The control side of a gateway: the control loop, its background tasks, and the admin endpoint.
//! Entry: [`Gateway::control`].

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use anyhow::Context;
use bytes::Bytes;
use futures_util::FutureExt;
use mvp_core::member::{MemberKind, Presence, ViewState};
use mvp_proxy::{Flow, Target, Worker, server_name};
use prometheus_client::encoding::text::encode;
use tokio_util::sync::CancellationToken;

use super::{AdminEndpoint, Gateway};
use crate::admin::apart::Apart;
use crate::admin::{self, Admin};
use crate::callers;
use crate::dashboard;
use crate::dashboard::board::{Board, Sources};
use crate::follow::restart;
use crate::health::Readiness;
use crate::inside;
use crate::members::{self, CountedReads, Members, Seed, Standing, Witness};
use crate::report::gather::Reporter;
use crate::report::pages::Page;
use crate::report::relay::Relay;
use crate::report::{Answered, Gateways};
use crate::signals::Signals;
use crate::steering::{Steered, fault};

impl Gateway {
    /// The servers that are asked for EndpointSlices and StorageVersions.
    fn witness(&self, standing: &Standing, worker: &Worker) -> Witness {
        if self.member.id().is_some() {
            return Witness::Local(worker.own_requests());
        }
        let seed = standing.seed().map(|address| {
            let target = Target {
                id: Arc::clone(address),
                address: Arc::clone(address),
                server_name: server_name(),
                kind: MemberKind::Bare,
                local: false,
                source: None,
            };
            Arc::new(Seed::new(Arc::clone(worker.forwarder()), target))
        });
        Witness::Members(worker.any_member(), seed)
    }

    /// Runs the control loop and the admin endpoint until a signal arrives and all workers have ended.
    pub(super) async fn control(
        self: Arc<Gateway>,
        standing: Standing,
        endpoint: AdminEndpoint,
        signals: Signals,
        reload: mpsc::Sender<()>,
        workers: Vec<JoinHandle<bool>>,
    ) -> anyhow::Result<()> {
        let worker = self.member.worker();
        let _gateway = worker.gateway();
        self.spawn_prune(&worker);
        tokio::spawn(self.probes.heartbeats().add("control").run());
        let exporting = self.traces.as_ref().and_then(|traces| traces.start(&self.supervisor));
        let probed = worker.clone();
        let watch = move || probed.clone().watch_local();
        tokio::spawn(self.supervisor.clone().run("local-health", watch));
        let probed = worker.clone();
        let watch = move || probed.clone().watch_members();
        tokio::spawn(self.supervisor.clone().run("member-health", watch));
        let asking = worker.clone();
        let watch = move || asking.clone().watch_request_headers();
        tokio::spawn(self.supervisor.clone().run("request-headers", watch));
        let (membership, members) = members::start(
            &standing,
            self.in_force.members.subscribe(),
            CountedReads::new(worker.own_requests(), self.member.metrics()),
            self.witness(&standing, &worker),
            self.member.reader(),
            &self.shutdown.leaving,
            &self.supervisor,
        );
        let relay = Relay::new(Arc::clone(worker.forwarder()), self.member.reader().clone());
        let reporter = Arc::new(self.reporter(&members));
        let report = Arc::clone(&reporter);
        self.pages.written_by(Arc::new(move |page| written(&report, page)));
        // Both run while the workers drain: requests in flight need the control loop, and operators
        // need the admin endpoint.
        let control = tokio::spawn(worker.run_control_loop(membership, CancellationToken::new()));
        let AdminEndpoint { listener, socket, hosts, secure } = endpoint;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let handed_over = CancellationToken::new();
        let closes = handed_over.clone().cancelled_owned().shared();
        let relay = Arc::new(relay);
        let sources = self.sources(&reporter, &relay);
        let board = Board::new(sources, handed_over.clone());
        let computed = Arc::clone(&board);
        let compute = move || Arc::clone(&computed).run();
        tokio::spawn(self.supervisor.clone().run("dashboard", compute));
        if let Some(secure) = secure {
            let (tls, stop) = (self.in_force.tls.clone(), self.shutdown.stop.clone());
            secure.serve(Arc::clone(&board), tls, stop)?;
        }
        let admin = self.admin(&members, reporter, relay, board);
        let admin = admin::serve(listener, socket, hosts, admin, closes);

        let steered = self.steered.clone();
        let end_steering = || steered.iter().for_each(Steered::end);
        let new_flags = self.shutdown.flags_changed.subscribe();
        let restart = restart::due(new_flags, self.member.local_state());
        let asked = self.shutdown.run(signals, &reload, restart, end_steering);
        let outcome = until_end(control, tokio::spawn(admin), asked).await;
        // Before the listeners close, and before an error ends this process.
        end_steering();
        self.shutdown.leaving.cancel();
        self.shutdown.stop.cancel();
        if self.share_port {
            handed_over.cancel();
        }
        // On another thread, so that this one handles a second signal meanwhile.
        let join = move || workers.into_iter().all(|worker| worker.join().unwrap_or(false));
        let joined = tokio::task::spawn_blocking(join).await?;
        members.withdrawn().await;
        if let Some(exporting) = exporting {
            exporting.end().await;
        }
        // Not before: a CA that was revoked must not be trusted during the drain either.
        drop(reload);
        outcome?;
        anyhow::ensure!(joined, "a worker failed; see the log for the reason");
        Ok(())
    }

    /// What writes the reports of this gateway.
    fn reporter(&self, members: &Members) -> Reporter {
        let (conflicts, steered) = (members.handle(), self.steered.clone());
        let metrics = Arc::clone(self.member.metrics());
        Reporter {
            id: self.member.id().cloned(),
            reader: self.member.reader().clone(),
            probes: Arc::clone(&self.probes),
            metrics: self.metrics_text(),
            conflicts: Box::new(move || {
                conflicts.conflicts().iter().map(ToString::to_string).collect()
            }),
            steering: Box::new(move || steered.as_ref().map(Steered::state)),
            connection_limit: self.max_connections,
            flow: Box::new(move || metrics.flow().map(Flow::counts)),
        }
    }

    /// Writes all metrics as OpenMetrics text.
    fn metrics_text(&self) -> Arc<dyn Fn(&mut String) + Send + Sync> {
        let (metrics, registry) = (Arc::clone(self.member.metrics()), Arc::clone(&self.registry));
        Arc::new(move |text| {
            metrics.encode_open(text);
            // Writing to a string cannot fail.
            let _ = encode(text, &registry);
        })
    }

    /// What the dashboard shows.
    fn sources(&self, reporter: &Arc<Reporter>, relay: &Arc<Relay>) -> Sources {
        let (reporter, relay) = (Arc::clone(reporter), Arc::clone(relay));
        let reader = self.member.reader().clone();
        let (apis, marked) = (reader.clone(), reader.clone());
        let recorded = Arc::clone(self.member.metrics());
        Sources {
            status: Box::new(move || Some(reporter.status())),
            apis: Box::new(move || dashboard::servers(&apis)),
            marks: Box::new(move || inside::marks(&marked)),
            callers: Box::new(move || callers::described(&recorded, &reader, false)),
            others: Box::new(move || {
                let relay = Arc::clone(&relay);
                Box::pin(async move { relay.ask(Page::Status).await.0 })
            }),
        }
    }

    fn admin(
        &self,
        members: &Members,
        reporter: Arc<Reporter>,
        relay: Arc<Relay>,
        board: Arc<Board>,
    ) -> Admin {
        let snapshot = self.member.reader().clone();
        let apis = snapshot.clone();
        self.probes.ready_when(self.readiness(members));
        let (ready, live) = (Arc::clone(&self.probes), Arc::clone(&self.probes));
        let apart = Apart::default();
        let writing = apart.clone();
        let (recorded, clock) = (Arc::clone(self.member.metrics()), snapshot.clone());
        let (handle, conflicts) = (members.handle(), members.handle());
        let reader = self.member.reader().clone();
        Admin {
            readiness: Arc::new(move || ready.readiness()),
            liveness: Arc::new(move || live.liveness()),
            forget: Arc::new(move |id| {
                let snapshot = reader.load();
                let member = snapshot.member_by_id(id);
                let member = member.ok_or_else(|| format!("there is no member {id}"))?;
                if snapshot.local().is_some_and(|local| local.id == member.id) {
                    return Err(format!("{id} is the local server, which is not forgotten").into());
                }
                // Until its next heartbeat, APIs that only it serves would get 404.
                if member.presence == Presence::Present
                    && snapshot.view_state(id) == Some(ViewState::Fresh)
                {
                    return Err(format!("{id} is alive: its discovery was just fetched").into());
                }
                handle.forget(id).map_err(|error| error.to_string())?;
                reader.forget(id);
                Ok(())
            }),
            metrics: self.metrics_text(),
            apart,
            status: Arc::new(move |all| {
                let (reporter, relay) = (Arc::clone(&reporter), Arc::clone(&relay));
                let writing = writing.clone();
                Box::pin(async move {
                    let own = writing.run(move || reporter.status()).await?;
                    let mut gateways = vec![Answered::own(own)];
                    let (others, left_out) = match all {
                        true => relay.ask(Page::Status).await,
                        false => (Vec::new(), 0),
                    };
                    gateways.extend(others);
                    Some(Gateways { gateways, left_out })
                })
            }),
            callers: Arc::new(move |addresses| callers::described(&recorded, &clock, addresses)),
            flags: Arc::clone(&self.flags),
            board,
            snapshot: Arc::new(move || inside::described(&snapshot, &conflicts.conflicts())),
            apis: Arc::new(move || inside::apis(&apis)),
        }
    }

    /// The checks of readiness. The steering begins when all others pass.
    fn readiness(&self, members: &Members) -> Arc<Readiness> {
        let others = self.readiness_to_serve(members);
        let Some(steered) = self.steered.clone() else { return others };
        let ready = Arc::clone(&others);
        let is_ready = move || ready().iter().all(|check| check.problem.is_none());
        let live = Arc::clone(&self.probes);
        let makes_progress = move || live.control_loop_runs();
        let local = self.member.local_state().cloned();
        tokio::spawn(steered.clone().beat_control(is_ready, makes_progress, local.clone()));
        if let (Some(local), Some(way)) = (local, self.way.clone()) {
            let steered = steered.clone();
            let metrics = self.reload_metrics.clone();
            let new_flags = self.shutdown.flags_changed.clone();
            let watch = move || {
                let (metrics, new_flags) = (metrics.clone(), new_flags.clone());
                let of_flags = move || {
                    // Clients reject it, but perhaps not the server's.
                    let expired = "the certificate of --tls-cert-file has expired; renew it";
                    let is_expired = metrics.serving_has_expired(SystemTime::now());
                    let unusable = || new_flags.borrow().fault(Instant::now());
                    is_expired.then(|| expired.to_owned()).or_else(unusable)
                };
                fault::watch(steered.clone(), local.clone(), way.clone(), of_flags)
            };
            tokio::spawn(self.supervisor.clone().run("steering-fault", watch));
        }
        let (unsteered, place) = (steered.unsteered(), steered.place());
        let watch = move || unsteered.clone().watch(place);
        tokio::spawn(self.supervisor.clone().run("unsteered-connections", watch));
        Arc::new(move || {
            let mut checks = others();
            checks.push(steered.check());
            checks
        })
    }

    /// The checks of readiness without the steering.
    fn readiness_to_serve(&self, members: &Members) -> Arc<Readiness> {
        let (reader, local) = (self.member.reader().clone(), self.member.local_state().cloned());
        let merges = self.in_force.outbound_peers.is_some();
        let (leaving, membership) = (self.shutdown.leaving.clone(), members.checks());
        // Without a proxy certificate no server believes our headers, and none is asked.
        let member = self.in_force.outbound_local.current().vouched.is_some();
        let member = member.then(|| self.member.clone());
        Arc::new(move || {
            let mut checks = vec![inside::shutdown(leaving.is_cancelled())];
            // A plain reverse proxy depends on no discovery.
            if merges {
                checks.extend(inside::readiness(&reader, local.as_ref()));
                checks.extend(membership.get());
            }
            checks.extend(member.as_ref().map(|m| inside::request_headers(&m.request_headers())));
            checks
        })
    }
}

/// A page for peers, as JSON.
fn written(reporter: &Reporter, page: Page) -> Bytes {
    let written = match page {
        Page::Status => serde_json::to_vec(&reporter.status()),
    };
    // Only maps with other keys than strings cannot be written.
    written.unwrap_or_default().into()
}

/// Waits for the requested shutdown, or for the end of a task that cannot be restarted: the control
/// loop owns the only writer of snapshots.
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
    async fn a_requested_shutdown_is_no_error() {
        let (control, admin) = (tokio::spawn(pending()), tokio::spawn(pending()));
        until_end(control, admin, async {}).await.unwrap();
    }
}
