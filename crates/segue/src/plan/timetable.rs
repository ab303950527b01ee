//! What a rehearsal found, and how it is told.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{picture, resources::Resources};

/// One version at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// In percent of the whole service.
    pub(crate) capacity: u32,
    /// In percent of all traffic.
    pub(crate) weight: u32,
    /// In units, where the units are ours to count.
    pub(crate) units: Option<u32>,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) at: u64,
    pub(crate) old: Side,
    pub(crate) new: Side,
    pub(crate) reason: String,
}

impl Row {
    /// A line about units without a route of their own: their traffic follows those that serve. Each side is (units,
    /// those that serve), of `whole` in all.
    pub(crate) fn of_units(
        at: Duration,
        old: (u32, u32),
        new: (u32, u32),
        whole: u32,
        reason: String,
    ) -> Self {
        let serving = (old.1 + new.1).max(1);
        let side = |(units, ready): (u32, u32)| Side {
            capacity: (units * 100).checked_div(whole).unwrap_or(0),
            weight: ready * 100 / serving,
            units: Some(units),
        };
        Self { at: at.as_secs(), old: side(old), new: side(new), reason }
    }
}

/// The whole of it.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    /// What is upgraded, and how.
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
    /// Whether it ends; the last row says what it would wait for where it does not.
    pub(crate) ends: bool,
    /// What one unit of each version holds, where that is known.
    pub(crate) unit: Option<(Resources, Resources)>,
    /// Other ways to do it, and what they would cost.
    pub(crate) advice: Vec<String>,
}

impl Timetable {
    /// The most capacity that exists at once, in percent.
    pub(crate) fn peak(&self) -> u32 {
        self.rows.iter().map(|row| row.old.capacity + row.new.capacity).max().unwrap_or(100)
    }

    /// The most units that exist at once.
    pub(crate) fn peak_units(&self) -> Option<u32> {
        self.rows.iter().filter_map(|row| Some(row.old.units? + row.new.units?)).max()
    }

    /// The most of each resource that is held at once.
    fn peak_resources(&self) -> BTreeMap<String, u64> {
        let mut peak = BTreeMap::new();
        let Some((old, new)) = &self.unit else { return peak };
        for row in &self.rows {
            let (Some(of_old), Some(of_new)) = (row.old.units, row.new.units) else { continue };
            for (name, amount) in old.times(of_old).plus(&new.times(of_new)).amounts() {
                let most = peak.entry(name.clone()).or_insert(0);
                *most = amount.max(*most);
            }
        }
        peak
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.at)
    }

    pub(crate) fn text(&self) -> String {
        let counts = self.rows.iter().any(|row| row.old.units.is_some());
        let (first, second) = if counts { ("UNITS", "TRAFFIC") } else { ("CAPACITY", "TRAFFIC") };
        let mut text = format!("{}\n\n", self.title);
        text += &format!("{:>8}  {:>8} {:>8}  {:>8} {:>8}\n", "", "OLD", "", "NEW", "");
        text += &format!("{:>8}  {first:>8} {second:>8}  {first:>8} {second:>8}  BECAUSE\n", "AT");
        for Row { at, old, new, reason } in &self.rows {
            let amount = |side: &Side| {
                side.units.map_or_else(|| format!("{}%", side.capacity), |units| units.to_string())
            };
            let (a, b) = (amount(old), amount(new));
            let (v, w) = (format!("{}%", old.weight), format!("{}%", new.weight));
            text += &format!("{:>8}  {a:>8} {v:>8}  {b:>8} {w:>8}  {reason}\n", format!("{at}s"));
        }
        text += &format!("\n{}\n{}", picture::terminal(self), self.summary());
        text
    }

    fn summary(&self) -> String {
        let mut text = if self.ends {
            format!("{}s in all, ", self.seconds())
        } else {
            "it would never end: see the last line; ".to_owned()
        };
        text += &match self.peak_units() {
            Some(units) => format!("peak {units} units ({}% of the capacity)\n", self.peak()),
            None => format!("peak {}% of the capacity\n", self.peak()),
        };
        for (name, amount) in Resources::in_order(&self.peak_resources()) {
            text += &format!("  {name}: {}\n", Resources::display(&name, amount));
        }
        for line in &self.advice {
            text += &format!("{line}\n");
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let side = |side: &Side| {
            let mut value = json!({"capacity": side.capacity, "weight": side.weight});
            if let Some(units) = side.units {
                value["units"] = json!(units);
            }
            value
        };
        let rows = self.rows.iter().map(
            |row| json!({"at": row.at, "old": side(&row.old), "new": side(&row.new), "reason": row.reason}),
        );
        rows.collect()
    }
}
