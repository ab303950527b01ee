//! What a rehearsal found, and how it is told.

use std::collections::BTreeMap;

use controllers::rehearsal::{Rehearsal, Resources, Row, Side};
use planner::counted;
use serde_json::{Value, json};

use super::picture;

/// A rehearsal, and what it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timetable<'a> {
    pub(crate) title: &'a str,
    pub(crate) rehearsal: &'a Rehearsal,
}

impl Timetable<'_> {
    /// The most of each resource that is held at once.
    fn peak_resources(&self) -> BTreeMap<String, u64> {
        let mut peak = BTreeMap::new();
        let Some((old, new)) = &self.rehearsal.replica else { return peak };
        for row in &self.rehearsal.rows {
            let (Some(of_old), Some(of_new)) = (row.old.replicas, row.new.replicas) else { continue };
            for (name, amount) in old.times(of_old).plus(&new.times(of_new)).amounts() {
                let most = peak.entry(name.clone()).or_insert(0);
                *most = amount.max(*most);
            }
        }
        peak
    }

    pub(crate) fn heading(&self) -> String {
        format!("{}: {}", self.title, self.rehearsal.how)
    }

    pub(crate) fn text(&self) -> String {
        let rows = &self.rehearsal.rows;
        let counts = rows.iter().any(|row| row.old.replicas.is_some());
        let splits = rows.iter().any(|row| row.old.weight.is_some());
        let (first, second) =
            (if counts { "REPLICAS" } else { "CAPACITY" }, if splits { "TRAFFIC" } else { "" });
        let mut text = format!("{}\n\n", self.heading());
        text += &format!("{:>8}  {:>8} {:>8}  {:>8} {:>8}\n", "", "OLD", "", "NEW", "");
        text += &format!("{:>8}  {first:>8} {second:>8}  {first:>8} {second:>8}  BECAUSE\n", "AT");
        for Row { at, old, new, reason } in rows {
            let amount = |side: &Side| {
                side.replicas.map_or_else(|| format!("{}%", side.capacity), |count| count.to_string())
            };
            let weight = |side: &Side| side.weight.map(|weight| format!("{weight}%")).unwrap_or_default();
            let (a, b) = (amount(old), amount(new));
            let (v, w) = (weight(old), weight(new));
            text += &format!("{:>8}  {a:>8} {v:>8}  {b:>8} {w:>8}  {reason}\n", format!("{at}s"));
        }
        text += &format!("\n{}\n{}", picture::terminal(self.rehearsal), self.summary());
        text
    }

    fn summary(&self) -> String {
        let Rehearsal { ends, failure, advice, .. } = self.rehearsal;
        let mut text = if let Some(why) = failure {
            format!("the upgrade would fail {why}\n{} s in total, ", self.rehearsal.seconds())
        } else if *ends {
            format!("{} s in total, ", self.rehearsal.seconds())
        } else {
            "the upgrade would not end: see the last line; ".to_owned()
        };
        text += &match self.rehearsal.peak_replicas() {
            Some(replicas) => {
                let replicas = counted(replicas, "replica");
                format!("peak {replicas} ({}% of the capacity)\n", self.rehearsal.peak())
            }
            None => format!("peak {}% of the capacity\n", self.rehearsal.peak()),
        };
        for (name, amount) in Resources::in_order(&self.peak_resources()) {
            text += &format!("  {name}: {}\n", Resources::display(&name, amount));
        }
        for line in advice {
            text += &format!("{line}\n");
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let side = |side: &Side| {
            let mut value = json!({"capacity": side.capacity});
            if let Some(weight) = side.weight {
                value["weight"] = json!(weight);
            }
            if let Some(replicas) = side.replicas {
                value["replicas"] = json!(replicas);
            }
            value
        };
        let rows = self.rehearsal.rows.iter().map(
            |row| json!({"at": row.at, "old": side(&row.old), "new": side(&row.new), "reason": row.reason}),
        );
        rows.collect()
    }
}
