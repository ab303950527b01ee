//! What the API refused and which names are taken: known when it was tried, told by the next status and by an event.

use std::collections::BTreeSet;

use crate::{
    conditions::{Writer, reasons, types},
    runtime::{ApiVerb, Error, Event},
};

/// Names of others that are told one by one; those beyond are counted.
const MOST_NAMED: usize = 8;

/// A trouble that may pass by itself is told when it came in so many passes in a row.
const TRANSIENT_LIMIT: u32 = 3;

/// What stood in the way of the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// The objects that could not be made because their names are foreign, or still in use.
    names: BTreeSet<String>,
    /// The write that was refused, with the reason of the condition.
    refused: Option<(&'static str, String)>,
    /// How often in a row something was refused that may pass by itself.
    passing: u32,
    /// The object that could not be read, and why.
    unreadable: Option<String>,
}

impl Refusals {
    pub(super) fn add_name(&mut self, why: String) {
        self.names.insert(why);
    }

    pub(super) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// The refusals known after a pass with these refusals and this result. A pass that broke off has not tried
    /// everything.
    pub(super) fn after(self, found: Self, result: &Result<(), Error>) -> Self {
        match result {
            Ok(()) => found,
            Err(error @ Error::Malformed { .. }) => Self { unreadable: Some(error.to_string()), ..self },
            Err(error @ (Error::Refused { verb, .. } | Error::Unanswered { verb, .. })) => {
                let reason = match verb {
                    ApiVerb::Create => reasons::FAILED_CREATE,
                    ApiVerb::Delete => reasons::FAILED_DELETE,
                    _ => reasons::FAILED_UPDATE,
                };
                let passing = if error.is_transient() { self.passing + 1 } else { TRANSIENT_LIMIT };
                let names = self.names.into_iter().chain(found.names).collect();
                Self { names, refused: Some((reason, error.to_string())), passing, unreadable: None }
            }
            Err(error) => {
                let taken = matches!(error, Error::NotOwned { .. }).then(|| error.to_string());
                Self { names: self.names.into_iter().chain(found.names).chain(taken).collect(), ..self }
            }
        }
    }

    fn refused(&self) -> Option<&(&'static str, String)> {
        self.refused.as_ref().filter(|_| self.passing >= TRANSIENT_LIMIT)
    }

    /// Whether people are told the same.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.names == other.names && self.refused() == other.refused() && self.unreadable == other.unreadable
    }

    /// Says it in the conditions of a status.
    pub(super) fn write(&self, conditions: &mut Writer<'_>) {
        conditions.alarm(types::NAMES_TAKEN, reasons::NOT_OURS, self.names_in_words().as_deref());
        let (reason, message) =
            self.refused().map_or(("", None), |(reason, why)| (*reason, Some(why.as_str())));
        conditions.alarm(types::WRITES_REFUSED, reason, message);
        conditions.alarm(types::UNREADABLE, reasons::MALFORMED, self.unreadable.as_deref());
    }

    /// Says it in an event.
    pub(super) fn event(&self) -> Option<Event> {
        if let Some(why) = &self.unreadable {
            return Some(Event::warning("Reconcile", types::UNREADABLE.name, why));
        }
        if let Some((reason, why)) = self.refused() {
            let action = match *reason {
                reasons::FAILED_CREATE => "Create",
                reasons::FAILED_DELETE => "Delete",
                _ => "Update",
            };
            return Some(Event::warning(action, *reason, why));
        }
        self.names_in_words().map(|names| Event::warning("Create", types::NAMES_TAKEN.name, names))
    }

    fn names_in_words(&self) -> Option<String> {
        let mut named: Vec<String> = self.names.iter().take(MOST_NAMED).cloned().collect();
        let more = self.names.len() - named.len();
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        (!named.is_empty()).then(|| named.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::runtime::Key;

    fn refused(code: u16) -> Result<(), Error> {
        let status = Status::failure("no", "Why").with_code(code).boxed();
        let source = Box::new(kube::Error::Api(status));
        Err(Error::Refused { verb: ApiVerb::Create, kind: "Pod", key: Key::new("ns", "x"), source })
    }

    fn stale() -> Result<(), Error> {
        Err(Error::Stale { verb: ApiVerb::Change, kind: "Pod", key: Key::new("ns", "x") })
    }

    fn names(names: &[&str]) -> Refusals {
        Refusals { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Refusals::default() }
    }

    #[test]
    fn a_refusal_is_reported_until_a_pass_goes_through() {
        let known = Refusals::default().after(Refusals::default(), &refused(403));
        assert_eq!(known.event().unwrap().reason, "FailedCreate");
        let known = known.after(Refusals::default(), &stale());
        assert!(known.refused().is_some(), "a stale observation has not tried");
        assert_eq!(known.after(Refusals::default(), &Ok(())), Refusals::default());
    }

    #[test]
    fn what_may_pass_by_itself_is_reported_when_it_does_not() {
        let mut known = Refusals::default();
        for told in [false, false, true] {
            known = known.after(Refusals::default(), &refused(500));
            assert_eq!(known.event().is_some(), told);
        }
    }

    #[test]
    fn names_that_were_not_tried_stay_taken() {
        let known = names(&["a"]).after(names(&["b"]), &stale());
        assert_eq!(known, names(&["a", "b"]));
        assert_eq!(known.after(names(&["b"]), &Ok(())), names(&["b"]));
        let many: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let many = names(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(many.event().unwrap().note.ends_with("; 7; and 2 more"));
    }
}
