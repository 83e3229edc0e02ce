//! The questions that the proxy asks about a request.

use mvp_core::discovery::Part;

use crate::parse;

#[test]
fn only_reads_without_a_tunnel_may_be_replayed() {
    // Whether it is a read, and whether it may be replayed.
    let table = [
        ("GET /api/v1/namespaces/x/pods/y", true, true),
        ("HEAD /api/v1/namespaces/x/pods/y", true, true),
        ("GET /api/v1/pods", true, true),
        ("GET /api/v1/pods?watch=1", true, true),
        ("GET /api/v1/watch/pods", true, true),
        ("GET /api/v1/namespaces/x/pods/y/log", true, true),
        ("GET /api/v1/namespaces/x/pods/y/status", true, true),
        ("GET /api", true, true),
        ("GET /apis", true, true),
        ("HEAD /apis/apps", true, true),
        ("GET /apis/apps/v1", true, true),
        ("GET /openapi/v2", true, true),
        ("GET /openapi/v3", true, true),
        ("GET /openapi/v3/api/v1", true, true),
        ("GET /healthz", true, true),
        ("HEAD /version", true, true),
        // These subresources accept GET and do whatever their other end does.
        ("GET /api/v1/namespaces/x/pods/y/exec?command=rm", true, false),
        ("GET /api/v1/namespaces/x/pods/y/attach", true, false),
        ("GET /api/v1/namespaces/x/pods/y/portforward", true, false),
        ("GET /api/v1/namespaces/x/pods/y/proxy/a", true, false),
        ("GET /api/v1/nodes/n/proxy", true, false),
        ("GET /api/v1/proxy/nodes/n", false, false),
        ("POST /api/v1/namespaces/x/pods", false, false),
        ("PUT /api/v1/namespaces/x/pods/y", false, false),
        ("PATCH /api/v1/namespaces/x/pods/y", false, false),
        ("DELETE /api/v1/namespaces/x/pods/y", false, false),
        ("DELETE /api/v1/namespaces/x/pods", false, false),
        ("POST /api/v1/namespaces/x/pods/y/eviction", false, false),
        ("OPTIONS /api/v1/pods", false, false),
        // The prefix makes it a watch; the method still writes.
        ("POST /apis/metrics.k8s.io/v1/watch/pods", false, false),
        ("POST /apis", false, false),
        ("POST /healthz", false, false),
        ("OPTIONS *", false, false),
        ("GET /api/v1/%zz", false, false),
        ("GET /api/v1/watch", false, false),
    ];
    for (request, is_read, may_be_replayed) in table {
        let info = parse(request);
        assert_eq!(info.is_read(), is_read, "{request}");
        assert_eq!(info.may_be_replayed(false), may_be_replayed, "{request}");
        assert!(!info.may_be_replayed(true), "{request} with an upgrade");
    }
}

#[test]
fn only_the_core_group_belongs_to_the_api_half() {
    let table = [
        ("GET /api", Part::Api),
        ("GET /api/v1", Part::Api),
        ("GET /api/v1/pods", Part::Api),
        ("POST /api/v1/namespaces/x/pods", Part::Api),
        ("GET /openapi/v3/api/v1", Part::Api),
        ("GET /openapi/v3/api", Part::Api),
        ("GET /apis", Part::Apis),
        ("GET /apis/apps", Part::Apis),
        ("GET /apis/apps/v1", Part::Apis),
        ("GET /apis/apps/v1/deployments", Part::Apis),
        ("GET /openapi/v3/apis/apps/v1", Part::Apis),
        ("GET /openapi/v3/apis", Part::Apis),
        ("GET /openapi/v3/apix", Part::Apis),
        // They describe both halves, or neither.
        ("GET /openapi/v2", Part::Apis),
        ("GET /openapi/v3", Part::Apis),
        ("GET /openapi/v3/version", Part::Apis),
        ("GET /healthz", Part::Apis),
        ("GET /api/v1/%zz", Part::Apis),
    ];
    for (request, part) in table {
        assert_eq!(parse(request).part(), part, "{request}");
    }
}
