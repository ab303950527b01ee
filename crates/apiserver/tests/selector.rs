//! Selectors as a real kube-apiserver 1.36 reads them; the files next to this one hold its answers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use apiserver::builtin;
use apiserver::selector::{Fields, Labels, Selectable};
use serde::Deserialize;

#[test]
fn label_selectors_are_read_and_refused_as_on_a_real_server() {
    let cases: Vec<(String, Option<String>)> =
        serde_json::from_str(include_str!("selector/labels.json")).unwrap();
    for (text, error) in cases {
        assert_eq!(Labels::parse(&text).err(), error, "{text}");
    }
}

#[derive(Deserialize)]
struct Matches {
    objects: BTreeMap<String, BTreeMap<String, String>>,
    cases: Vec<(String, Vec<String>)>,
}

#[test]
fn label_selectors_choose_what_a_real_server_chooses() {
    let recorded: Matches = serde_json::from_str(include_str!("selector/matches.json")).unwrap();
    for (text, chosen) in recorded.cases {
        let selector = Labels::parse(&text).unwrap();
        let matching = recorded.objects.iter().filter(|(_, labels)| selector.matches(labels));
        assert_eq!(matching.map(|(name, _)| name.clone()).collect::<Vec<_>>(), chosen, "{text}");
    }
}

#[test]
fn field_selectors_are_refused_as_on_a_real_server() {
    let only = "is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    let cases = [
        ("metadata.name=a", None),
        ("metadata.name==a", None),
        ("metadata.name!=a", None),
        ("metadata.name=a,", None),
        (",", None),
        ("", None),
        ("metadata.name=", None),
        ("metadata.name=a\\,b", None),
        (
            "metadata.name",
            Some("invalid selector: 'metadata.name'; can't understand 'metadata.name'".to_owned()),
        ),
        (
            "metadata.name>1",
            Some("invalid selector: 'metadata.name>1'; can't understand 'metadata.name>1'".into()),
        ),
        ("metadata.name=a\\b", Some("invalid field selector: invalid escape sequence: \\b".into())),
        ("metadata.name=a\\", Some("invalid field selector: invalid escape sequence: \\".into())),
        ("metadata.name=a=b", Some("invalid field selector: unescaped character in value: 61".into())),
        ("=a", Some(format!("\"\" {only}"))),
        (" metadata.name=a", Some(format!("\" metadata.name\" {only}"))),
        ("z=w,x=y", Some(format!("\"x\" {only}"))),
    ];
    for (text, error) in cases {
        assert_eq!(Fields::parse(text, Selectable::Metadata).err(), error, "{text}");
    }
}

#[test]
fn kinds_with_fields_of_their_own_refuse_others_in_other_words() {
    let pods = builtin::find("", "v1", "Pod").unwrap().selectable;
    assert!(Fields::parse("status.phase!=Running", Selectable::Named(pods)).is_ok());
    for kind in builtin::KINDS.iter().filter(|kind| !kind.selectable.is_empty()) {
        let error = Fields::parse("x.y=z", Selectable::Named(kind.selectable)).unwrap_err();
        assert_eq!(error, "field label not supported: x.y", "{}", kind.kind);
    }
}

#[test]
fn field_selectors_compare_values_and_take_missing_ones_as_empty() {
    let selectable = Selectable::Named(&["a", "b"]);
    let fields = [("a".to_owned(), "x,=y".to_owned())];
    let matches = |text: &str| Fields::parse(text, selectable).unwrap().matches(&fields);
    assert!(matches("a=x\\,\\=y"));
    assert!(matches("a==x\\,\\=y,b!=z"));
    assert!(matches("b="));
    assert!(!matches("a!=x\\,\\=y"));
    assert!(!matches("a=x"));
    assert_eq!(Fields::parse("b!=1,a=2", selectable).unwrap().exact("a"), Some("2"));
    assert_eq!(Fields::parse("b!=1", selectable).unwrap().exact("b"), None);
}
