//! Instructions of the data path's two steps, for ordinary requests in a cluster of five members
//! with 2,000 groups of custom resources each. The target: under 2,000 for both steps together.
//! That they allocate nothing is checked by the bench `control`.
//!
//! Needs valgrind, and the runner of the version that `Cargo.lock` has for `gungraun`:
//!
//! ```sh
//! cargo install gungraun-runner --version 0.20.0
//! cargo bench -p mvp-core --bench instructions
//! ```

// Qualified names are the benchmark macros'.
#![allow(missing_docs, unused_qualifications, clippy::expect_used)]

mod cluster;

use std::hint::black_box;

use cluster::{
    ASKED, CREATE_ON_PEER, DISCOVERY, GET_CUSTOM, HEALTHZ, LIST_PODS, PUT_STATUS, WATCH, Wire,
};
use gungraun::{library_benchmark, library_benchmark_group, main};
use mvp_core::decide::Decision;
use mvp_core::{RequestInfo, Snapshot, decide};

/// A request in a cluster. Both live as long as the process, so that dropping them is not counted.
struct Scene {
    snapshot: Snapshot,
    wire: Wire,
    request: RequestInfo<'static>,
}

fn scene(wire: Wire) -> &'static Scene {
    // Valgrind reads slowly: what the first peer sends stands for what all peers send.
    let [local, peer] = [0, 1].map(|member| cluster::view(&cluster::documents(member)));
    let mut views = vec![local];
    views.resize(cluster::MEMBERS, peer);
    Box::leak(Box::new(Scene {
        snapshot: Snapshot::build(cluster::inputs(&views), None),
        wire,
        request: parse_wire(wire),
    }))
}

fn parse_wire(wire: Wire) -> RequestInfo<'static> {
    RequestInfo::parse(black_box(wire.method), black_box(wire.path), black_box(wire.query))
}

#[library_benchmark]
#[bench::list_pods(LIST_PODS)]
#[bench::get_custom(GET_CUSTOM)]
#[bench::watch(WATCH)]
#[bench::put_status(PUT_STATUS)]
#[bench::create_on_peer(CREATE_ON_PEER)]
#[bench::discovery(DISCOVERY)]
#[bench::healthz(HEALTHZ)]
fn parse_request(wire: Wire) -> RequestInfo<'static> {
    parse_wire(wire)
}

#[library_benchmark(setup = scene)]
#[bench::list_pods(LIST_PODS)]
#[bench::get_custom(GET_CUSTOM)]
#[bench::watch(WATCH)]
#[bench::put_status(PUT_STATUS)]
#[bench::create_on_peer(CREATE_ON_PEER)]
#[bench::discovery(DISCOVERY)]
#[bench::healthz(HEALTHZ)]
fn decide_request(scene: &'static Scene) -> Decision<'static> {
    decide(&scene.request, &scene.snapshot, black_box(ASKED))
}

#[library_benchmark(setup = scene)]
#[bench::list_pods(LIST_PODS)]
#[bench::get_custom(GET_CUSTOM)]
#[bench::watch(WATCH)]
#[bench::put_status(PUT_STATUS)]
#[bench::create_on_peer(CREATE_ON_PEER)]
#[bench::discovery(DISCOVERY)]
#[bench::healthz(HEALTHZ)]
fn parse_and_decide(scene: &'static Scene) {
    let request = parse_wire(scene.wire);
    black_box(&decide(&request, &scene.snapshot, black_box(ASKED)));
}

library_benchmark_group!(
    name = data_path;
    benchmarks = parse_request, decide_request, parse_and_decide
);

main!(library_benchmark_groups = data_path);
