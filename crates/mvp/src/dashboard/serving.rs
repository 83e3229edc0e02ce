//! What members serve, as `mvp skew` compares it. Entry: [`servers`].

use mvp_core::discovery::Part;
use mvp_core::member::{Member, Presence, ViewState};
use mvp_proxy::control::SnapshotReader;

use crate::operator::skew::{Known, Server, Surface};

/// The members as servers.
pub(crate) fn servers(reader: &SnapshotReader) -> Vec<Server> {
    let snapshot = reader.load();
    let server = |member: &Member| {
        let stale_seconds = match snapshot.view_state(&member.id) {
            Some(ViewState::Stale(age)) => Some(age.as_secs_f64()),
            _ => None,
        };
        let known = member.view.part(Part::Api).zip(member.view.part(Part::Apis));
        let surface = known.map(|(api, apis)| {
            let mut surface = Surface::default();
            surface.add(&api.list);
            surface.add(&apis.list);
            surface
        });
        let known = Known {
            id: member.id.to_string(),
            present: member.presence == Presence::Present,
            release: member.view.release.map(|release| release.to_string()),
            stale_seconds,
            last_error: reader.trouble(&member.id),
            surface,
        };
        known.server()
    };
    snapshot.members().map(server).collect()
}
