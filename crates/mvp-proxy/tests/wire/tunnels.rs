//! What flows through a tunnel: both ways at once, no faster than it is read, to either end's end.

use std::time::Duration;

use http::{Request, Response};
use hyper_util::rt::TokioIo;
use mvp_net::Limits;
use mvp_proxy::{AuthenticateLayer, Body};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_layer::Layer;

use crate::client::{Client, Protocol, get};
use crate::double::{Double, serve};
use crate::gateway::boxed;
use crate::inside::{api_server, layer, seen};
use crate::pki::pki;
use crate::soon;
use crate::switched::{Served, Stream, is_open, passes, switching, tunnel, websocket};
use crate::world::{BARE, LOCAL, MVP, World};

const LARGE: usize = 4 << 20;
/// More than all buffers on the way hold, the kernel's too.
const TOO_MUCH: usize = 64 << 20;

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 31 + index / 251 + seed) % 256) as u8).collect()
}

async fn ends(world: &World, path: &'static str) -> (Stream, Stream) {
    let mut served: Served = world.server(path).upgrades(path);
    let alice = Some(&pki().alice);
    let (client, _) = tunnel(world.gateway.address, alice, websocket(path)).await;
    (client, served.next().await)
}

#[tokio::test]
async fn a_tunnel_carries_both_directions_at_once() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        let (client, server) = ends(&world, path).await;
        let (mut client_reads, mut client_writes) = tokio::io::split(client);
        let (mut server_reads, mut server_writes) = tokio::io::split(server);
        let (there, back) = (pattern(LARGE, 1), pattern(LARGE, 2));
        let (mut arrived, mut returned) = (Vec::new(), Vec::new());
        soon(async {
            tokio::try_join!(
                async {
                    client_writes.write_all(&there).await?;
                    client_writes.shutdown().await
                },
                async {
                    server_writes.write_all(&back).await?;
                    server_writes.shutdown().await
                },
                server_reads.read_to_end(&mut arrived),
                client_reads.read_to_end(&mut returned),
            )
            .unwrap();
        })
        .await;
        assert!(arrived == there, "{path}: {} bytes", arrived.len());
        assert!(returned == back, "{path}: {} bytes", returned.len());
    }
}

#[tokio::test]
async fn a_tunnel_can_be_half_closed_by_either_end() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        for client_first in [true, false] {
            let (client, server) = ends(&world, path).await;
            let (mut first, mut other) =
                if client_first { (client, server) } else { (server, client) };
            soon(first.write_all(b"last words")).await.unwrap();
            soon(first.shutdown()).await.unwrap();
            let mut heard = Vec::new();
            soon(other.read_to_end(&mut heard)).await.unwrap();
            assert_eq!(heard, b"last words");
            for _ in 0..3 {
                passes(&mut other, &mut first).await;
            }
            let rest = pattern(LARGE / 4, 3);
            let mut arrived = Vec::new();
            let (wrote, read) = soon(async {
                tokio::join!(
                    async {
                        other.write_all(&rest).await?;
                        other.shutdown().await
                    },
                    first.read_to_end(&mut arrived),
                )
            })
            .await;
            wrote.unwrap();
            read.unwrap();
            assert!(arrived == rest, "{path}: {} bytes", arrived.len());
        }
    }
}

#[tokio::test]
async fn a_tunnel_applies_back_pressure() {
    let world = World::start().await;
    for path in [LOCAL, MVP] {
        for client_writes in [true, false] {
            let (client, server) = ends(&world, path).await;
            let (mut writer, mut reader) =
                if client_writes { (client, server) } else { (server, client) };
            // Nobody reads, so that this ends by waiting: there is no such buffer.
            let piece = pattern(64 << 10, 4);
            let mut written = 0;
            let stalled = async {
                while written < TOO_MUCH {
                    let write = writer.write(&piece);
                    match tokio::time::timeout(Duration::from_secs(1), write).await {
                        Ok(taken) => written += taken.unwrap(),
                        Err(_) => return true,
                    }
                }
                false
            };
            assert!(soon(stalled).await, "{path}: {written} bytes were taken");
            // The other way is free meanwhile.
            passes(&mut reader, &mut writer).await;
            let (shut, read) = soon(async {
                let mut read = 0;
                let mut space = vec![0; 64 << 10];
                let reading = async {
                    loop {
                        match reader.read(&mut space).await? {
                            0 => return Ok::<_, std::io::Error>(read),
                            bytes => read += bytes,
                        }
                    }
                };
                tokio::join!(writer.shutdown(), reading)
            })
            .await;
            shut.unwrap();
            assert_eq!(read.unwrap(), written, "{path}");
        }
    }
}

