//! Structural schemas of Kubernetes, as a library: check a value, fill in defaults, name the fields that a schema does
//! not know, and run its CEL rules.
//!
//! A CRD is the one source of what a kind accepts. A kube-apiserver reads it there; everything of ours that has no
//! apiserver at hand (the command line, the admission webhook, the embedded API) reads it through this crate. The two
//! must agree, and the tables in `crates/api/tests/tables` hold them to it.
//!
//! Guarantees: no panic for any JSON value, no recursion deeper than the schema, the same answer for the same input.

mod check;
mod default;
mod node;
mod rules;
mod unknown;
mod violation;

use kube_cel::{CompiledSchema, Validator};
use serde_json::Value;

use crate::node::Node;
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
}

impl Schema {
    /// Reads an OpenAPI v3 schema as it stands in a CRD (`spec.versions[].schema.openAPIV3Schema`).
    pub fn new(openapi: &Value) -> Result<Self, SchemaError> {
        let root = Node::parse(openapi, "")?;
        let rules = kube_cel::compile_schema(&rules::only(openapi).unwrap_or_default());
        if let Some(error) = rules.compilation_errors().first() {
            return Err(SchemaError::Rule(error.to_string()));
        }
        Ok(Self { root, rules, rule_engine: Validator::new() })
    }

    /// Fills in what the schema defaults and drops nulls that it does not allow, as an apiserver does when it decodes.
    pub fn default(&self, object: &mut Value) {
        default::apply(&self.root, object);
    }

    /// The fields that this schema does not know and an apiserver would drop.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        unknown::fields(&self.root, object)
    }

    /// Everything that is wrong with a value whose defaults are filled in; empty when it is acceptable.
    ///
    /// `old` is the stored value on an update: transition rules compare with it. Rules run only on a value of the right
    /// shape, so that a rule never has to ask whether a number is a number.
    pub fn violations(&self, object: &Value, old: Option<&Value>) -> Vec<Violation> {
        let shape = check::violations(&self.root, object);
        if !shape.is_empty() {
            return shape;
        }
        match self.rule_engine.validate_compiled(&self.rules, object, old) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.into_iter().map(|error| Violation::of_rule(error, object)).collect(),
        }
    }
}
