//! The same requests to the embedded API and to a kube-apiserver, and a comparison of the answers.
//!
//! A [`Sequence`] is data: made from a seed, or read from a file with the answers that a kube-apiserver once gave, so that
//! what was found stays found without one. Uids, times and revisions differ between any two runs; [`mask`] replaces them
//! by names that do not, in the order in which they appear.

mod bodies;
mod generate;
mod mask;
mod run;

pub use self::{
    generate::{Sequence, WIDGETS},
    mask::Mask,
    run::{Answer, Difference, Recording, Runner, compare, compare_both, prepare},
};
