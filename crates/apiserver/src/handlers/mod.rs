//! One file per verb of the API: what a handler reads from a request, does with the store and answers.
pub(crate) mod delete;
mod get;
pub(crate) mod logs;
mod patch;
mod scale;
pub(crate) mod subresources;
mod watch;
pub(crate) mod write;
