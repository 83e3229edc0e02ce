//! Exchanges on a connection in memory, with a server of h2.

use std::future::Future;

use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::timeout;

use h2::Reason;

use super::*;
use crate::upstream::pulse::Pulses;

type Server = h2::server::Connection<DuplexStream, Bytes>;
type Arrived = (Request<RecvStream>, h2::server::SendResponse<Bytes>);

/// A connection to a server that allows this many streams.
async fn connected(streams: u32) -> (Arc<Connection>, Server) {
    let (client, server) = duplex(1 << 20);
    let address: Arc<str> = "server:1".into();
    let beat = Pulses::default().beat(&address);
    let mut builder = h2::server::Builder::new();
    let builder = builder.max_concurrent_streams(streams);
    let (connection, server) =
        tokio::join!(Connection::start(client, address, beat), builder.handshake(server));
    (connection.unwrap(), server.unwrap())
}

/// Accepts requests, and hands them over.
fn accepting(mut server: Server) -> mpsc::UnboundedReceiver<Arrived> {
    let (arrived, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(request)) = server.accept().await {
            if arrived.send(request).is_err() {
                return;
            }
        }
    });
    requests
}

fn head(method: Method) -> Request<()> {
    Request::builder().method(method).uri("https://server/path").body(()).unwrap()
}

/// Sends a request at once. The response is awaited later.
fn sent(
    connection: &Arc<Connection>,
    method: Method,
    body: &'static [u8],
) -> impl Future<Output = Result<Response<Incoming>, h2::Error>> + use<> {
    let stream = Stream::of(connection);
    let ends = body.is_empty();
    let (response, sending) = connection.send(head(method), ends).unwrap();
    async move {
        let body = Body::from(Bytes::from_static(body));
        let (response, upload) = exchange(response, ends, body, sending).await;
        response.map(|response| {
            let (head, body) = response.into_parts();
            let body = Incoming::new(body, &head.headers, stream.guard(), upload);
            Response::from_parts(head, body)
        })
    }
}

fn ok() -> Response<()> {
    Response::new(())
}

async fn soon<T>(step: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), step).await.expect("it takes too long")
}

#[tokio::test]
async fn a_response_that_breaks_off_without_an_error_is_not_complete() {
    let (connection, server) = connected(10).await;
    let mut requests = accepting(server);
    let response = sent(&connection, Method::GET, b"");
    let serve = async {
        let (_request, mut respond) = requests.recv().await.unwrap();
        let mut body = respond.send_response(ok(), false).unwrap();
        body.send_data(Bytes::from_static(b"a part"), false).unwrap();
        // It is sent after the data.
        tokio::task::yield_now().await;
        body.send_reset(Reason::NO_ERROR);
        std::future::pending::<()>().await;
    };
    let read = async {
        let mut body = response.await.unwrap().into_body();
        loop {
            if let Err(error) = body.frame().await.expect("the body must not end") {
                return error;
            }
        }
    };
    let error = tokio::select! {
        () = serve => unreachable!(),
        error = soon(read) => error,
    };
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
}

/// A request that waits for a stream must not take the wake-up of another one.
#[tokio::test]
async fn uploads_that_wait_for_a_stream_are_all_sent() {
    let (connection, server) = connected(1).await;
    let mut requests = accepting(server);
    // The limit is known after the first response.
    let first = tokio::spawn(sent(&connection, Method::GET, b""));
    let (_, mut respond) = soon(requests.recv()).await.unwrap();
    respond.send_response(ok(), true).unwrap();
    drop(soon(first).await.unwrap().unwrap());

    let held = tokio::spawn(sent(&connection, Method::GET, b""));
    let (_held_request, _held_respond) = soon(requests.recv()).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(tokio::spawn(sent(&connection, Method::POST, b"a body")));
        // It begins to wait.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    held.abort();
    for _ in 0..waiting.len() {
        let (request, mut respond) = soon(requests.recv()).await.unwrap();
        let body = soon(BodyOf(request.into_body()).collect()).await;
        assert_eq!(body, b"a body");
        respond.send_response(ok(), true).unwrap();
    }
    for response in waiting {
        assert_eq!(soon(response).await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_resets_its_request() {
    let (connection, server) = connected(10).await;
    let mut requests = accepting(server);
    let (response, sending) = connection.send(head(Method::POST), false).unwrap();
    let chunks = futures_util::stream::iter([
        Ok(http_body::Frame::data(Bytes::from_static(b"a part"))),
        Err(std::io::Error::other("the client is gone")),
    ]);
    let body = Body::new(http_body_util::StreamBody::new(chunks));
    let exchange = tokio::spawn(exchange(response, false, body, sending));
    let (request, _respond) = soon(requests.recv()).await.unwrap();
    let mut body = request.into_body();
    let error = loop {
        match soon(body.data()).await.expect("the request must not look complete") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    assert!(soon(exchange).await.unwrap().0.is_err());
}

/// The body of a request at the server.
struct BodyOf(RecvStream);

impl BodyOf {
    async fn collect(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(data) = self.0.data().await {
            let data = data.unwrap();
            let _ = self.0.flow_control().release_capacity(data.len());
            all.extend_from_slice(&data);
        }
        all
    }
}
