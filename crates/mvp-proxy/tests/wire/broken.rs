//! A TCP proxy to a server that breaks on demand, below HTTP. Entry item: [`Front`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::double::Double;
use crate::pki::pki;

/// The behaviour of new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwarded to the server.
    Through,
    /// Nobody listens.
    Refuse,
    /// Accepted and reset before TLS.
    Reset,
    /// Garbage after the TLS handshake.
    Garbage,
    /// Closed after a request head.
    CloseAtHead,
    /// HTTP/2: the stream is refused, unprocessed.
    RefuseStream,
    /// HTTP/2: the stream is reset as Go does when a handler aborts.
    ResetStream,
    /// HTTP/2: GOAWAY that excludes the request.
    GoAway,
    /// HTTP/2: the same for one connection; later ones are forwarded.
    GoAwayOnce,
    /// HTTP/2: a part of a body without a length, then the stream is reset.
    CancelAnswer,
    /// HTTP/2: reads a request to its end, and records how it ended.
    Listen,
    /// Like a stopped process: connections stay open, nothing moves.
    Hang,
    /// Closed after a part of the request body, or after the head if there is no body.
    MidBody,
    /// Closed after a whole request.
    AfterSending,
    /// The same, after a part of the response head.
    PartHead,
    /// HTTP/2: the same, with a GOAWAY that includes the request.
    GoAwayProcessed,
    /// The same, after the response head and a part of the body.
    MidAnswer,
}

pub struct Front {
    pub address: SocketAddr,
    state: Arc<State>,
    _stop: DropGuard,
}

struct State {
    mode: Mutex<Mode>,
    refuse: CancellationToken,
    cut: Mutex<CancellationToken>,
    frozen: CancellationToken,
    /// The connection to the server, by its port, on which nothing moves.
    held: watch::Sender<Option<u16>>,
    heads: AtomicUsize,
    heard: watch::Sender<bool>,
    ends: watch::Sender<Vec<End>>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    Broken,
}

impl Front {
    /// A proxy to this server.
    pub async fn before(server: &Double) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Through),
            refuse: stop.child_token(),
            cut: Mutex::default(),
            frozen: CancellationToken::new(),
            held: watch::Sender::default(),
            heads: AtomicUsize::new(0),
            heard: watch::Sender::default(),
            ends: watch::Sender::default(),
        });
        tokio::spawn(accept(listener, server.address, Arc::clone(&state)));
        Front { address, state, _stop: stop.drop_guard() }
    }

    /// Closes every connection, and sets the behaviour of new ones.
    pub fn becomes(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        match mode {
            Mode::Refuse => self.state.refuse.cancel(),
            Mode::Hang => return self.state.frozen.cancel(),
            _ => {}
        }
        self.cut();
    }

    /// Accepts no more connections; open ones continue.
    pub fn closes(&self) {
        self.state.refuse.cancel();
    }

    /// Closes every connection.
    pub fn cut(&self) {
        std::mem::take(&mut *self.state.cut.lock().unwrap()).cancel();
    }

    /// Nothing moves on the connection that reaches the server from this port; on all with `None`, it
    /// does.
    pub fn hold(&self, port: Option<u16>) {
        self.state.held.send_replace(port);
    }

    /// How the first recorded request ended.
    pub async fn end(&self) -> End {
        let mut ends = self.state.ends.subscribe();
        crate::soon(ends.wait_for(|ends| !ends.is_empty())).await.unwrap()[0]
    }

    /// Waits for a request.
    pub async fn heard(&self) {
        let mut heard = self.state.heard.subscribe();
        crate::soon(heard.wait_for(|heard| *heard)).await.unwrap();
    }

    /// The number of request heads since it broke.
    pub fn heads(&self) -> usize {
        self.state.heads.load(Ordering::SeqCst)
    }
}

impl State {
    fn next_mode(&self) -> Mode {
        let mut mode = self.mode.lock().unwrap();
        match *mode {
            Mode::GoAwayOnce => {
                *mode = Mode::Through;
                Mode::GoAway
            }
            mode => mode,
        }
    }
}

