//! Opens an HTTP/2 connection.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Answer, CUT_OFF, Client, DEADLINE};

/// The limit of Go's client.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// The time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// An HTTP/2 connection. It is cut when this is dropped.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    headers: HeaderMap,
    to: SocketAddr,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    /// An HTTP/2 connection for many requests.
    pub(crate) async fn connect_http2(&self, to: SocketAddr) -> anyhow::Result<Http2> {
        let connected = async {
            let stream = self.handshake(to, b"h2").await?;
            let mut builder = h2::client::Builder::new();
            builder
                .enable_push(false)
                .initial_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_concurrent_reset_streams(1024);
            let (sender, connection) = builder.handshake::<_, Bytes>(stream).await?;
            let connection = tokio::spawn(connection);
            anyhow::Ok(Http2 { sender, headers: self.headers.clone(), to, connection })
        };
        let connected = timeout(CONNECT, connected).await;
        connected.unwrap_or_else(|_| bail!("no connection")).with_context(|| format!("to {to}"))
    }
}

impl Http2 {
    /// Whether the server has closed the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.connection.is_finished()
    }

    /// Sends a request. The caller may await the response or reset the stream.
    pub(crate) async fn start(
        &self,
        method: Method,
        path: &str,
        body: Option<&Bytes>,
    ) -> anyhow::Result<(ResponseFuture, SendStream<Bytes>)> {
        let uri = format!("https://{}{path}", self.to);
        let mut request = Request::builder().method(method).uri(uri).body(())?;
        *request.headers_mut() = self.headers.clone();
        if body.is_some() {
            let json = http::HeaderValue::from_static("application/json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, json);
        }
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, body.is_none())?;
        if let Some(body) = body {
            stream.send_data(body.clone(), true)?;
        }
        Ok((response, stream))
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Bytes>,
    ) -> anyhow::Result<Answer> {
        let exchange = async {
            let (response, _stream) = self.start(method, path, body).await?;
            whole(response.await?).await
        };
        let outcome = timeout(DEADLINE, exchange).await;
        outcome.unwrap_or_else(|_| bail!("no answer within {} s", DEADLINE.as_secs()))
    }

    /// Opens a watch, or returns the response that rejected it.
    pub(crate) async fn watch(&self, path: &str) -> anyhow::Result<Result<Http2Watch, Answer>> {
        let opened = async {
            let (response, _stream) = self.start(Method::GET, path, None).await?;
            let response = response.await?;
            if response.status() != StatusCode::OK {
                return Ok(Err(whole(response).await?));
            }
            Ok(Ok(Http2Watch { body: response.into_body() }))
        };
        timeout(DEADLINE, opened).await.unwrap_or_else(|_| bail!("no answer"))
    }
}

/// An open watch on a connection that may carry others.
#[derive(Debug)]
pub(crate) struct Http2Watch {
    body: RecvStream,
}

impl Http2Watch {
    /// The next bytes; none once the server has ended the watch.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let Some(data) = self.body.data().await else { return Ok(None) };
        let data = data?;
        self.body.flow_control().release_capacity(data.len())?;
        Ok(Some(data))
    }
}

async fn whole(response: Response<RecvStream>) -> anyhow::Result<Answer> {
    let (parts, mut stream) = response.into_parts();
    let mut body = BytesMut::new();
    while let Some(data) = stream.data().await {
        let data = data.context(CUT_OFF)?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(Answer { status: parts.status, headers: parts.headers, body: body.freeze() })
}

/// Whether the server reports that it did not process the request: Go's client then retries it
/// silently.
pub(crate) fn is_retryable(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(|error| {
        let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        let leaving = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        error.is_remote() && (refused || leaving)
    })
}
