//! Weighted round robin: exact shares of a sequence of requests.
//!
//! A turn is a number that only counts up; a [`Shares`] maps it to one of the weighted choices. Because the map is a
//! table of one period, any `period` turns in a row contain each choice exactly as often as its weight says, however
//! many threads take turns at once.

/// What the Gateway API allows for one weight.
pub const HEAVIEST: u32 = 1_000_000;

/// The longest table. Above it, weights are rounded by largest remainder: a share is then exact to 1 in 10,000.
const LONGEST: u64 = 10_000;

/// The shares of the choices `0..n`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shares {
    order: Vec<u16>,
}

impl Shares {
    /// The shares by these weights. Weights beyond [`HEAVIEST`] count as that.
    pub fn new(weights: &[u32]) -> Self {
        let weights = fit(&reduce(weights), LONGEST);
        Self { order: spread(&weights) }
    }

    /// After how many turns the order repeats; 0 when every weight is 0.
    pub fn period(&self) -> usize {
        self.order.len()
    }

    /// The choice of this turn; none when every weight is 0.
    pub fn choose(&self, turn: u64) -> Option<usize> {
        let period = u64::try_from(self.order.len()).ok().filter(|period| *period > 0)?;
        let place = usize::try_from(turn % period).ok()?;
        self.order.get(place).map(|choice| usize::from(*choice))
    }
}

/// Divides by the greatest common divisor: 90 and 10 are a period of 10 turns, not of 100.
fn reduce(weights: &[u32]) -> Vec<u64> {
    let weights: Vec<u64> = weights.iter().map(|weight| u64::from(*weight.min(&HEAVIEST))).collect();
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    weights.into_iter().map(|weight| weight / divisor).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Weights whose sum is at most `longest`, by largest remainder; a weight that is not 0 keeps at least one turn.
fn fit(weights: &[u64], longest: u64) -> Vec<u64> {
    let sum: u64 = weights.iter().sum();
    if sum <= longest {
        return weights.to_vec();
    }
    let mut fitted: Vec<u64> = weights.iter().map(|w| (w * longest / sum).max(u64::from(*w > 0))).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).filter(|i| weights[*i] > 0).collect();
    by_remainder.sort_by_key(|i| std::cmp::Reverse(weights[*i] * longest % sum));
    let missing = longest.saturating_sub(fitted.iter().sum());
    for i in by_remainder.into_iter().take(usize::try_from(missing).unwrap_or(0)) {
        fitted[i] += 1;
    }
    // Turns that were given to weights too small for one come from the largest.
    for _ in 0..fitted.iter().sum::<u64>().saturating_sub(longest) {
        if let Some(most) = fitted.iter_mut().max() {
            *most -= 1;
        }
    }
    reduce_again(fitted)
}

fn reduce_again(weights: Vec<u64>) -> Vec<u64> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    weights.into_iter().map(|weight| weight / divisor).collect()
}

/// One period, spread so that no prefix is off by a whole turn.
///
/// Turn `n` of a choice with `w` of `sum` may come after `n * sum / w` turns and must have come by
/// `(n + 1) * sum / w`: then its count never differs by 1 from its due (Tijdeman's chairman assignment). These are
/// unit jobs with a release and a deadline on one machine, which the earliest deadline first always meets when the
/// shares add up to one.
fn spread(weights: &[u64]) -> Vec<u16> {
    let sum: u64 = weights.iter().sum();
    let mut taken = vec![0_u64; weights.len()];
    let mut order = Vec::new();
    for turn in 1..=sum {
        let due = (0..weights.len())
            .filter(|i| weights[*i] > 0 && taken[*i] * sum < turn * weights[*i])
            .min_by_key(|i| ((taken[*i] + 1) * sum).div_ceil(weights[*i]));
        if let Some(choice) = due {
            taken[choice] += 1;
            order.push(u16::try_from(choice).unwrap_or(u16::MAX));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(shares: &Shares, choices: usize, from: u64, turns: u64) -> Vec<u64> {
        let mut counts = vec![0; choices];
        for turn in from..from + turns {
            counts[shares.choose(turn).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn a_small_share_comes_between_the_others_and_not_in_a_block() {
        let order: Vec<_> = (0..10).map(|turn| Shares::new(&[70, 30]).choose(turn).unwrap()).collect();
        assert_eq!(order, [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn nothing_is_chosen_when_every_weight_is_0() {
        assert_eq!(Shares::new(&[0, 0]).choose(7), None);
        assert_eq!(Shares::new(&[]).choose(0), None);
    }

    #[test]
    fn a_weight_too_small_for_the_table_keeps_one_turn() {
        let shares = Shares::new(&[1_000_000, 1, 0]);
        assert_eq!(counts(&shares, 3, 0, 10_000), [9_999, 1, 0]);
    }

    #[test]
    fn a_weight_beyond_the_heaviest_counts_as_the_heaviest() {
        assert_eq!(Shares::new(&[u32::MAX, HEAVIEST]), Shares::new(&[1, 1]));
    }

    proptest! {
        #[test]
        fn shares_are_exact_in_every_window(
            weights in prop::collection::vec(0_u32..=100, 1..6), from in 0_u64..1_000_000,
        ) {
            let shares = Shares::new(&weights);
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assume!(sum > 0);
            let period = u64::try_from(shares.period()).unwrap();
            for (count, weight) in counts(&shares, weights.len(), from, period).into_iter().zip(&weights) {
                prop_assert_eq!(count * sum, u64::from(*weight) * period);
            }
        }

        #[test]
        fn no_prefix_is_off_by_a_whole_turn(weights in prop::collection::vec(0_u32..=100, 1..8)) {
            let shares = Shares::new(&weights);
            let sum: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
            prop_assume!(sum > 0);
            let mut taken = vec![0_i64; weights.len()];
            for turn in 1..=i64::try_from(shares.period()).unwrap() {
                taken[shares.choose(u64::try_from(turn - 1).unwrap()).unwrap()] += 1;
                for (taken, weight) in taken.iter().zip(&weights) {
                    prop_assert!((taken * sum - turn * i64::from(*weight)).abs() < sum);
                }
            }
        }

        #[test]
        fn any_weights_give_a_table_that_is_short_and_right_to_one_in_10_000(
            weights in prop::collection::vec(prop_oneof![Just(0), 0..=HEAVIEST, 0..10_u32], 1..16),
        ) {
            let shares = Shares::new(&weights);
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assert!(shares.period() <= 10_000);
            prop_assert_eq!(shares.period() == 0, sum == 0);
            let period = u64::try_from(shares.period()).unwrap();
            for (count, weight) in counts(&shares, weights.len(), 0, period).into_iter().zip(&weights) {
                prop_assert_eq!(count == 0, *weight == 0);
                // Rounding moves a share by at most one turn, and by one for each that was kept from nothing.
                let due = u64::from(*weight) * period / sum.max(1);
                prop_assert!(count.abs_diff(due) <= 16, "{} instead of {} of {}", count, due, period);
            }
        }
    }
}
