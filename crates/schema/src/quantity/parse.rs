//! The grammar of quantities.
use super::decimal::Decimal;
use super::{Form, QuantityError};

pub(super) struct Parsed {
    pub(super) amount: Decimal,
    pub(super) form: Form,
    /// The text is canonical as it stands.
    pub(super) kept: bool,
}

/// The parts of `[+-]digits[.digits][suffix]`.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros, `0` if nothing is left.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

enum Scale {
    Thousands {
        exponent: i32,
        form: Form,
    },
    /// A power of 1024.
    Binary(usize),
}

/// More digits than a 64-bit number surely holds; below, Kubernetes keeps what is written.
const SURE_DIGITS: usize = 18;
const NANO: i64 = -9;

pub(super) fn parse(text: &str) -> Result<Parsed, QuantityError> {
    let parts = split(text)?;
    let digits = format!("{}{}", parts.whole, parts.fraction);
    let places = i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    match scale(parts.suffix)? {
        Scale::Thousands { exponent, form } => {
            let exponent = i64::from(exponent).saturating_sub(places);
            let mut amount = Decimal::new(parts.negative, &digits, exponent);
            let simple = digits.len() <= SURE_DIGITS && exponent >= NANO;
            let kept = simple && exponent % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0');
            if !kept {
                amount.round_to_nano();
            }
            Ok(Parsed { amount, form, kept })
        }
        Scale::Binary(times) => {
            let mut amount = Decimal::new(parts.negative, &digits, -places);
            amount.scale_up(times);
            if parts.fraction.is_empty() && digits.len() + 3 * times < 15 {
                // Kubernetes only looks for a larger unit if the number is a multiple of eight.
                let kept = digits.parse::<u64>().is_ok_and(|n| n % 8 != 0);
                return Ok(Parsed { amount, form: Form::BinarySi, kept });
            }
            amount.round_to_nano();
            amount.cap();
            let form = if amount.is_below(1) { Form::DecimalSi } else { Form::BinarySi };
            Ok(Parsed { amount, form, kept: false })
        }
    }
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let number = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !number.bytes().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
}

/// Splits the digits off.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn scale(suffix: &str) -> Result<Scale, QuantityError> {
    let si = |exponent| Ok(Scale::Thousands { exponent, form: Form::DecimalSi });
    match suffix {
        "n" => si(-9),
        "u" => si(-6),
        "m" => si(-3),
        "" => si(0),
        "k" => si(3),
        "M" => si(6),
        "G" => si(9),
        "T" => si(12),
        "P" => si(15),
        "E" => si(18),
        "Ki" => Ok(Scale::Binary(1)),
        "Mi" => Ok(Scale::Binary(2)),
        "Gi" => Ok(Scale::Binary(3)),
        "Ti" => Ok(Scale::Binary(4)),
        "Pi" => Ok(Scale::Binary(5)),
        "Ei" => Ok(Scale::Binary(6)),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|number| number.parse().ok());
            let exponent = exponent.ok_or(QuantityError::Suffix)?;
            Ok(Scale::Thousands { exponent, form: Form::DecimalExponent })
        }
    }
}
