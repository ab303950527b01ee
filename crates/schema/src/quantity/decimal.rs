//! A decimal number of any length: quantities are exact, and a short text can name a huge one.
use std::cmp::Ordering;

use super::Form;

/// `digits * 10^exponent`, without leading zeros; zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

const DECIMAL_SUFFIXES: [(i64, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANO: i64 = -9;

impl Decimal {
    /// From text digits.
    pub(super) fn new(negative: bool, digits: &str, exponent: i64) -> Self {
        let digits = digits.bytes().map(|c| c - b'0').skip_while(|d| *d == 0).collect();
        Self { negative, digits, exponent }
    }

    pub(super) fn from_nanos(nanos: i128) -> Self {
        Self::new(nanos < 0, &nanos.unsigned_abs().to_string(), NANO)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// How many digits stand before the point; below zero, how many zeros follow it.
    fn magnitude(&self) -> i64 {
        i64::try_from(self.digits.len()).unwrap_or(i64::MAX).saturating_add(self.exponent)
    }

    /// Multiplies by 1024, `times` times.
    pub(super) fn scale_up(&mut self, times: usize) {
        for _ in 0..times {
            let mut carry = 0_u32;
            for digit in self.digits.iter_mut().rev() {
                let product = u32::from(*digit) * 1024 + carry;
                *digit = low_digit(product);
                carry = product / 10;
            }
            let mut front = Vec::new();
            while carry > 0 {
                front.push(low_digit(carry));
                carry /= 10;
            }
            self.digits.splice(0..0, front.into_iter().rev());
        }
    }

    /// Rounds away from zero to billionths.
    pub(super) fn round_to_nano(&mut self) {
        if self.exponent >= NANO || self.is_zero() {
            return;
        }
        let dropped = usize::try_from(NANO - self.exponent).unwrap_or(usize::MAX);
        let kept = self.digits.len().saturating_sub(dropped);
        let rest = self.digits.split_off(kept);
        self.exponent = NANO;
        // Leading zeros are not stored, so digits cut off entirely were not zero.
        if rest.iter().any(|d| *d > 0) {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// Holds the number within that of 64 bits.
    pub(super) fn cap(&mut self) {
        let most = Self::new(self.negative, &i64::MAX.to_string(), 0);
        if self.compare_size(&most) == Ordering::Greater {
            *self = most;
        }
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let padded = |d: &Self, n: usize| d.digits.get(n).copied().unwrap_or_default();
        let length = self.digits.len().max(other.digits.len());
        let digits = (0..length).map(|n| padded(self, n).cmp(&padded(other, n)));
        self.magnitude().cmp(&other.magnitude()).then_with(|| digits.fold(Ordering::Equal, Ordering::then))
    }

    /// Whether the number is smaller than `bound`, whatever its sign.
    pub(super) fn is_below(&self, bound: u32) -> bool {
        self.compare_size(&Self::new(false, &bound.to_string(), 0)) == Ordering::Less
    }

    /// In billionths, held within the range.
    pub(super) fn nanos(&self) -> i128 {
        let mut rounded = self.clone();
        rounded.round_to_nano();
        let end = if self.negative { i128::MIN } else { i128::MAX };
        if rounded.is_zero() {
            return 0;
        }
        // Neither worth the zeros nor within the range.
        if rounded.magnitude() > 30 {
            return end;
        }
        let zeros = usize::try_from(rounded.exponent - NANO).unwrap_or_default();
        let mut digits = rounded.digits.iter().copied().chain(std::iter::repeat_n(0, zeros));
        let size = digits.try_fold(0_i128, |n, d| n.checked_mul(10)?.checked_add(i128::from(d)));
        size.map_or(end, |size| if self.negative { -size } else { size })
    }

    /// The canonical text.
    pub(super) fn text(&self, form: Form) -> String {
        if self.is_zero() {
            return "0".into();
        }
        if form == Form::BinarySi
            && !self.is_below(1024)
            && let Some(whole) = self.whole()
        {
            return self.signed(&binary_text(whole));
        }
        self.decimal_text(form)
    }

    fn signed(&self, text: &str) -> String {
        if self.negative { format!("-{text}") } else { text.to_owned() }
    }

    /// The size, if it is a whole number of 64 bits.
    fn whole(&self) -> Option<u64> {
        let nanos = self.nanos().unsigned_abs();
        if !nanos.is_multiple_of(1_000_000_000) {
            return None;
        }
        u64::try_from(nanos / 1_000_000_000).ok()
    }

    /// As few digits as an exponent of thousands allows.
    fn decimal_text(&self, form: Form) -> String {
        let last = self.digits.iter().rposition(|d| *d > 0).map_or(0, |at| at + 1);
        let cut = i64::try_from(self.digits.len() - last).unwrap_or_default();
        let exponent = self.exponent.saturating_add(cut);
        let shift = exponent.rem_euclid(3);
        let exponent = exponent - shift;
        let digits = self.digits[..last].iter().map(|d| char::from(b'0' + d));
        let zeros = std::iter::repeat_n('0', usize::try_from(shift).unwrap_or_default());
        let number = self.signed(&digits.chain(zeros).collect::<String>());
        let suffix = DECIMAL_SUFFIXES.iter().find(|(e, _)| *e == exponent).map(|(_, suffix)| *suffix);
        match (form, suffix) {
            (Form::DecimalExponent, _) if exponent == 0 => number,
            // Kubernetes writes a number beyond its suffixes without one, and so loses its size; an exponent keeps it.
            (Form::DecimalExponent, _) | (_, None) => format!("{number}e{exponent}"),
            (_, Some(suffix)) => format!("{number}{suffix}"),
        }
    }
}

fn low_digit(number: u32) -> u8 {
    u8::try_from(number % 10).unwrap_or_default()
}

fn binary_text(mut size: u64) -> String {
    let mut suffix = 0;
    while size >= 1024 && size.is_multiple_of(1024) && suffix + 1 < BINARY_SUFFIXES.len() {
        size /= 1024;
        suffix += 1;
    }
    format!("{size}{}", BINARY_SUFFIXES[suffix])
}