/// Correct HTTP/2, until the fault.
async fn well_spoken(stream: Tls, mode: Mode, state: &State) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    let mut exchanges = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, mut respond) = accepted?;
                if mode == Mode::CancelAnswer {
                    let mut answer = respond.send_response(http::Response::new(()), false)?;
                    answer.send_data(Bytes::from_static(b"the start, "), false)?;
                    exchanges.spawn(async move {
                        // The part is on its way when the client's reading of it makes room.
                        tokio::task::yield_now().await;
                        answer.send_reset(h2::Reason::CANCEL);
                    });
                    continue;
                }
                let (heard, ends) = (state.heard.clone(), state.ends.clone());
                exchanges.spawn(async move {
                    let mut body = request.into_body();
                    let end = loop {
                        match body.data().await {
                            Some(Ok(data)) => {
                                heard.send_replace(true);
                                let _ = body.flow_control().release_capacity(data.len());
                            }
                            Some(Err(_)) => break End::Broken,
                            None if body.is_end_stream() => break End::Whole,
                            None => break End::Broken,
                        }
                    };
                    ends.send_modify(|ends| ends.push(end));
                    drop(respond);
                });
            }
            Some(_) = exchanges.join_next() => {}
        }
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = state.refuse.cancelled() => break,
            Ok((stream, _)) = listener.accept() => {
                let mode = state.next_mode();
                let (state, cut) = (Arc::clone(&state), state.cut.lock().unwrap().clone());
                connections.spawn(async move {
                    let mut treated = std::pin::pin!(treat(stream, mode, server, &state));
                    tokio::select! {
                        () = cut.cancelled() => {}
                        // It is still there, but nothing moves.
                        () = state.frozen.cancelled() => cut.cancelled().await,
                        () = &mut treated => {}
                    }
                });
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn treat(mut stream: TcpStream, mode: Mode, server: SocketAddr, state: &State) {
    match mode {
        Mode::Through | Mode::Refuse => {
            if let Ok(mut onward) = TcpStream::connect(server).await {
                let port = onward.local_addr().ok().map(|address| address.port());
                let mut held = state.held.subscribe();
                let mut copied = std::pin::pin!(copy_bidirectional(&mut stream, &mut onward));
                while let Ok(false) = tokio::select! {
                    _ = copied.as_mut() => Ok(true),
                    Ok(()) = held.changed() => held.wait_for(|held| *held != port).await.map(|_| false),
                } {}
            }
        }
        // Unread input makes the kernel reset the connection.
        Mode::Reset => {
            let _ = stream.readable().await;
        }
        Mode::Garbage => {
            let mut stream = tls(stream).await;
            let _ =
                stream.write_all(b"*** this is no protocol that anybody knows ***\r\n\r\n").await;
            let _ = stream.flush().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        Mode::CancelAnswer | Mode::Listen => {
            let _ = well_spoken(tls(stream).await, mode, state).await;
        }
        Mode::Hang => std::future::pending().await,
        _ => {
            let stream = tls(stream).await;
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let _ = http2(stream, mode, state).await;
            } else {
                let _ = http1(stream, mode, state).await;
            }
        }
    }
}

type Tls = tokio_rustls::server::TlsStream<TcpStream>;

async fn tls(stream: TcpStream) -> Tls {
    let config = Arc::clone(pki().server_tls().current().config());
    TlsAcceptor::from(config).accept(stream).await.unwrap()
}

async fn http1(mut stream: Tls, mode: Mode, state: &State) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    state.heads.fetch_add(1, Ordering::SeqCst);
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    let read = match mode {
        Mode::CloseAtHead => 0,
        Mode::MidBody => length / 2,
        _ => length,
    };
    stream.read_exact(&mut vec![0; read]).await?;
    let answer = match mode {
        Mode::PartHead => "HTTP/1.1 200 OK\r\nContent-Le",
        Mode::MidAnswer => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nthe start, ",
        _ => "",
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await
}

/// The part of HTTP/2 that is needed to reject requests.
async fn http2(mut stream: Tls, mode: Mode, state: &State) -> std::io::Result<()> {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GO_AWAY: u8 = 7;
    const ACK: u8 = 1;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    const STATUS_200: u8 = 0x88;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let echo = if kind == PING { &payload[..] } else { &[] };
                stream.write_all(&frame(kind, ACK, 0, echo)).await?;
            }
            HEADERS => {
                state.heads.fetch_add(1, Ordering::SeqCst);
                match mode {
                    Mode::RefuseStream => stream.write_all(&frame(3, 0, id, &[0, 0, 0, 7])).await?,
                    Mode::ResetStream => stream.write_all(&frame(3, 0, id, &[0, 0, 0, 2])).await?,
                    Mode::GoAway => stream.write_all(&frame(GO_AWAY, 0, 0, &[0; 8])).await?,
                    Mode::CloseAtHead => return Ok(()),
                    _ => {}
                }
            }
            DATA if mode == Mode::MidBody => return Ok(()),
            _ => {}
        }
        let last = match mode {
            _ if !ends => None,
            Mode::MidBody | Mode::AfterSending => Some(Vec::new()),
            Mode::PartHead => Some(frame(HEADERS, END_HEADERS, id, &[0; 100])[..20].to_vec()),
            Mode::GoAwayProcessed => {
                let payload = [&id.to_be_bytes()[..], &[0; 4]].concat();
                Some(frame(GO_AWAY, 0, 0, &payload))
            }
            Mode::MidAnswer => {
                let part = frame(DATA, 0, id, b"the start, ");
                Some([frame(HEADERS, END_HEADERS, id, &[STATUS_200]), part].concat())
            }
            _ => None,
        };
        if let Some(last) = last {
            stream.write_all(&last).await?;
            return stream.flush().await;
        }
        stream.flush().await?;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
