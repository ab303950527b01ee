//! Does the peak of a rollout fit the cluster, before anything changes?

use std::collections::BTreeMap;

use crate::{Code, agreed, budget::Budget, counted, handover::count, reason::Reason};

/// Amounts of resources by name, in any unit that both sides share.
pub type Amounts = BTreeMap<String, u64>;

/// What a rollout needs beyond what runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The pods of one unit of the new version.
    pub unit: Vec<Amounts>,
    /// The pods of one unit of the version that it replaces; none for a first version.
    pub before: Vec<Amounts>,
    /// Units that are wanted.
    pub replicas: u32,
    /// Units of the version before that hold resources.
    pub live: u32,
    /// The room of the rollout. A first version needs none.
    pub budget: Budget,
}

/// What nodes have free, each node by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeCapacity {
    /// Beside the version before.
    pub now: Vec<Amounts>,
    /// Once the version before is gone.
    pub later: Vec<Amounts>,
}

/// The findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The peak fits.
    Fits,
    /// The units that are needed at first, beyond those that exist, do not fit.
    Short {
        /// Units needed beyond those that exist.
        needed: u32,
        /// Units for which there is room.
        room: u32,
        /// A budget with which it would fit.
        instead: Option<Budget>,
    },
    /// The first units fit. The last ones, which are larger than those that they replace, do not.
    ShortAtEnd {
        /// Units of the new version.
        needed: u32,
        /// Units of it for which there is room.
        room: u32,
    },
}

impl Admission {
    /// Units needed and units that fit, where they do not fit.
    pub fn short(&self) -> Option<(u32, u32)> {
        match self {
            Self::Fits => None,
            Self::Short { needed, room, .. } | Self::ShortAtEnd { needed, room } => Some((*needed, *room)),
        }
    }

    /// The finding as a sentence with its numbers.
    pub fn reason(&self) -> Reason {
        let fit = |room: u32| match room {
            0 => "none fits".to_owned(),
            room => format!("{room} {}", agreed(room, "fits", "fit")),
        };
        let what = match self {
            Self::Fits => return Reason::new(Code::Fits, "the peak of the rollout fits the cluster"),
            Self::Short { needed, room, instead } => {
                let would = instead.map(|Budget { surge, unavailable }| {
                    format!("; a surge of {surge} with {unavailable} unavailable would fit")
                });
                let needs = format!("the rollout needs {} at its peak", counted(needed, "more replica"));
                format!("{needs}, and {}{}", fit(*room), would.unwrap_or_default())
            }
            Self::ShortAtEnd { needed, room } => {
                format!("the new version needs {} at the end, and {}", count(*needed), fit(*room))
            }
        };
        Reason::new(Code::InsufficientCapacity, what).then("it is judged again when capacity changes")
    }
}

/// Judges the peak of a rollout against what the nodes have free.
pub fn admit(demand: &Demand, room: &FreeCapacity) -> Admission {
    let Demand { unit, before, replicas, live, budget } = demand;
    let is_first = before.is_empty();
    let peak = if is_first { *replicas } else { budget.ceiling(*replicas) };
    let needed = peak.saturating_sub(*live);
    let fit = units_that_fit(unit, &mut room.now.clone(), needed);
    if fit < needed {
        return Admission::Short { needed, room: fit, instead: smaller(demand, fit) };
    }
    // A unit that needs no more than the one before takes its place.
    if is_first || takes_no_more(unit, before) {
        return Admission::Fits;
    }
    let mut later = room.later.clone();
    units_that_fit(before, &mut later, budget.surge);
    match units_that_fit(unit, &mut later, *replicas) {
        fit if fit < *replicas => Admission::ShortAtEnd { needed: *replicas, room: fit },
        _ => Admission::Fits,
    }
}

/// The largest surge that fits, or none with one unit missing where every unit runs already.
fn smaller(demand: &Demand, room: u32) -> Option<Budget> {
    let surge = (demand.live + room).checked_sub(demand.replicas)?.min(demand.budget.surge);
    let unavailable = if surge == 0 { demand.budget.unavailable.max(1) } else { demand.budget.unavailable };
    (!demand.before.is_empty()).then_some(Budget { surge, unavailable })
}

/// Whether each pod of a unit needs no more than one of the other unit.
fn takes_no_more(unit: &[Amounts], before: &[Amounts]) -> bool {
    let sorted = |unit: &[Amounts]| {
        let mut pods: Vec<Amounts> = unit.to_vec();
        pods.sort_by_key(size);
        pods
    };
    unit.len() <= before.len()
        && sorted(unit).iter().rev().zip(sorted(before).iter().rev()).all(|(pod, had)| holds(had, pod))
}

