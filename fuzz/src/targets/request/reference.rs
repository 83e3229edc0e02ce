//! kube-apiserver's `RequestInfoFactory.NewRequestInfo` (k8s.io/apiserver/pkg/endpoints/request), with the
//! decoding of net/url and the field selectors of k8s.io/apimachinery. It follows the Go source, on
//! lists of strings, and shares nothing with the crate under test. Entry item: [`answer`].

/// What kube-apiserver makes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// 400 or 500, before routing.
    Malformed,
    /// Not a resource.
    NonResource,
    /// Verb, group, version, resource, subresource, namespace and name.
    Resource([String; 7]),
}

/// The answer to a request whose path begins with a slash.
pub fn answer(method: &str, path: &str, query: &str) -> Answer {
    let control = |text: &str| text.bytes().any(|byte| byte < 0x20 || byte == 0x7f);
    let Some(path) = decoded(path, false).filter(|_| !control(path) && !control(query)) else {
        return Answer::Malformed;
    };
    let trimmed = path.trim_matches('/');
    let mut parts: Vec<&str> =
        if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
    if parts.len() < 3 || !["api", "apis"].contains(&parts[0]) {
        return Answer::NonResource;
    }
    let mut group = "";
    let prefix = parts.remove(0);
    if prefix == "apis" {
        if parts.len() < 3 {
            return Answer::NonResource;
        }
        group = parts.remove(0);
    }
    let version = parts.remove(0);
    let mut verb = match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    if ["proxy", "watch"].contains(&parts[0]) {
        if parts.len() < 2 {
            return Answer::Malformed;
        }
        verb = parts.remove(0);
    }
    let mut namespace = "";
    if parts[0] == "namespaces" && parts.len() > 1 {
        namespace = parts[1];
        if parts.len() > 2 && !["status", "finalize"].contains(&parts[2]) {
            parts.drain(..2);
        }
    }
    let subresource = if verb == "proxy" { "" } else { parts.get(2).copied().unwrap_or_default() };
    let mut name = parts.get(1).copied().unwrap_or_default().to_owned();
    let resource = parts[0];
    if name.is_empty() && verb == "get" {
        let options = Options::of(query);
        verb = if options.watch { "watch" } else { "list" };
        name = options.name;
    }
    if name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    let fields = [verb, group, version, resource, subresource, namespace, &name];
    Answer::Resource(fields.map(str::to_owned))
}

/// Percent-decoding, as `unescape` of net/url. Bytes that are not UTF-8 become U+FFFD.
pub fn decoded(text: &str, query: bool) -> Option<String> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                let digits = std::str::from_utf8(digits).ok()?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
                at += 3;
                continue;
            }
            b'+' if query => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// The options of a list, as far as `RequestInfo` reads them.
struct Options {
    watch: bool,
    /// The name that the field selector requires.
    name: String,
}

impl Options {
    fn of(query: &str) -> Options {
        let values = parsed(query);
        let first = |key: &str| {
            values.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
        };
        let folded = |text: &str| text.replace('\u{17f}', "s").to_ascii_lowercase();
        let watch = first("watch").is_some_and(|value| value != "0" && folded(value) != "false");
        let is_number = |value: &str| {
            let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
            let digits_only = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits_only
                && value.trim_start_matches('+').parse::<i128>().is_ok_and(|number| {
                    (i128::from(i64::MIN)..=i128::from(i64::MAX)).contains(&number)
                })
        };
        let numbers = ["limit", "timeoutSeconds"].map(|key| first(key).is_none_or(is_number));
        let selector = first("fieldSelector").map_or(Some(Vec::new()), selector);
        let name = match selector {
            Some(terms) if numbers == [true, true] => required(&terms, "metadata.name"),
            _ => String::new(),
        };
        let is_segment = name != "." && name != ".." && !name.contains(['/', '%']);
        Options { watch, name: if is_segment { name } else { String::new() } }
    }
}

/// `url.ParseQuery`: pairs with an error are left out, and so is everything if there are too many.
fn parsed(query: &str) -> Vec<(String, String)> {
    if query.bytes().filter(|byte| *byte == b'&').count() >= 10_000 {
        return Vec::new();
    }
    let pair = |pair: &str| {
        if pair.is_empty() || pair.contains(';') {
            return None;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(key, true)?, decoded(value, true)?))
    };
    query.split('&').filter_map(pair).collect()
}

struct Term {
    field: String,
    equals: bool,
    value: String,
}

/// `fields.ParseSelector`: its terms in sorted order; `None` if it is malformed.
fn selector(text: &str) -> Option<Vec<Term>> {
    let mut terms: Vec<String> = vec![String::new()];
    let mut backslash = false;
    for character in text.chars() {
        match character {
            ',' if !backslash => terms.push(String::new()),
            other => terms.last_mut()?.push(other),
        }
        backslash = character == '\\' && !backslash;
    }
    terms.sort();
    let mut read = Vec::new();
    for term in terms.iter().filter(|term| !term.is_empty()) {
        // The first operator, the longest one at its place.
        let places = term.char_indices().map(|(place, _)| place);
        let (place, operator) = places
            .filter_map(|place| {
                let operators = ["!=", "==", "="];
                Some((place, *operators.iter().find(|o| term[place..].starts_with(**o))?))
            })
            .next()?;
        let value = unescaped(&term[place + operator.len()..])?;
        read.push(Term { field: term[..place].to_owned(), equals: operator != "!=", value });
    }
    Some(read)
}

fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut escape) = (String::new(), false);
    for character in text.chars() {
        match (escape, character) {
            (true, '\\' | ',' | '=') => plain.push(character),
            (true, _) => return None,
            (false, '\\') => {}
            (false, ',' | '=') => return None,
            (false, other) => plain.push(other),
        }
        escape = character == '\\' && !escape;
    }
    (!escape).then_some(plain)
}

/// `RequiresExactMatch`
fn required(terms: &[Term], field: &str) -> String {
    let found = terms.iter().find(|term| term.equals && term.field == field);
    found.map_or(String::new(), |term| term.value.clone())
}
