//! The addresses of pods, the names under which processes find them, and networks of their own.

pub(crate) mod address;
pub(crate) mod hosts;
pub(crate) mod pod;
