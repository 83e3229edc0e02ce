//! What an answer says about an operation. Entry item: [`of`].

use serde_json::Value as Json;
use testkit::history::linear::{Action, Reply};

use super::number;
use crate::client::Answer;

/// What an answer says about an operation; none if it certainly did not happen, or was a read
/// without a result. Fails with an answer that no server should give.
pub(super) fn of(
    action: Action,
    object: &str,
    answer: &anyhow::Result<Answer>,
    body: &Json,
) -> Result<Option<Reply>, String> {
    let is_read = action == Action::Read;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if is_read || never_connected(error) => return Ok(None),
        Err(_) => return Ok(Some(Reply::Unclear)),
    };
    let text = |pointer| body.pointer(pointer).and_then(Json::as_str);
    let reason = text("/reason");
    match (answer.status.as_u16(), action) {
        (200, Action::Read) => match number(body) {
            Some(value) => Ok(Some(Reply::Saw(Some(value)))),
            None => Err(format!("a read without a value: {answer}")),
        },
        // An unrouted 404 does not name the object: nobody looked for it.
        (404, _) if text("/details/name") != Some(object) => Err(format!("a false 404: {answer}")),
        (404, Action::Read) => Ok(Some(Reply::Saw(None))),
        (201, Action::Create(_)) => Ok(Some(Reply::Done)),
        (200, Action::Update { .. } | Action::Write(_) | Action::Delete | Action::DeleteIf(_)) => {
            Ok(Some(Reply::Done))
        }
        (404, Action::Update { .. } | Action::Write(_) | Action::Delete | Action::DeleteIf(_)) => {
            Ok(Some(Reply::Missing))
        }
        (409, Action::Create(_)) if reason == Some("AlreadyExists") => Ok(Some(Reply::Conflict)),
        (409, Action::Update { .. } | Action::DeleteIf(_)) if reason == Some("Conflict") => {
            Ok(Some(Reply::Conflict))
        }
        // Too many others wrote in between, each time that the server tried.
        (409, Action::Write(_) | Action::Delete) if reason == Some("Conflict") => Ok(None),
        // Refused before it was processed: priority and fairness, and a server that starts.
        (429, _) => Ok(None),
        // Its sender may have been asked, or not.
        (500 | 503 | 504, _) => Ok((!is_read).then_some(Reply::Unclear)),
        _ => Err(format!("unexpected: {answer}")),
    }
}

/// Whether there was no connection that a request could have been sent over.
fn never_connected(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let refused = std::io::ErrorKind::ConnectionRefused;
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == refused)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(action: Action, status: u16, body: Json) -> Result<Option<Reply>, String> {
        let status = http::StatusCode::from_u16(status).expect("a status");
        let answer = Answer { status, headers: http::HeaderMap::new(), body: Vec::new().into() };
        of(action, "x", &Ok(answer), &body)
    }

    fn reason(reason: &str) -> Json {
        json!({"kind": "Status", "reason": reason, "details": {"name": "x"}})
    }

    #[test]
    fn an_answer_counts_for_what_it_proves() {
        let update = Action::Update { from: 1, to: 2 };
        let object = json!({"metadata": {"labels": {"number": "7"}}});
        assert_eq!(told(Action::Read, 200, object), Ok(Some(Reply::Saw(Some(7)))));
        assert_eq!(told(Action::Read, 404, reason("NotFound")), Ok(Some(Reply::Saw(None))));
        assert_eq!(told(update, 404, reason("NotFound")), Ok(Some(Reply::Missing)));
        assert_eq!(told(update, 409, reason("Conflict")), Ok(Some(Reply::Conflict)));
        let exists = told(Action::Create(1), 409, reason("AlreadyExists"));
        assert_eq!(exists, Ok(Some(Reply::Conflict)));
        assert_eq!(told(Action::Delete, 200, Json::Null), Ok(Some(Reply::Done)));
    }

    #[test]
    fn what_may_have_been_processed_is_unclear() {
        for status in [500, 503, 504] {
            assert_eq!(told(Action::Write(1), status, Json::Null), Ok(Some(Reply::Unclear)));
            assert_eq!(told(Action::Read, status, Json::Null), Ok(None));
        }
        let lost = Err(anyhow::anyhow!("the connection broke"));
        assert_eq!(of(Action::Delete, "x", &lost, &Json::Null), Ok(Some(Reply::Unclear)));
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let refused = Err(anyhow::Error::from(refused).context("cannot connect"));
        assert_eq!(of(Action::Delete, "x", &refused, &Json::Null), Ok(None));
    }

    #[test]
    fn an_unrouted_404_is_wrong_for_every_operation() {
        let unrouted = json!({"kind": "Status", "reason": "NotFound", "details": {}});
        for action in [Action::Read, Action::Create(1), Action::Delete] {
            assert!(told(action, 404, unrouted.clone()).is_err());
            assert!(told(action, 404, Json::Null).is_err(), "404 page not found");
        }
        assert!(told(Action::Create(1), 409, reason("Conflict")).is_err());
        assert!(told(Action::Read, 403, reason("Forbidden")).is_err());
    }
}
