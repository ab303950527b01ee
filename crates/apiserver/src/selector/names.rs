//! What the keys and the values of labels may be, in the words of Kubernetes.

const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LONGEST_NAME: usize = 63;
const LONGEST_PREFIX: usize = 253;

/// What is wrong with the key of a label; nothing if it is one.
pub(super) fn key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            let wrong =
                if prefix.is_empty() { vec!["must be non-empty".into()] } else { subdomain_errors(prefix) };
            errors.extend(wrong.into_iter().map(|e| format!("prefix part {e}")));
            name
        }
        _ => {
            let with = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {KEY} {with}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LONGEST_NAME {
        errors.push(format!("name part must be no more than {LONGEST_NAME} bytes"));
    }
    if name.is_empty() || !is_name(name) {
        errors.push(format!("name part {KEY}"));
    }
    errors
}

/// What is wrong with the value of a label.
pub(super) fn value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LONGEST_NAME {
        errors.push(format!("must be no more than {LONGEST_NAME} bytes"));
    }
    if !is_name(value) {
        errors.push(VALUE.into());
    }
    errors
}

fn subdomain_errors(prefix: &str) -> Vec<String> {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| !part.is_empty() && surrounded(part, inner, |c| c == b'-');
    let mut errors = Vec::new();
    if prefix.len() > LONGEST_PREFIX {
        errors.push(format!("must be no more than {LONGEST_PREFIX} bytes"));
    }
    if !prefix.split('.').all(is_part) {
        errors.push(SUBDOMAIN.into());
    }
    errors
}

fn is_name(text: &str) -> bool {
    surrounded(text, |c| c.is_ascii_alphanumeric(), |c| matches!(c, b'-' | b'_' | b'.'))
}

/// Whether all characters are `edge` or `inner`, the first and the last `edge`.
fn surrounded(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|c| edge(*c) || inner(*c))
        && bytes.first().is_none_or(|c| edge(*c))
        && bytes.last().is_none_or(|c| edge(*c))
}
