//! A request as it is sent to servers, and whether it lasts. Entry item: [`outgoing`].

use mvp_core::request::DiscoveryPath;
use mvp_core::{RequestInfo, Snapshot, Verb};

use super::exchange::Arrived;
use crate::envelope::Lasting;
use crate::upstream::Outgoing;

/// The request as it is sent to servers.
pub(super) fn outgoing<'a>(
    request: &'a Arrived,
    info: &RequestInfo<'_>,
    snapshot: &Snapshot,
) -> Outgoing<'a> {
    let Arrived { parts, body, trace, .. } = request;
    let lasting = lasting(info, snapshot, body.is_empty());
    Outgoing { parts, body, lasting, trace: trace.as_ref() }
}

/// Whether the response lasts, or does not come from the server itself.
fn lasting(info: &RequestInfo<'_>, snapshot: &Snapshot, no_body: bool) -> Option<Lasting> {
    let request = match info {
        RequestInfo::Resource(request) => request,
        RequestInfo::Discovery(DiscoveryPath::GroupVersion(group, version)) => {
            return snapshot.is_extension(group, version).then_some(Lasting::Relayed);
        }
        _ => return None,
    };
    // Servers do not read the body of a read: its unread frames could end a shared connection.
    let unread = request.verb.is_read() && !no_body;
    if unread || request.is_relayed() || snapshot.is_extension(&request.group, &request.version) {
        return Some(Lasting::Relayed);
    }
    (request.verb == Verb::Watch).then_some(Lasting::Watch)
}
