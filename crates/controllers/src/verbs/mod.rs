//! What the verbs of the command line need of a kind: requests in an annotation, adoption, and the rehearsal of a plan.

pub mod adopt;
pub mod rehearsal;
pub mod request;