/// Takes the room of as many whole units as can be placed, up to `most`, and returns their number: the largest pod first,
/// each on the first node that holds it.
///
/// Placing is a knapsack, so this may find less than there is; it never finds more.
fn units_that_fit(unit: &[Amounts], free: &mut [Amounts], most: u32) -> u32 {
    let mut pods: Vec<(&Amounts, usize)> = unit.iter().map(|pod| (pod, 0)).collect();
    pods.sort_by_key(|(pod, _)| std::cmp::Reverse(size(pod)));
    let mut places = |free: &mut [Amounts]| {
        pods.iter_mut().all(|(pod, first)| {
            // Nodes only fill: one that did not hold such a pod never will.
            let found = free.iter().skip(*first).position(|node| holds(node, pod));
            *first += found.unwrap_or(free.len());
            free.get_mut(*first).map(|node| take(node, pod)).is_some()
        })
    };
    let mut count = 0;
    while count < most && places(free) {
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
        let unit = vec![amounts(4, 8), amounts(4, 8)];
        Demand { before: unit.clone(), unit, replicas: 2, live: 2, budget }
    }

    fn now(free: Vec<Amounts>) -> FreeCapacity {
        FreeCapacity { now: free, later: Vec::new() }
    }

    #[test]
    fn a_peak_that_fits_is_admitted() {
        assert_eq!(admit(&demand(1), &now(vec![amounts(4, 64), amounts(4, 64)])), Admission::Fits);
        assert_eq!(admit(&demand(1), &now(vec![amounts(8, 16)])), Admission::Fits);
    }

    #[test]
    fn what_is_free_in_pieces_does_not_fit() {
        // Eight are free, but two on each node, and a pod needs four.
        let found = admit(&demand(1), &now(vec![amounts(2, 64); 4]));
        let instead = Some(Budget { surge: 0, unavailable: 1 });
        assert_eq!(found, Admission::Short { needed: 1, room: 0, instead });
        assert!(
            found.reason().what.starts_with("the rollout needs 1 more replica at its peak, and none fits")
        );
    }

    #[test]
    fn a_refusal_has_the_numbers_and_the_plan_that_would_fit() {
        let found = admit(&demand(4), &now(vec![amounts(8, 64), amounts(8, 64)]));
        assert_eq!(
            found,
            Admission::Short { needed: 4, room: 2, instead: Some(Budget { surge: 2, unavailable: 0 }) }
        );
        let said = found.reason().to_string();
        assert!(
            said.contains("needs 4 more replicas")
                && said.contains("and 2 fit")
                && said.contains("surge of 2")
        );
    }

    #[test]
    fn a_first_version_needs_no_surge_and_has_no_smaller_plan() {
        let first = Demand { live: 0, before: Vec::new(), ..demand(1) };
        assert_eq!(admit(&first, &now(vec![amounts(8, 64); 2])), Admission::Fits);
        let short = |room| Admission::Short { needed: 2, room, instead: None };
        assert_eq!(admit(&first, &now(vec![amounts(8, 64)])), short(1));
        assert_eq!(admit(&first, &now(Vec::new())), short(0));
    }

    #[test]
    fn a_resource_that_no_node_has_is_missing_everywhere() {
        let mut unit = amounts(0, 1);
        unit.insert("example.com/tpu".into(), 1);
        let odd = Demand { unit: vec![unit], ..demand(1) };
        assert!(matches!(admit(&odd, &now(vec![amounts(8, 64)])), Admission::Short { room: 0, .. }));
    }

    /// Four units of one each on a node with eight: the first larger unit fits beside them, and the fourth does not fit
    /// beside the last old one.
    #[test]
    fn a_larger_unit_must_fit_until_the_last_one() {
        let grows = |surge: u32, nodes: u64| {
            let budget = Budget { surge, unavailable: 1 - surge };
            let unit = vec![amounts(2, 0)];
            let demand = Demand { unit, before: vec![amounts(1, 0)], replicas: 4, live: 4, budget };
            admit(&demand, &FreeCapacity { now: vec![amounts(nodes - 4, 0)], later: vec![amounts(nodes, 0)] })
        };
        assert_eq!(grows(1, 8), Admission::ShortAtEnd { needed: 4, room: 3 });
        assert!(grows(1, 8).reason().what.ends_with("needs 4 replicas at the end, and 3 fit"));
        assert_eq!(grows(1, 9), Admission::Fits);
        assert_eq!(grows(0, 8), Admission::Fits, "without a surge the last old one is gone by then");
    }
}
