//! Quantities as Kubernetes writes them: the file next to this one is the output of `resource.Quantity` of
//! k8s.io/apimachinery 0.36 for hand-picked and random texts.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use schema::quantity::{Form, Quantity, canonical};
use serde_json::{Value, json};

/// Where Kubernetes loses the size of a number, we keep it.
fn beyond_suffixes(text: &str, theirs: &Value) -> bool {
    let ours = canonical(&json!(text)).unwrap_or_default();
    !text.contains(['e']) && ours.contains('e') && theirs.as_str().is_some_and(|t| ours.starts_with(t))
}

#[test]
fn texts_are_written_as_kubernetes_writes_them() {
    let cases: Vec<Vec<Value>> = serde_json::from_str(include_str!("quantity/go.json")).unwrap();
    for case in cases {
        let text = case[0].as_str().unwrap();
        match canonical(&case[0]) {
            Ok(_) if beyond_suffixes(text, &case[1]) => {}
            Ok(ours) => assert_eq!(json!(ours), case[1], "{text}"),
            Err(error) => assert_eq!(
                (&case[1], error.to_string()),
                (&Value::Null, case[2].as_str().unwrap().into()),
                "{text}"
            ),
        }
    }
}

#[test]
fn values_are_those_of_kubernetes_where_they_fit() {
    let cases: Vec<Vec<Value>> = serde_json::from_str(include_str!("quantity/go.json")).unwrap();
    for case in cases.iter().filter(|case| !case[1].is_null()) {
        let quantity = Quantity::read(&case[0]).unwrap();
        // Go overflows, and rounds some negative numbers the other way.
        if quantity > Quantity::ZERO && quantity < Quantity::from_units(1_000_000_000_000_000) {
            assert_eq!(
                (json!(quantity.units()), json!(quantity.millis())),
                (case[2].clone(), case[3].clone()),
                "{case:?}"
            );
        }
    }
}

#[test]
fn numbers_are_quantities_too() {
    assert_eq!(canonical(&json!(2)).unwrap(), "2");
    assert_eq!(canonical(&json!(0.5)).unwrap(), "500m");
    assert_eq!(canonical(&json!(4096)).unwrap(), "4096");
    assert_eq!(canonical(&Value::Null).unwrap(), "0");
    assert!(canonical(&json!(true)).is_err());
    assert!(canonical(&json!({})).is_err());
}

#[test]
fn a_huge_exponent_costs_nothing() {
    assert_eq!(canonical(&json!("1e2147483647")).unwrap(), "10e2147483646");
    assert_eq!(canonical(&json!("1e-2147483648")).unwrap(), "1e-9");
    assert!(canonical(&json!("1e99999999999")).is_err());
    assert_eq!(Quantity::parse("1e2147483647").unwrap(), Quantity::parse("1e100").unwrap());
}

#[test]
fn quantities_are_added_and_compared() {
    let parse = |text| Quantity::parse(text).unwrap();
    assert_eq!(parse("1500m").plus(parse("500m")), Quantity::from_units(2));
    assert_eq!(parse("1Gi").minus(parse("1Mi")).text(Form::BinarySi), "1023Mi");
    assert_eq!([parse("100m"), parse("0.2")].into_iter().sum::<Quantity>().text(Form::DecimalSi), "300m");
    assert!(parse("1Ki") > parse("1k"));
    assert_eq!(parse("1500m").units(), 2);
    assert_eq!(parse("-1500m").units(), -2);
}

#[test]
fn thousandths_are_rounded_away_from_zero_and_held_within_64_bits() {
    let millis = |text| Quantity::parse(text).unwrap().millis();
    assert_eq!(["1.5", "2e3", "100u", "1n"].map(millis), [1_500, 2_000_000, 1, 1]);
    assert_eq!(["0.5Gi", "-500m", "0"].map(millis), [536_870_912_000, -500, 0]);
    assert_eq!(["1Ei", "-1Ei"].map(millis), [i64::MAX, i64::MIN]);
}

fn quantity() -> impl Strategy<Value = String> {
    "[+-]?(0|[1-9][0-9]{0,22})(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})?"
}

proptest! {
    #[test]
    fn a_canonical_text_stays_as_it_is(text in quantity()) {
        let once = canonical(&json!(text)).unwrap();
        prop_assert_eq!(canonical(&json!(once)).unwrap(), once);
    }

    #[test]
    fn a_canonical_text_means_the_same(text in quantity()) {
        let once = canonical(&json!(text)).unwrap();
        prop_assert_eq!(Quantity::parse(&once).unwrap(), Quantity::parse(&text).unwrap());
    }

    #[test]
    fn order_is_that_of_the_numbers(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000) {
        let parse = |n: i64| Quantity::parse(&canonical(&json!(format!("{n}u"))).unwrap()).unwrap();
        prop_assert_eq!(parse(a).cmp(&parse(b)), a.cmp(&b));
    }
}
