//! A count or a percentage of something.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A count (`2`) or a percentage (`"25%"`) of a number of replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// So many.
    Count(i32),
    /// This share, as in `"25%"`.
    Percent(String),
}

impl IntOrPercent {
    /// How many of `total` this is, a share rounded down. Nothing for text that is no percentage.
    pub fn floor_of(&self, total: i32) -> Option<i32> {
        self.of(total, 0)
    }

    /// How many of `total` this is, a share rounded up. Nothing for text that is no percentage.
    pub fn ceil_of(&self, total: i32) -> Option<i32> {
        self.of(total, 99)
    }

    fn of(&self, total: i32, round: i64) -> Option<i32> {
        match self {
            Self::Count(count) => Some(*count),
            Self::Percent(text) => {
                let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
                let share = percent.checked_mul(i64::from(total))?.checked_add(round)? / 100;
                i32::try_from(share).ok()
            }
        }
    }
}

impl From<i32> for IntOrPercent {
    fn from(count: i32) -> Self {
        Self::Count(count)
    }
}

impl JsonSchema for IntOrPercent {
    fn schema_name() -> Cow<'static, str> {
        "IntOrPercent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        bounded(0, "^0*(100|[1-9]?[0-9])%$")
    }
}

/// The schema of an [`IntOrPercent`] that must be more than nothing.
pub(crate) fn positive_schema(_: &mut SchemaGenerator) -> Schema {
    bounded(1, "^0*(100|[1-9][0-9]?)%$")
}

/// The bounds sit beside each other because each looks at one type only: numbers have a minimum, text a pattern.
fn bounded(minimum: i32, pattern: &str) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
        "minimum": minimum,
        "maximum": 1_000_000,
        "maxLength": 5,
        "pattern": pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_as_asked_and_never_overflow() {
        let quarter = IntOrPercent::Percent("25%".into());
        assert_eq!((quarter.floor_of(3), quarter.ceil_of(3)), (Some(0), Some(1)));
        assert_eq!((quarter.floor_of(4), quarter.ceil_of(4)), (Some(1), Some(1)));
        assert_eq!(IntOrPercent::Percent("100%".into()).ceil_of(i32::MAX), Some(i32::MAX));
        assert_eq!(IntOrPercent::Percent("0%".into()).ceil_of(7), Some(0));
        assert_eq!(IntOrPercent::Count(5).floor_of(3), Some(5));
        for text in ["", "%", "x%", "5", "9223372036854775807%"] {
            assert_eq!(IntOrPercent::Percent(text.into()).floor_of(i32::MAX), None, "{text}");
        }
    }
}
