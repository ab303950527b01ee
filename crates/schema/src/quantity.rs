//! Quantities: `500m`, `1.5Gi`, `2e3`. The canonical form that Kubernetes stores, and numbers to schedule with.
mod decimal;
mod parse;

use std::iter::Sum;

use decimal::Decimal;
use parse::parse;
use serde_json::Value;

/// What is wrong with a quantity, in the words of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `12M`
    DecimalSi,
    /// `12Mi`
    BinarySi,
    /// `12e6`
    DecimalExponent,
}

/// The canonical form of a string or a number. Kubernetes keeps most quantities that need no change of scale as they
/// were written, `+1` and `1.500` among them.
pub fn canonical(value: &Value) -> Result<String, QuantityError> {
    let text = match value {
        Value::Null => return Ok("0".into()),
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err(QuantityError::Format),
    };
    let parsed = parse(&text)?;
    if parsed.kept { Ok(text) } else { Ok(parsed.amount.text(parsed.form)) }
}

/// A quantity to compare and to add, in billionths. What does not fit is held at the end of the range, far above all
/// that a node has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0 };

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Ok(Self { nanos: parse(text.trim())?.amount.nanos() })
    }

    /// Reads what a resource list holds: a string or a number.
    pub fn read(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::Null => Ok(Self::ZERO),
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(QuantityError::Format),
        }
    }

    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANOS_PER_UNIT }
    }

    pub fn from_millis(millis: i64) -> Self {
        Self { nanos: i128::from(millis) * NANOS_PER_MILLI }
    }

    /// Whole units (bytes, GPUs), rounded away from zero.
    pub fn units(self) -> i64 {
        self.in_steps_of(NANOS_PER_UNIT)
    }

    /// Thousandths (of a CPU), rounded away from zero.
    pub fn millis(self) -> i64 {
        self.in_steps_of(NANOS_PER_MILLI)
    }

    fn in_steps_of(self, step: i128) -> i64 {
        let whole = self.nanos / step;
        let rest = (self.nanos % step).signum();
        let end = if self.nanos < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(whole + rest).unwrap_or(end)
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos) }
    }

    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { nanos: self.nanos.saturating_mul(times.into()) }
    }

    /// The canonical text in a form.
    pub fn text(self, form: Form) -> String {
        Decimal::from_nanos(self.nanos).text(form)
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Self::plus)
    }
}
