//! The three patches that change a stored object: JSON patch, merge patch and strategic merge patch.
//!
//! Each is a pure function from a document and a patch to a document. Server-side apply is not here: it needs the
//! owners of the fields.
mod go;
mod json;
mod merge;
mod order;
mod strategic;

pub use go::text as go_text;
pub use json::{json, unknown_fields};
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch was refused. The text is what is wrong; [`PatchError::message`] is what a client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {allowed}, got {got}")]
    TooManyOperations { allowed: usize, got: usize },
    #[error("{0}")]
    DoesNotApply(String),
    /// A patch that Kubernetes fails on without a reason of its own: it answers with a bare 500.
    #[error("{0}")]
    Unmergeable(String),
}

impl PatchError {
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooManyOperations { .. } => 413,
            Self::DoesNotApply(_) => 422,
            Self::Unmergeable(_) => 500,
        }
    }

    /// The reason of the Status; empty where Kubernetes gives none.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "BadRequest",
            Self::TooManyOperations { .. } => "RequestEntityTooLarge",
            Self::DoesNotApply(_) => "Invalid",
            Self::Unmergeable(_) => "",
        }
    }

    /// The message of the Status. Kubernetes keeps to itself which operation of a JSON patch failed, and clients compare
    /// the sentence.
    pub fn message(&self) -> String {
        match self {
            Self::Malformed(why) | Self::Unmergeable(why) => why.clone(),
            Self::TooManyOperations { .. } => format!("Request entity too large: {self}"),
            Self::DoesNotApply(_) => "the server rejected our request due to an error in our request".into(),
        }
    }
}
