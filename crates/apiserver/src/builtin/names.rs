//! The rules for names. Each returns the messages of a kube-apiserver for what is wrong.
use super::NameRule;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_SAYS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                          end with an alphanumeric character";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_SAYS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                              start and end with an alphanumeric character";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_SAYS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                        character";
const KEY_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
const CONFIG_SAYS: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";

/// How upstream ends the refusal of a text that a regular expression does not match.
fn pattern(says: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{says} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn alphanumeric_ends(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(|b| b.is_ascii_alphanumeric()))
}

fn lower_label(text: &str) -> bool {
    let within = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    alphanumeric_ends(text) && text.bytes().all(within)
}

fn too_long(text: &str, most: usize, unit: &str) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} {unit}"))
}

pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(lower_label)
}

pub fn subdomain(text: &str) -> Vec<String> {
    sub(text, "characters")
}

fn sub(text: &str, unit: &str) -> Vec<String> {
    let type_ref = (!is_subdomain(text)).then(|| pattern(SUBDOMAIN_SAYS, SUBDOMAIN, &["example.com"]));
    too_long(text, 253, unit).into_iter().chain(type_ref).collect()
}

pub fn label(text: &str) -> Vec<String> {
    let type_ref = (!lower_label(text)).then(|| {
        let dots = is_subdomain(text).then(|| "must not contain dots".to_owned());
        dots.unwrap_or_else(|| pattern(LABEL_SAYS, LABEL, &["my-name", "123-abc"]))
    });
    too_long(text, 63, "characters").into_iter().chain(type_ref).collect()
}

pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    path_prefix(text)
}

fn path_prefix(text: &str) -> Vec<String> {
    let found = ["/", "%"].into_iter().filter(|c| text.contains(c));
    found.map(|c| format!("may not contain '{c}'")).collect()
}

fn key_shape(name: &str) -> bool {
    alphanumeric_ends(name) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// A name with an optional prefix: keys of labels and annotations, finalizers.
pub fn qualified(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            let says = pattern(KEY_SAYS, KEY, KEY_EXAMPLES);
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {says} {prefix}")];
        }
    };
    let mut wrong: Vec<String> = match prefix {
        None => Vec::new(),
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => sub(prefix, "bytes").into_iter().map(|says| format!("prefix part {says}")).collect(),
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, 63, "bytes").map(|says| format!("name part {says}")));
    if !key_shape(name) {
        wrong.push(format!("name part {}", pattern(KEY_SAYS, KEY, KEY_EXAMPLES)));
    }
    wrong
}

pub fn label_value(text: &str) -> Vec<String> {
    let says = format!("a valid label must be an empty string or {}", KEY_SAYS.trim_start_matches("must "));
    let type_ref = (!text.is_empty() && !key_shape(text))
        .then(|| pattern(&says, &format!("({KEY})?"), &["MyValue", "my_value", "12345"]));
    too_long(text, 63, "bytes").into_iter().chain(type_ref).collect()
}

/// A key of a ConfigMap or Secret, which becomes the name of a file.
pub fn config_key(text: &str) -> Vec<String> {
    let shaped = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let examples = &["key.name", "KEY_NAME", "key-name"];
    let type_ref = (!shaped).then(|| pattern(CONFIG_SAYS, "[-._a-zA-Z0-9]+", examples));
    let path = match text {
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        text => text.starts_with("..").then_some("must not start with '..'"),
    };
    too_long(text, 253, "characters").into_iter().chain(type_ref).chain(path.map(str::to_owned)).collect()
}

pub fn port_name(text: &str) -> Vec<String> {
    let charset =
        text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') && !text.is_empty();
    let wrong = [
        (!charset, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (!text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (text.contains("--"), "must not contain consecutive hyphens"),
        (text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    let wrong = wrong.into_iter().filter(|(wrong, _)| *wrong).map(|(_, says)| says.to_owned());
    too_long(text, 15, "characters").into_iter().chain(wrong).collect()
}

pub fn port_number(port: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&port)).then_some("must be between 1 and 65535, inclusive")
}

pub fn env_name(text: &str) -> Option<&'static str> {
    let fits = text.bytes().all(|b| (b.is_ascii_graphic() || b == b' ') && b != b'=');
    let says =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    (!fits).then_some(says)
}

/// A percentage of pods.
pub fn percent(text: &str) -> Option<String> {
    let fits = text.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let says = "a valid percent string must be a numeric string followed by an ending '%'";
    (!fits).then(|| pattern(says, "[0-9]+%", &["1%", "93%"]))
}

/// What is wrong with the name of an object.
pub fn of(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// What is wrong with the prefix of a name that is still to be generated: its trailing dash will not be the end.
pub fn prefix(rule: NameRule, text: &str) -> Vec<String> {
    if rule == NameRule::PathSegment {
        return path_prefix(text);
    }
    // Upstream puts a letter in the place of the dash and of the character before it.
    let mut masked: String = text.to_owned();
    if text.len() > 1 && text.ends_with('-') {
        masked.pop();
        masked.pop();
        masked.push('a');
    }
    of(rule, &masked)
}
