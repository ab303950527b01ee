//! Does the peak of a rollout fit the cluster, before anything changes?

use std::collections::BTreeMap;

use crate::{budget::Budget, reason::Reason};

/// Amounts of resources by name, in any unit that both sides share.
pub type Amounts = BTreeMap<String, u64>;

/// What a rollout needs beyond what runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The pods of one serving unit.
    pub unit: Vec<Amounts>,
    /// Units that are wanted.
    pub replicas: u32,
    /// Units that exist.
    pub live: u32,
    /// The room of the rollout.
    pub budget: Budget,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The peak fits.
    Fits,
    /// It does not: so many more units are needed and so many fit, and this budget would do, if there is one.
    Short {
        /// Units needed beyond those that exist.
        needed: u32,
        /// Units for which there is room.
        room: u32,
        /// A budget with which it would fit.
        instead: Option<Budget>,
    },
}

impl Admission {
    /// The finding as a sentence with its numbers.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Fits => Reason::new("Fits", "the peak of the rollout fits the cluster"),
            Self::Short { needed, room, instead } => {
                let what =
                    format!("the rollout needs {needed} more units at its peak and there is room for {room}");
                let reason = Reason::new("InsufficientCapacity", what);
                match instead {
                    Some(Budget { surge, unavailable }) => {
                        reason.then(format!("a surge of {surge} with {unavailable} missing would fit"))
                    }
                    None => reason.then("capacity is looked at again when it changes"),
                }
            }
        }
    }
}

/// Judges the peak of a rollout against what the nodes have free.
pub fn admit(demand: &Demand, free: &[Amounts]) -> Admission {
    let needed = demand.budget.ceiling(demand.replicas).saturating_sub(demand.live);
    let room = units_that_fit(&demand.unit, free, needed);
    if room >= needed {
        return Admission::Fits;
    }
    Admission::Short { needed, room, instead: smaller(demand, room) }
}

/// The largest surge that fits, or none with one unit missing where every unit runs already.
fn smaller(demand: &Demand, room: u32) -> Option<Budget> {
    let surge = (demand.live + room).checked_sub(demand.replicas)?.min(demand.budget.surge);
    let unavailable = if surge == 0 { demand.budget.unavailable.max(1) } else { demand.budget.unavailable };
    Some(Budget { surge, unavailable })
}

/// How many whole units can be placed, up to `most`: the largest pod first, each on the first node that holds it.
///
/// Placing is a knapsack, so this may find less than there is; it never finds more.
fn units_that_fit(unit: &[Amounts], free: &[Amounts], most: u32) -> u32 {
    let mut free = free.to_vec();
    let mut pods: Vec<&Amounts> = unit.iter().collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(size(pod)));
    let places = |free: &mut Vec<Amounts>| {
        pods.iter().all(|pod| {
            let node = free.iter_mut().find(|node| holds(node, pod));
            node.map(|node| take(node, pod)).is_some()
        })
    };
    let mut count = 0;
    while count < most && places(&mut free) {
        count += 1;
    }
    count
}

/// Scarce things first: what is counted by ones weighs more than what is counted by millions.
fn size(pod: &Amounts) -> (u64, u64) {
    let accelerators = pod.iter().filter(|(name, _)| name.contains('/')).map(|(_, amount)| *amount).sum();
    (accelerators, pod.values().fold(0, |sum: u64, amount| sum.saturating_add(*amount)))
}

fn holds(node: &Amounts, pod: &Amounts) -> bool {
    pod.iter().all(|(name, amount)| node.get(name).copied().unwrap_or_default() >= *amount)
}

fn take(node: &mut Amounts, pod: &Amounts) {
    for (name, amount) in pod {
        if let Some(free) = node.get_mut(name) {
            *free -= amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(gpus: u64, cpu: u64) -> Amounts {
        [("nvidia.com/gpu".to_owned(), gpus), ("cpu".to_owned(), cpu)].into()
    }

    fn demand(surge: u32) -> Demand {
        let budget = Budget { surge, unavailable: 0 };
        Demand { unit: vec![amounts(4, 8), amounts(4, 8)], replicas: 2, live: 2, budget }
    }

    #[test]
    fn a_peak_that_fits_is_admitted() {
        assert_eq!(admit(&demand(1), &[amounts(4, 64), amounts(4, 64)]), Admission::Fits);
        assert_eq!(admit(&demand(1), &[amounts(8, 16)]), Admission::Fits);
    }

    #[test]
    fn what_is_free_in_pieces_does_not_fit() {
        // Eight are free, but two on each node, and a pod needs four.
        let free = vec![amounts(2, 64); 4];
        let found = admit(&demand(1), &free);
        let instead = Some(Budget { surge: 0, unavailable: 1 });
        assert_eq!(found, Admission::Short { needed: 1, room: 0, instead });
    }

    #[test]
    fn a_refusal_has_the_numbers_and_the_plan_that_would_fit() {
        let free = vec![amounts(8, 64), amounts(8, 64)];
        let found = admit(&demand(4), &free);
        assert_eq!(
            found,
            Admission::Short { needed: 4, room: 2, instead: Some(Budget { surge: 2, unavailable: 0 }) }
        );
        let said = found.reason().to_string();
        assert!(
            said.contains("needs 4 more units") && said.contains("room for 2") && said.contains("surge of 2")
        );
    }

    #[test]
    fn a_first_version_that_does_not_fit_has_no_smaller_plan() {
        let first = Demand { live: 0, ..demand(0) };
        assert_eq!(admit(&first, &[amounts(8, 64)]), Admission::Short { needed: 2, room: 1, instead: None });
        assert_eq!(admit(&first, &[]), Admission::Short { needed: 2, room: 0, instead: None });
    }

    #[test]
    fn a_resource_that_no_node_has_is_missing_everywhere() {
        let mut unit = amounts(0, 1);
        unit.insert("example.com/tpu".into(), 1);
        let odd = Demand { unit: vec![unit], ..demand(1) };
        assert!(matches!(admit(&odd, &[amounts(8, 64)]), Admission::Short { room: 0, .. }));
    }
}
