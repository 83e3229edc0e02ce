//! The W3C trace context of a request: `traceparent` and `tracestate`. Entry item: [`Context`].
//! <https://www.w3.org/TR/trace-context/>

use http::header::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of a `traceparent` of version 00: `00-TRACE-SPAN-FLAGS`.
const LENGTH: usize = 55;
/// The flag that says that the caller records the trace.
const SAMPLED: u8 = 1;
/// The longest trace state that is exported. Longer ones are only passed on.
const MAX_STATE: usize = 512;

/// The ID of a trace; never zero.
pub(super) type TraceId = [u8; 16];
/// The ID of a span; never zero.
pub(super) type SpanId = [u8; 8];

/// The trace that a request belongs to, and the span that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) sampled: bool,
}

impl Context {
    /// The context in these headers; `None` without one, or with an invalid one.
    pub(super) fn of(headers: &HeaderMap) -> Option<Context> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        // With two of them nobody can tell which one is meant.
        if values.next().is_some() {
            return None;
        }
        Context::parse(value.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<Context> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let [version, trace, span, flags] = fields(known)?;
        let [version]: [u8; 1] = hex(version)?;
        match version {
            // Version 00 ends here; later ones may have more fields.
            0 if !rest.is_empty() => return None,
            _ if !rest.is_empty() && !rest.starts_with(b"-") => return None,
            0xff => return None,
            _ => {}
        }
        let (trace, span): (TraceId, SpanId) = (hex(trace)?, hex(span)?);
        let [flags]: [u8; 1] = hex(flags)?;
        let valid = trace != TraceId::default() && span != SpanId::default();
        valid.then_some(Context { trace, span, sampled: flags & SAMPLED != 0 })
    }

    /// Replaces the context in these headers. `tracestate` belongs to the trace, and stays.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        let Context { trace, span, sampled } = self;
        let flags = if *sampled { "01" } else { "00" };
        let text = format!("00-{}-{}-{flags}", Hex(trace), Hex(span));
        if let Ok(mut value) = HeaderValue::try_from(text) {
            // HPACK remembers other values. This one never occurs again, and would evict them.
            value.set_sensitive(true);
            headers.insert(TRACEPARENT, value);
        }
    }
}

/// The trace state in these headers, which its vendors alone can read.
pub(super) fn state(headers: &HeaderMap) -> Option<String> {
    let mut states = headers.get_all(TRACESTATE).iter().map(|value| value.to_str());
    let first = states.next()?.ok()?.to_owned();
    let joined = states.try_fold(first, |joined, state| state.map(|state| joined + "," + state));
    joined.ok().filter(|state| !state.is_empty() && state.len() <= MAX_STATE)
}

/// Removes a trace state that belongs to no trace of ours.
pub(super) fn remove_state(headers: &mut HeaderMap) {
    headers.remove(TRACESTATE);
}

/// The four fields of a `traceparent`.
fn fields(text: &[u8]) -> Option<[&[u8]; 4]> {
    let mut fields = text.split(|byte| *byte == b'-');
    let four = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    fields.next().is_none().then_some(four)
}

/// The bytes of lowercase hexadecimal digits; uppercase is invalid here.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = digits else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Bytes as lowercase hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(values: &[&str]) -> Option<Context> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        Context::of(&headers)
    }

    #[test]
    fn a_context_is_read_and_written() {
        let context = of(&[TEXT]).unwrap();
        assert!(context.sampled);
        assert_eq!(context.trace[..2], [0x0a, 0xf7]);
        assert_eq!(context.span, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        let mut headers = HeaderMap::new();
        context.write(&mut headers);
        assert_eq!(headers[TRACEPARENT], TEXT);
        Context { sampled: false, ..context }.write(&mut headers);
        assert_eq!(headers[TRACEPARENT], TEXT.replace("-01", "-00"));
        assert_eq!(headers.len(), 1);
    }

    /// The rules of the recommendation, section 3.2.
    #[test]
    fn only_valid_contexts_are_read() {
        let flags = |flags: &str| TEXT.replace("-01", flags);
        assert!(!of(&[&flags("-00")]).unwrap().sampled);
        assert!(!of(&[&flags("-02")]).unwrap().sampled, "another flag");
        assert!(of(&[&flags("-03")]).unwrap().sampled);
        let later = |rest: &str| format!("01{}{rest}", &TEXT[2..]);
        assert_eq!(of(&[&later("")]), of(&[TEXT]));
        assert_eq!(of(&[&later("-more")]), of(&[TEXT]));
        let invalid = [
            String::new(),
            TEXT[1..].to_owned(),
            format!("{TEXT}-"),
            format!("{TEXT}-more"),
            later("more"),
            format!("ff{}", &TEXT[2..]),
            format!("0g{}", &TEXT[2..]),
            TEXT.to_uppercase(),
            TEXT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            TEXT.replace("b7ad6b7169203331", &"0".repeat(16)),
            TEXT.replace('-', "_"),
            TEXT.replace("9c-b7", "-9cb7"),
            TEXT.replace("-01", "-0g"),
        ];
        for text in invalid {
            assert_eq!(of(&[&text]), None, "{text}");
        }
        assert_eq!(of(&[TEXT, TEXT]), None, "two of them");
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_trace_state_of_several_headers_is_joined_and_bounded() {
        let state_of = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRACESTATE, HeaderValue::from_bytes(value).unwrap());
            }
            state(&headers)
        };
        assert_eq!(state_of(&[]), None);
        assert_eq!(state_of(&[b"a=1", b"b=2,c=3"]).as_deref(), Some("a=1,b=2,c=3"));
        assert_eq!(state_of(&[b"a=\xff"]), None);
        assert_eq!(state_of(&[&[b'x'; MAX_STATE]]).map(|state| state.len()), Some(MAX_STATE));
        assert_eq!(state_of(&[&[b'x'; MAX_STATE + 1]]), None);
    }
}
