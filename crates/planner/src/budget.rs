//! How much may be missing and how much may be added while units are replaced.

/// A count, or a share in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    /// So many.
    Count(u32),
    /// This share of the whole.
    Percent(u32),
}

impl Amount {
    /// How many of `total` this is, a share rounded up.
    pub fn ceil_of(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => ratio(u64::from(percent) * u64::from(total) + 99),
        }
    }

    /// How many of `total` this is, a share rounded down.
    pub fn floor_of(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => ratio(u64::from(percent) * u64::from(total)),
        }
    }
}

fn ratio(hundredfold: u64) -> u32 {
    u32::try_from(hundredfold / 100).unwrap_or(u32::MAX)
}

/// The room of an update, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Units beyond the wanted number; those that are still terminating count.
    pub surge: u32,
    /// Units that may be missing.
    pub unavailable: u32,
}

impl Budget {
    /// The room that these amounts are of `replicas`: surge rounded up, unavailable rounded down.
    ///
    /// An update without any room could never move. Admission refuses it; where scaling brings it about later, one unit
    /// may be missing, as Kubernetes itself has it for Deployments.
    pub fn of(replicas: u32, surge: Amount, unavailable: Amount) -> Self {
        let surge = surge.ceil_of(replicas);
        let unavailable = unavailable.floor_of(replicas).min(replicas);
        if surge == 0 && unavailable == 0 {
            Self { surge, unavailable: 1 }
        } else {
            Self { surge, unavailable }
        }
    }

    /// The most units that may exist.
    pub fn ceiling(self, replicas: u32) -> u32 {
        replicas.saturating_add(self.surge)
    }

    /// The fewest units that must serve.
    pub fn floor(self, replicas: u32) -> u32 {
        replicas.saturating_sub(self.unavailable)
    }
}

/// Returns the parts in percent of their sum. They add up to 100, unless all parts are 0.
pub fn percents(parts: &[u32]) -> Vec<u32> {
    shares(parts, parts.iter().map(|part| u64::from(*part)).sum())
}

/// Returns the parts in percent of a whole, which may be more or less than their sum. They add up to the percent of their
/// sum, rounded down: to 100 where the parts are the whole. All are 0 if the whole is 0.
pub fn percents_of(parts: &[u32], whole: u32) -> Vec<u32> {
    shares(parts, u64::from(whole))
}

/// By largest remainder: the percent points that rounding down leaves go to the parts that lose most by it.
fn shares(parts: &[u32], whole: u64) -> Vec<u32> {
    if whole == 0 {
        return vec![0; parts.len()];
    }
    let hundredfold = |part: &u32| u64::from(*part) * 100;
    let mut shares: Vec<u64> = parts.iter().map(|part| hundredfold(part) / whole).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(hundredfold(&parts[*place]) % whole));
    let all = parts.iter().map(hundredfold).sum::<u64>() / whole;
    let missing = all - shares.iter().sum::<u64>();
    for place in order.into_iter().take(usize::try_from(missing).unwrap_or_default()) {
        shares[place] += 1;
    }
    shares.into_iter().map(|share| u32::try_from(share).unwrap_or(u32::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        let budget = |n, s, u| Budget::of(n, s, u);
        let of_three = budget(3, Amount::Percent(25), Amount::Percent(25));
        assert_eq!(of_three, Budget { surge: 1, unavailable: 0 });
        assert_eq!((of_three.ceiling(3), of_three.floor(3)), (4, 3));
        assert_eq!(budget(4, Amount::Count(0), Amount::Percent(50)), Budget { surge: 0, unavailable: 2 });
        assert_eq!(budget(2, Amount::Count(0), Amount::Count(9)), Budget { surge: 0, unavailable: 2 });
    }

    #[test]
    fn an_update_without_room_gets_one_unit_of_it() {
        assert_eq!(Budget::of(3, Amount::Count(0), Amount::Percent(25)), Budget { surge: 0, unavailable: 1 });
        assert_eq!(
            Budget::of(0, Amount::Percent(25), Amount::Percent(25)),
            Budget { surge: 0, unavailable: 1 }
        );
    }

    #[test]
    fn amounts_never_overflow() {
        assert_eq!(Amount::Percent(u32::MAX).ceil_of(u32::MAX), u32::MAX);
        assert_eq!(Budget { surge: u32::MAX, unavailable: 0 }.ceiling(u32::MAX), u32::MAX);
    }

    #[test]
    fn percents_add_up() {
        assert_eq!(percents(&[1, 2]), [33, 67]);
        assert_eq!(percents(&[1, 1, 1]), [34, 33, 33]);
        assert_eq!(percents(&[0, 3]), [0, 100]);
        assert_eq!(percents(&[0, 0]), [0, 0]);
        for parts in [[7, 5, 3], [1, 998, 1], [u32::MAX, u32::MAX, 1]] {
            assert_eq!(percents(&parts).iter().sum::<u32>(), 100, "{parts:?}");
        }
    }

    /// Every two parts of up to 40 of every whole up to 20.
    #[test]
    fn percents_of_a_whole_add_up_to_the_percent_of_the_sum_and_none_is_off_by_one() {
        for whole in 1..=20 {
            for (old, new) in (0..=40).flat_map(|old| (0..=40).map(move |new| (old, new))) {
                let shares = percents_of(&[old, new], whole);
                assert_eq!(shares[0] + shares[1], (old + new) * 100 / whole, "{old} and {new} of {whole}");
                for (part, share) in [old, new].into_iter().zip(shares) {
                    let off = (share * whole).abs_diff(part * 100);
                    assert!(off < whole, "{part} of {whole} is not {share}%");
                }
            }
        }
        assert_eq!(percents_of(&[1, 2], 3), [33, 67]);
        assert_eq!(percents_of(&[3, 1], 3), [100, 33]);
        assert_eq!(percents_of(&[1, 2], 0), [0, 0]);
    }
}
