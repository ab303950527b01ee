//! Why an apply was refused.
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::Operation;
use super::element::{Element, path};
use super::entries::Owner;
use super::text::Quoted;

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub(crate) owner: Owner,
    pub(crate) path: Vec<Element>,
}

impl Conflict {
    /// The field, as in `.spec.containers[name="x"].image`.
    pub fn field(&self) -> String {
        path(&self.path)
    }

    /// The message: the manager that owns the field.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.owner)
    }
}

/// By whose write, as clients read it.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Quoted(&self.manager))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", Quoted(&self.subresource))?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// Every field that an apply would take from others; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub(crate) Vec<Conflict>);

impl Conflicts {
    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.0.iter()
    }

    /// `details.causes` of the Status.
    pub fn causes(&self) -> Vec<Value> {
        let cause = |c: &Conflict| json!({"reason": "FieldManagerConflict", "message": c.message(), "field": c.field()});
        self.iter().map(cause).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message(), only.field());
        }
        let mut by_owner: BTreeMap<&Owner, Vec<&Conflict>> = BTreeMap::new();
        for conflict in &self.0 {
            by_owner.entry(&conflict.owner).or_default().push(conflict);
        }
        let mut lines = Vec::new();
        for (owner, conflicts) in by_owner {
            lines.push(format!("conflicts with {owner}:"));
            lines.extend(conflicts.iter().map(|c| format!("- {}", c.field())));
        }
        write!(f, "Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }
}
