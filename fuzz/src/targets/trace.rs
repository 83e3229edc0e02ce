//! W3C trace contexts, and the response of a proxy to CONNECT.

use http::{HeaderMap, HeaderValue};
use mvp_proxy::ConnectProxy;
use mvp_proxy::trace::fuzzing::{context, state, write};
use tokio::io::AsyncWriteExt;

use super::fetch::block_on;
use crate::input::Input;
use crate::target::Target;

pub const TARGET: Target = Target {
    name: "trace",
    run,
    seeds,
    words: &[
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "-",
        "ff",
        "01",
        "a=1,b=2",
        "\0",
        "HTTP/1.1 200 OK\r\n",
        "\r\n\r\n",
        "HTTP/1.0 407 ",
        "HTTP/1.1 ",
    ],
};

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() & 1 == 1 {
        return connect(input.rest());
    }
    let mut headers = HeaderMap::new();
    for (count, name) in
        ["traceparent", "tracestate", "traceparent", "tracestate"].iter().enumerate()
    {
        if count > 0 && input.is_empty() {
            break;
        }
        if let Ok(value) = HeaderValue::from_bytes(input.part()) {
            headers.append(*name, value);
        }
    }
    let found = context(&headers);
    if headers.get_all("traceparent").iter().count() != 1 {
        assert_eq!(found, None);
    }
    if let Some(found) = found {
        let (trace, span, _) = found;
        assert!(trace != [0; 16] && span != [0; 8], "never zero");
        let mut written = headers.clone();
        write(&mut written, found);
        assert_eq!(context(&written), Some(found));
        assert_eq!(written.get("tracestate"), headers.get("tracestate"));
    }
    assert!(state(&headers).is_none_or(|state| !state.is_empty() && state.len() <= 512));
}

/// A tunnel is open only after a 2xx with nothing behind its head.
fn connect(response: &[u8]) {
    let opened = block_on(async {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(&response[..response.len().min(60_000)]).await.expect("room");
        theirs.shutdown().await.expect("the end");
        ConnectProxy::ask(&mut ours).await
    });
    match opened {
        Ok(()) => {
            assert!(response.starts_with(b"HTTP/1.") && response.ends_with(b"\r\n\r\n"));
            assert_eq!(response.get(9), Some(&b'2'));
        }
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error:?}"),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    [
        &b"\x0000-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\0a=1,b=2"[..],
        b"\x0001-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more\0",
        b"\x00\0x=1\0\0y=2",
        b"\x01HTTP/1.1 200 Connection established\r\n\r\n",
        b"\x01HTTP/1.0 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
