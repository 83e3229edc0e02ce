//! What the control loop reads from a server: discovery, `/version`, OpenAPI, APIServices, StorageVersions
//! and the ConfigMap with the names of headers. The server answers anything.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response};
use mvp_proxy::Body;
use mvp_proxy::control::{Ask, AskError, fuzzing};

use super::seeds;
use crate::input::Input;
use crate::target::Target;

pub const TARGET: Target = Target {
    name: "fetch",
    run,
    seeds,
    words: &[
        "{\"items\":[",
        "\"spec\":{\"group\":\"",
        "\"service\":{}",
        "\"storageVersions\":[",
        "\"apiServerID\":\"",
        "\"servedVersions\":[\"v1\"]",
        "\"data\":{",
        "\"paths\":[\"/apis/a/v1\"]",
        "requestheader-username-headers",
        "[\\\"X-Remote-User\\\"]",
        "\"gitVersion\":\"v1.36.0\"",
        "\"emulationMinor\":\"35\"",
        "\"groupVersion\":",
        "\0",
    ],
};

/// A server that gives these answers, in this order, and then no more.
#[derive(Clone)]
struct Server(Arc<Mutex<VecDeque<Response<Bytes>>>>);

impl Ask for Server {
    async fn ask(&self, _: Request<Body>) -> Result<Response<Body>, AskError> {
        let next = self.0.lock().map(|mut answers| answers.pop_front());
        let next = next.ok().flatten().ok_or_else(|| AskError::new("it is gone"))?;
        Ok(next.map(Body::from))
    }
}

const STATUS: [u16; 8] = [200, 200, 200, 304, 404, 403, 401, 500];
const TYPES: [&str; 3] = [
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json",
    "text/plain",
];

fn run(data: &[u8]) {
    let answers = || {
        let mut input = Input::new(data);
        let mut answers = VecDeque::new();
        while !input.is_empty() && answers.len() < 24 {
            answers.push_back(answer(&mut input));
        }
        Server(Arc::new(Mutex::new(answers)))
    };
    let (first, again, found) = block_on(async {
        let first = fuzzing::fetch(&answers()).await;
        let again = fuzzing::fetch(&answers()).await;
        (first, again, fuzzing::find(&answers()).await)
    });
    assert_eq!(first, again);
    assert!(!found.is_empty());
}

/// Runs on this thread, with a clock that moves when nothing else can.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(future)
}

fn answer(input: &mut Input<'_>) -> Response<Bytes> {
    let (status, kind, how) = (input.one_of(&STATUS), input.one_of(&TYPES), input.byte());
    let mut response = Response::builder().status(status).header("content-type", kind);
    if how & 1 == 1 {
        response = response.header("etag", "\"A\"");
    }
    let mut body = input.part().to_vec();
    if how & 2 == 2 {
        response = response.header("content-encoding", "gzip");
        if how & 4 == 4 {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&body).expect("memory");
            body = gzip.finish().expect("memory");
        }
    }
    response.body(body.into()).expect("a response")
}

fn seeds() -> Vec<Vec<u8>> {
    let of = |bodies: &[(&str, u8)]| {
        let one = |(body, kind): &(&str, u8)| [&[0, *kind, 0][..], body.as_bytes(), &[0]].concat();
        bodies.iter().map(one).collect::<Vec<_>>().concat()
    };
    let services = r#"{"items":[{"spec":{"group":"metrics.k8s.io","version":"v1beta1","service":{"name":"m"}}},{"spec":{}}]}"#;
    let recorded = r#"{"items":[{"metadata":{"name":"apps.deployments"},"status":{"storageVersions":[{"apiServerID":"apiserver-a","encodingVersion":"apps/v1","servedVersions":["apps/v1"]}]}}]}"#;
    let headers = r#"{"data":{"requestheader-username-headers":"[\"X-Remote-User\"]","requestheader-extra-headers-prefix":"[\"X-Remote-Extra-\"]"}}"#;
    let [api, apis, group, resources] = seeds::LEGACY;
    let aggregated = [
        (seeds::CORE, 0),
        (seeds::AGGREGATED, 0),
        (seeds::INDEX, 1),
        (seeds::VERSION, 1),
        (services, 1),
    ];
    let legacy = [
        (api, 1),
        (apis, 1),
        (seeds::INDEX, 1),
        (seeds::VERSION, 1),
        (r#"{"paths":["/api","/apis/apps","/apis/apps/v1"]}"#, 1),
        (resources, 1),
        (group, 1),
        (resources, 1),
    ];
    vec![of(&aggregated), of(&legacy), of(&[(recorded, 1), (headers, 1)]), of(&[(headers, 1)])]
}