#[tokio::test]
async fn no_timeout_ends_an_idle_tunnel() {
    let short = Duration::from_millis(50);
    let limits = || Limits {
        handshake_timeout: Duration::from_secs(5),
        header_read_timeout: short,
        idle_timeout: short,
        ..Limits::default()
    };
    let world = World::with(|plan| plan.limits(limits())).await;
    for path in [LOCAL, BARE, MVP] {
        let (mut client, mut server) = ends(&world, path).await;
        for _ in 0..3 {
            // One that rests as HTTP is ended by these limits meanwhile.
            let mut resting = Client::connect(world.gateway.address, Protocol::Http1, None).await;
            resting.send(get("/version")).await;
            let Client::Http1(sender) = &mut resting else { unreachable!() };
            soon(async {
                while sender.ready().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            is_open(&mut client, &mut server).await;
        }
    }
}

#[tokio::test]
async fn a_broken_tunnel_is_cut_at_both_ends() {
    let world = World::start().await;
    for path in [LOCAL, BARE, MVP] {
        for client_dies in [true, false] {
            let (mut client, mut server) = ends(&world, path).await;
            is_open(&mut client, &mut server).await;
            let (dying, mut left) = if client_dies { (client, server) } else { (server, client) };
            drop(dying);
            // Dead, which is not the same as done.
            assert!(soon(left.read(&mut [0])).await.is_err(), "{path}");
        }
    }
}

#[tokio::test]
async fn open_tunnels_are_counted() {
    let world = World::start().await;
    let counted = |number: usize| {
        let mut text = String::new();
        world.gateway.metrics.encode(&mut text);
        text.contains(&format!("\nmvp_tunnels {number}\n"))
    };
    assert!(counted(0));
    let mut open = Vec::new();
    for path in [LOCAL, BARE, MVP] {
        open.push(ends(&world, path).await);
        assert!(counted(open.len()));
    }
    drop(open);
    soon(async {
        while !counted(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_grace_period_ends_tunnels() {
    let grace = Duration::from_millis(300);
    let world = World::with(|plan| plan.limits(Limits { grace, ..Limits::default() })).await;
    let mut whole = ends(&world, LOCAL).await;
    // Of this one only the way back is left, on which the server says nothing.
    let mut half = ends(&world, BARE).await;
    soon(half.0.shutdown()).await.unwrap();
    assert_eq!(soon(half.1.read(&mut [0])).await.unwrap(), 0);
    let World { gateway, .. } = &world;
    gateway.stop();
    is_open(&mut whole.0, &mut whole.1).await;
    for mut end in [whole.0, whole.1, half.0] {
        assert!(soon(end.read(&mut [0])).await.is_err());
    }
    // The server's end of the half one is done with reading: it hears of it when it writes.
    soon(async {
        while half.1.write_all(b"word").await.is_ok() && half.1.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// An API server of somebody's own, with the layer inside, that upgrades by itself.
#[tokio::test]
async fn with_the_layer_the_server_takes_over_the_connection() {
    let own = "/apis/a.example/v1/namespaces/default/things";
    let peers = "/apis/b.example/v1/namespaces/default/things";
    let peer = Double::start("b", "v1.36.0", &[("b.example", "things")]).await;
    let mut served = peer.upgrades(peers);
    let server = api_server("a", "a.example");
    let inner = tower::service_fn(move |mut request: Request<Body>| {
        let server = server.clone();
        async move {
            let protocol = request.headers().get("upgrade").cloned();
            let Some(protocol) = protocol else {
                let Ok(response) = server.oneshot(request).await;
                return Ok::<_, std::convert::Infallible>(response.map(Body::new));
            };
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let mut word = [0; 4];
                stream.read_exact(&mut word).await.unwrap();
                word.reverse();
                stream.write_all(&word).await.unwrap();
                stream.shutdown().await.unwrap();
            });
            let response: Response<_> = switching(protocol);
            Ok(response.map(Body::new))
        }
    });
    let record = mvp_proxy::control::MemberRecord {
        name: "b".into(),
        address: Some(peer.address.to_string().into()),
        kind: mvp_core::member::MemberKind::Bare,
        heard: None,
    };
    let (layer, reader, _control) = layer("a", vec![record]);
    let service = AuthenticateLayer::default().layer(layer.layer(inner));
    let stop = CancellationToken::new();
    let address = serve(boxed(service), Limits::default(), stop.clone()).await;
    let _stop = stop.drop_guard();
    seen(&reader, &["a", "b"]).await;

    // The protocol is its own business, whatever it is.
    for upgrade in ["websocket", "something/1"] {
        let mut request = websocket(own);
        request.headers_mut().insert("upgrade", upgrade.parse().unwrap());
        let (mut client, headers) = tunnel(address, Some(&pki().alice), request).await;
        assert_eq!(headers["upgrade"], upgrade);
        soon(client.write_all(b"stop")).await.unwrap();
        let mut answer = Vec::new();
        soon(client.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(answer, b"pots");
    }
    let (mut client, _) = tunnel(address, Some(&pki().alice), websocket(peers)).await;
    is_open(&mut client, &mut served.next().await).await;
    // Discovery is answered by the layer; the probe by which the server consents is no upgrade.
    let mut client = Client::connect(address, Protocol::Http1, Some(&pki().alice)).await;
    assert_eq!(client.send(websocket("/apis")).await.status, http::StatusCode::OK);
}
