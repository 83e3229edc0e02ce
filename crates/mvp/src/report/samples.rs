//! The samples in our own metrics text. Entry: [`samples`].
//!
//! `prometheus-client` gives no other access to the values of a family with labels than its text encoder.
//! Second counters beside these would cost something in each request.

/// A sample: the value of a metric with these labels.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: Vec<(&'a str, String)>,
    pub(super) value: f64,
}

impl Sample<'_> {
    /// The value of a label; empty without it.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map_or("", |(_, value)| value)
    }

    /// The value of a counter.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    pub(super) fn count(&self) -> u64 {
        self.value as u64
    }
}

/// All samples of the text. Lines that are none are left out.
pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at_checked(end)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// The labels up to `}`, and the rest of the line.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.strip_prefix(',').unwrap_or(rest);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (mut value, mut escaped) = (String::new(), false);
        let mut end = None;
        for (place, character) in after.char_indices() {
            match (escaped, character) {
                (false, '"') => {
                    end = Some(place + 1);
                    break;
                }
                (false, '\\') => escaped = true,
                (true, 'n') => {
                    value.push('\n');
                    escaped = false;
                }
                (_, other) => {
                    value.push(other);
                    escaped = false;
                }
            }
        }
        rest = after.get(end?..)?;
        labels.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn the_encoder_and_this_agree() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        let family = Family::<Vec<(&str, &str)>, Counter>::default();
        let odd = "a\"b\\c\nd,e=\"f\"} 9";
        family.get_or_create(&vec![("member", odd), ("code", "200")]).inc_by(7);
        registry.register("requests", "Requests", family);
        let gauge: Gauge = Gauge::default();
        gauge.set(-1);
        registry.register("age_seconds", "Age", gauge);
        encode(&mut text, &registry).unwrap();
        let found: Vec<Sample<'_>> = samples(&text).collect();
        let labels = vec![("member", odd.to_owned()), ("code", "200".to_owned())];
        let requests = Sample { name: "requests_total", labels, value: 7.0 };
        let age = Sample { name: "age_seconds", labels: Vec::new(), value: -1.0 };
        assert_eq!(found, [requests, age], "{text}");
        assert_eq!(
            found.first().map(|found| (found.label("code"), found.count())),
            Some(("200", 7))
        );
    }

    #[test]
    fn lines_that_are_no_samples_are_left_out() {
        let text = "# EOF\n\nname\nname{a=\"b\nname{a=b} 1\nname{a=\"b\"} x\nname{é=\"\\\n";
        assert_eq!(samples(text).collect::<Vec<_>>(), []);
    }
}
