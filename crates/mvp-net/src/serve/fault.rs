//! Requests whose head hyper cannot pass to the service, but whose client gets a proper response.
//! Entry: [`HeadFault`].
//!
//! [`TargetGuard`](super::target::TargetGuard) finds the fault, drops the rest of the head and completes
//! what was already passed to a head that hyper accepts.
//! [`RequestService`](super::request::RequestService) then responds in place of the service, which never
//! sees that request. The connection ends.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use crate::ClientError;

/// What is wrong with the head of an HTTP/1.1 request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadFault {
    /// The request target is longer than [`MAX_TARGET`].
    LongTarget,
    /// A transfer coding other than `chunked`, or several of them. Go answers 501, too.
    TransferEncoding,
}

/// The longest request target that `http::Uri` can hold.
pub(crate) const MAX_TARGET: usize = 65_534;

impl HeadFault {
    /// The status code of the response.
    pub(crate) fn code(self) -> StatusCode {
        match self {
            Self::LongTarget => StatusCode::URI_TOO_LONG,
            Self::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// As what it is counted.
    pub(crate) fn error(self) -> ClientError {
        match self {
            Self::LongTarget => ClientError::LongTarget,
            Self::TransferEncoding => ClientError::TransferEncoding,
        }
    }

    /// The response: a Kubernetes `Status`, as for every request that is refused.
    pub(crate) fn response(self) -> Response<Bytes> {
        let code = self.code();
        // Kubernetes has no reasons for these codes: these are the nearest.
        let (reason, message) = match self {
            Self::LongTarget => {
                let message = format!("the request target is longer than {MAX_TARGET} bytes");
                ("RequestEntityTooLarge", message)
            }
            Self::TransferEncoding => ("BadRequest", "Unsupported transfer encoding".to_owned()),
        };
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{}}}"#,
            code.as_u16(),
        );
        let length = HeaderValue::from(body.len());
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, length);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}
