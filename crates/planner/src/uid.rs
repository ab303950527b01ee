/// What tells an object from a later one of the same name.
///
/// A string, as Kubernetes has it: uids are opaque, so an adapter copies one in, and out again into a precondition, and
/// there is nothing that could fail to parse.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(pub String);
