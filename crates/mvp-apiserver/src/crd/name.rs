//! The rules for names in definitions. Entries: [`label_fault`], [`subdomain_fault`].

/// Why a text is no DNS label (RFC 1035), in the words of Kubernetes; `None` if it is one.
pub(super) fn label_fault(text: &str) -> Option<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 bytes".to_owned());
    }
    let middle = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = text.bytes().all(middle)
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && !text.ends_with('-');
    if !is_label {
        faults.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character (e.g. \
             'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    (!faults.is_empty()).then(|| faults.join(","))
}

/// Why a text is no DNS subdomain (RFC 1123), in the words of Kubernetes; `None` if it is one.
pub(super) fn subdomain_fault(text: &str) -> Option<String> {
    let mut faults = Vec::new();
    if text.len() > 253 {
        faults.push("must be no more than 253 bytes".to_owned());
    }
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|byte| edge(byte) || byte == b'-')
            && label.bytes().next().is_some_and(edge)
            && label.bytes().next_back().is_some_and(edge)
    };
    if !text.split('.').all(is_label) {
        faults.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    (!faults.is_empty()).then(|| faults.join(","))
}

/// The order of versions in discovery: stable before beta before alpha, then the newest first, then
/// other names in alphabetical order.
pub(super) fn version_order(version: &str) -> (u8, std::cmp::Reverse<(u64, u64)>, String) {
    let parsed = parse_version(version);
    let (class, numbers) = parsed.unwrap_or((3, (0, 0)));
    let rest = if parsed.is_some() { String::new() } else { version.to_owned() };
    (class, std::cmp::Reverse(numbers), rest)
}

fn parse_version(version: &str) -> Option<(u8, (u64, u64))> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (major, stage) = rest.split_at_checked(digits)?;
    let major = major.parse().ok()?;
    let number = |text: &str| text.parse::<u64>().ok();
    match stage {
        "" => Some((0, (major, 0))),
        _ => match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
            (Some(minor), _) => Some((1, (major, number(minor)?))),
            (_, Some(minor)) => Some((2, (major, number(minor)?))),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order that the Kubernetes documentation gives.
    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
        ];
        let mut versions = expected;
        versions.reverse();
        versions.sort_by_key(|version| version_order(version));
        assert_eq!(versions, expected);
    }
}
