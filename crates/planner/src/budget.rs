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
}
