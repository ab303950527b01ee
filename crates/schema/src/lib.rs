//! Structural schemas of Kubernetes, as a library: check a value, fill in defaults, name the fields that a schema does
//! not know, and run its CEL rules.
//!
//! A CRD is the one source of what a kind accepts. A kube-apiserver reads it there; everything of ours that has no
//! apiserver at hand (the command line, the admission webhook, the embedded API) reads it through this crate. The two
//! must agree, and the tables in `crates/api/tests/tables` hold them to it.
//!
//! What else every reader of Kubernetes' own types must know is here too: how quantities are written, and what Go
//! prints of its structs.
//!
//! Guarantees: no panic for any JSON value, no recursion deeper than the schema, the same answer for the same input.

mod check;
mod default;
mod node;
pub mod quantity;
mod rules;
pub mod structs;
mod unknown;
mod violation;

use kube_cel::{CompiledSchema, Validator};
use serde_json::Value;

use crate::{default::Nulls, node::Node};
pub use crate::{
    node::SchemaError,
    violation::{Cause, Violation},
};

/// A structural schema, read once and used many times.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    rules: CompiledSchema,
    rule_engine: Validator,
    has_rules: bool,
}

impl Schema {
    /// Reads an OpenAPI v3 schema as it stands in a CRD (`spec.versions[].schema.openAPIV3Schema`).
    pub fn new(openapi: &Value) -> Result<Self, SchemaError> {
        let root = Node::parse(openapi, "")?;
        let rules = rules::only(openapi);
        let has_rules = rules.is_some();
        let rules = kube_cel::compile_schema(&rules.unwrap_or_default());
        if let Some(error) = rules.compilation_errors().first() {
            return Err(SchemaError::Rule(error.to_string()));
        }
        Ok(Self { root, rules, rule_engine: Validator::new(), has_rules })
    }

    /// Fills in what the schema defaults and drops nulls that it does not allow, as an apiserver does when it decodes.
    pub fn default(&self, object: &mut Value) {
        default::apply(&self.root, object, Nulls::Dropped);
    }

    /// The same for what server-side apply has merged: there a null without a default stays, and is refused.
    pub fn default_applied(&self, object: &mut Value) {
        default::apply(&self.root, object, Nulls::Kept);
    }

    /// The fields that this schema does not know and an apiserver would drop.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        self.prune(&mut object.clone())
    }

    /// Drops the fields that this schema does not know, and names them.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        unknown::prune(&self.root, object)
    }

    /// Validates a value whose defaults are filled in; the verdict is empty when it is valid.
    ///
    /// `old` is the stored value on an update: transition rules compare with it. Rules run only on a value of the right
    /// shape, so that a rule never has to ask whether a number is a number; [`Verdict::rules_were_skipped`] says when
    /// they did not.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Verdict {
        let mut violations = check::violations(&self.root, object);
        if violations.iter().any(|violation| violation.cause.blocks_rules()) {
            return Verdict { violations, rules_were_skipped: self.has_rules };
        }
        if let Err(errors) = self.rule_engine.validate_compiled(&self.rules, object, old) {
            violations.extend(errors.into_iter().map(|error| Violation::of_rule(error, object)));
        }
        Verdict { violations, rules_were_skipped: false }
    }

    /// The violations of [`Self::validate`].
    pub fn violations(&self, object: &Value, old: Option<&Value>) -> Vec<Violation> {
        self.validate(object, old).violations
    }
}

/// The violations of a value, and whether there may be more.
#[derive(Debug)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    /// The value does not have the types of its schema, so the rules were not run.
    pub rules_were_skipped: bool,
}
