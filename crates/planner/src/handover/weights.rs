//! Who gets which share of the traffic, exactly.

use super::VersionId;
use crate::percents;

/// Route weights: integers of which only the ratio matters. A version that is not listed has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Weights(Vec<(VersionId, u32)>);

impl Weights {
    /// All traffic to one version.
    pub fn all(version: VersionId) -> Self {
        Self(vec![(version, 1)])
    }

    /// These shares of two versions, in lowest terms.
    pub fn split(one: (VersionId, u32), other: (VersionId, u32)) -> Self {
        let divisor = gcd(one.1, other.1).max(1);
        let mut weights: Vec<_> =
            [one, other].into_iter().filter(|(_, w)| *w > 0).map(|(v, w)| (v, w / divisor)).collect();
        weights.sort_unstable();
        Self(weights)
    }

    /// The weight of a version.
    pub fn of(&self, version: VersionId) -> u32 {
        self.0.iter().find(|(v, _)| *v == version).map_or(0, |(_, weight)| *weight)
    }

    /// The sum of all weights.
    pub fn total(&self) -> u32 {
        self.0.iter().map(|(_, weight)| weight).sum()
    }

    /// Whether a version has all traffic.
    pub fn is_all(&self, version: VersionId) -> bool {
        self.of(version) > 0 && self.of(version) == self.total()
    }

    /// The versions with a share.
    pub fn versions(&self) -> impl Iterator<Item = VersionId> {
        self.0.iter().map(|(version, _)| *version)
    }

    /// The share of a version in percent, rounded down.
    pub fn percent(&self, version: VersionId) -> u32 {
        let share = u64::from(self.of(version)) * 100;
        share.checked_div(u64::from(self.total())).map_or(0, |percent| u32::try_from(percent).unwrap_or(100))
    }

    /// The share of a version in percent as people are shown it: those of all versions add up to 100.
    pub fn shown_percent(&self, version: VersionId) -> u32 {
        let parts: Vec<u32> = self.0.iter().map(|(_, weight)| *weight).collect();
        let place = self.0.iter().position(|(v, _)| *v == version);
        place.map_or(0, |place| percents(&parts)[place])
    }

    /// How many ready units a version needs to carry its weight, where `floor` units carry everything: the smallest k
    /// with k / floor at least its share.
    pub fn units_needed(&self, version: VersionId, floor: u32) -> u32 {
        let (weight, total) = (u64::from(self.of(version)), u64::from(self.total()));
        if planted!("weights-overflow") {
            return (self.of(version) * floor).div_ceil(self.total().max(1));
        }
        let needed = (weight * u64::from(floor)).div_ceil(total.max(1));
        u32::try_from(needed).unwrap_or(u32::MAX)
    }
}

/// Weights as they were found, in lowest terms.
impl FromIterator<(VersionId, u32)> for Weights {
    fn from_iter<I: IntoIterator<Item = (VersionId, u32)>>(weights: I) -> Self {
        let mut weights: Vec<_> = weights.into_iter().filter(|(_, weight)| *weight > 0).collect();
        weights.sort_unstable();
        let divisor = weights.iter().fold(0, |divisor, (_, weight)| gcd(divisor, *weight)).max(1);
        Self(weights.into_iter().map(|(version, weight)| (version, weight / divisor)).collect())
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The weights that give `to` its goal, or as much of it as its ready units carry now. `floor` units carry everything.
///
/// Percents are nominal, replicas are real. Where the goal does not fit, the share is exactly k of `floor`, and the rest
/// is exactly what `floor - k` units carry: rounding both sides up would leave a unit that neither may give away, and
/// the handover would stand still (three replicas and a surge of 25 % do).
pub(super) fn toward(to: VersionId, from: VersionId, percent: u32, ready: u32, floor: u32) -> Weights {
    let ready = ready.min(floor);
    if planted!("both-sides-round-up") {
        let percent =
            percent.min(u32::try_from(u64::from(ready) * 100 / u64::from(floor.max(1))).unwrap_or(100));
        return Weights::split((to, percent), (from, 100 - percent));
    }
    if u64::from(ready) * 100 >= u64::from(percent) * u64::from(floor) {
        Weights::split((to, percent), (from, 100 - percent))
    } else {
        Weights::split((to, ready), (from, floor - ready))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: VersionId = VersionId(1);
    const NEW: VersionId = VersionId(2);

    #[test]
    fn shares_are_exact_where_percents_do_not_fit() {
        assert_eq!(toward(NEW, OLD, 50, 1, 3), Weights::split((NEW, 1), (OLD, 2)));
        assert_eq!(toward(NEW, OLD, 33, 1, 3), Weights::split((NEW, 33), (OLD, 67)));
        assert_eq!(toward(NEW, OLD, 100, 3, 3), Weights::all(NEW));
        assert_eq!(toward(NEW, OLD, 100, 9, 3), Weights::all(NEW));
        assert_eq!(toward(NEW, OLD, 5, 0, 3), Weights::all(OLD));
    }

    #[test]
    fn shown_shares_add_up() {
        let weights = Weights::split((NEW, 1), (OLD, 2));
        assert_eq!((weights.percent(NEW), weights.percent(OLD)), (33, 66), "as far as it goes");
        assert_eq!((weights.shown_percent(NEW), weights.shown_percent(OLD)), (33, 67));
        assert_eq!(weights.shown_percent(VersionId(9)), 0);
    }

    #[test]
    fn a_share_needs_the_units_that_carry_it_and_no_more() {
        let weights = Weights::split((NEW, 1), (OLD, 2));
        assert_eq!((weights.units_needed(NEW, 3), weights.units_needed(OLD, 3)), (1, 2));
        let weights = Weights::split((NEW, 33), (OLD, 67));
        assert_eq!((weights.units_needed(NEW, 3), weights.units_needed(OLD, 3)), (1, 3));
        assert_eq!(Weights::all(NEW).units_needed(OLD, 3), 0);
        assert_eq!(Weights::default().units_needed(OLD, 3), 0);
    }

    #[test]
    fn weights_are_in_lowest_terms_and_show_as_percent() {
        let weights = Weights::split((NEW, 50), (OLD, 50));
        assert_eq!((weights.of(NEW), weights.of(OLD), weights.total(), weights.percent(NEW)), (1, 1, 2, 50));
        assert!(Weights::all(NEW).is_all(NEW) && !weights.is_all(NEW) && !Weights::default().is_all(NEW));
        assert_eq!(Weights::split((NEW, 0), (OLD, 7)), Weights::all(OLD));
        let found: Weights = [(NEW, 6), (VersionId(9), 0), (OLD, 4)].into_iter().collect();
        assert_eq!(found, Weights::split((NEW, 3), (OLD, 2)));
        assert_eq!(Weights::from_iter([(NEW, 7)]), Weights::all(NEW));
    }
}
