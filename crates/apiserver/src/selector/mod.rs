//! Selectors: label selectors and field selectors, in the grammar and with the errors
//! of Kubernetes.
mod fields;
mod labels;
mod names;

pub use fields::{Fields, Selectable};
pub use labels::Labels;
