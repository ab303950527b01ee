//! Which objects are reconciled, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use planner::{Backoff, Time};

use super::Key;

/// One object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The controller whose object it is.
    pub(super) controller: &'static str,
    /// The object.
    pub(super) key: Key,
}

/// When an object is reconciled again, if nothing changes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    /// At this time.
    pub at: Option<Time>,
    /// When what is outside the API changes.
    pub outside: bool,
}

impl Requeue {
    /// The earlier of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let at = [self.at, other.at].into_iter().flatten().min();
        Self { at, outside: self.outside || other.outside }
    }

    /// Not later than this.
    #[must_use]
    pub fn until(self, time: Option<Time>) -> Self {
        self.or(Self { at: time, outside: false })
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well(Requeue),
    /// The observation was stale: an event is on its way.
    Stale,
    Failed,
}

/// The waits after errors or stale observations in a row: an API that is back is used again within a minute.
const BACK_OFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_mins(1) };

/// How long news wait at most for an object that failed, and how long news are waited for after a stale observation.
/// What we write ourselves is news too: without a bound, what is refused for ever would be tried as fast as the API
/// answers.
const MAX_EVENT_DELAY: Duration = Duration::from_secs(5);

/// How long an object is left alone after a reconcile: a burst of changes, such as the pods of a set that become ready
/// together, is one reconcile and one status. A first change is taken up without delay.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Requests by the time at which they are due, on a clock that never steps. A running request is not started a
/// second time: it is due again when it has ended.
#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BTreeMap<Request, Time>,
    /// The same, the earliest first.
    by_time: BTreeSet<(Time, Request)>,
    running: BTreeSet<Request>,
    /// Those that wait for what is outside.
    outside: BTreeSet<Request>,
    /// Those that ran while what is outside changed: they may have observed it before.
    overtaken: BTreeSet<Request>,
    failures: BTreeMap<Request, u32>,
    /// Those that ran a moment ago or failed last, and when they may run again whatever is new.
    held: BTreeMap<Request, Time>,
}

impl Queue {
    /// Adds a request that is due at this time, unless it is due earlier.
    pub(super) fn add(&mut self, request: Request, at: Time) {
        let at = self.held.get(&request).map_or(at, |until| at.max(*until));
        if self.due.get(&request).is_some_and(|due| *due <= at) {
            return;
        }
        self.forget(&request);
        self.by_time.insert((at, request.clone()));
        self.due.insert(request, at);
    }

    /// Adds those that wait for what is outside, which has changed: for all of them, or for one.
    pub(super) fn outside_changed(&mut self, only: Option<&Request>, now: Time) {
        let is_meant = |request: &Request| only.is_none_or(|only| only == request);
        self.overtaken.extend(self.running.iter().filter(|it| is_meant(it)).cloned());
        let (woken, others) = std::mem::take(&mut self.outside).into_iter().partition(is_meant);
        self.outside = others;
        for request in woken {
            self.add(request, now);
        }
    }

    /// Starts the request that is due longest. Returns it, and the time since which it was due.
    pub(super) fn take(&mut self, now: Time) -> Option<(Request, Time)> {
        let (at, request) = self.waiting().next().filter(|(at, _)| *at <= now)?.clone();
        self.forget(&request);
        self.outside.remove(&request);
        self.running.insert(request.clone());
        Some((request, at))
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.waiting().next().map(|(at, _)| *at)
    }

    /// Those that do not run, the earliest first. Few run at once, so few are passed over.
    fn waiting(&self) -> impl Iterator<Item = &(Time, Request)> {
        self.by_time.iter().filter(|(_, request)| !self.running.contains(request))
    }

    fn forget(&mut self, request: &Request) {
        if let Some(at) = self.due.remove(request) {
            self.by_time.remove(&(at, request.clone()));
        }
    }

    /// Takes note that a request has ended.
    pub(super) fn done(&mut self, request: Request, ended: Ended, now: Time) {
        self.running.remove(&request);
        let overtaken = self.overtaken.remove(&request);
        self.held.retain(|_, until| *until > now);
        let Ended::Well(next) = ended else { return self.again(request, ended, now) };
        self.failures.remove(&request);
        self.hold(&request, now + MIN_INTERVAL);
        if next.outside && overtaken {
            self.add(request.clone(), now);
        } else if next.outside {
            self.outside.insert(request.clone());
        }
        if let Some(at) = next.at {
            self.add(request, at.max(now));
        }
    }

    /// Adds a request that came to nothing again, later each time.
    fn again(&mut self, request: Request, ended: Ended, now: Time) {
        let failures = self.failures.entry(request.clone()).or_default();
        *failures += 1;
        let wait = BACK_OFF.after(*failures);
        let soon = wait.min(MAX_EVENT_DELAY);
        let (held, wait) = if ended == Ended::Stale { (MIN_INTERVAL, soon) } else { (soon, wait) };
        self.hold(&request, now + held);
        self.add(request, now + wait);
    }

    /// Leaves an object alone until then. What came while it ran waits too.
    fn hold(&mut self, request: &Request, until: Time) {
        self.held.insert(request.clone(), until);
        if let Some(due) = self.due.get(request).copied() {
            self.forget(request);
            self.add(request.clone(), due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str) -> Request {
        Request { controller: "Test", key: Key::new("ns", name) }
    }

    fn taken(queue: &mut Queue, seconds: u64) -> Option<Request> {
        queue.take(at(seconds)).map(|(request, _)| request)
    }

    fn at(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_earliest_time_counts_and_one_runs_once() {
        let mut queue = Queue::default();
        queue.add(request("a"), at(9));
        queue.add(request("a"), at(3));
        queue.add(request("a"), at(7));
        assert_eq!(queue.take(at(2)), None);
        assert_eq!(queue.next(), Some(at(3)));
        assert_eq!(taken(&mut queue, 3), Some(request("a")));
        queue.add(request("a"), at(3));
        assert_eq!((queue.take(at(4)), queue.next()), (None, None));
        queue.done(request("a"), Ended::Well(Requeue::default()), at(4));
        assert_eq!(taken(&mut queue, 5), Some(request("a")));
    }

    #[test]
    fn a_burst_is_reconciled_once_and_its_first_at_once() {
        let mut queue = Queue::default();
        let (mut looks, millis) = (Vec::new(), Duration::from_millis);
        for now in (0..100).map(millis) {
            queue.add(request("a"), now);
            if queue.take(now).is_some() {
                looks.push(now);
                queue.done(request("a"), Ended::Well(Requeue::default()), now);
            }
        }
        assert_eq!(looks, [0, 20, 40, 60, 80].map(millis));
        assert_eq!(queue.next(), Some(millis(100)), "the last is not lost");
        queue.add(request("b"), at(9));
        queue.take(at(9));
        queue.done(request("b"), Ended::Well(Requeue::default()), at(9));
        assert_eq!(queue.held.len(), 1, "nothing is kept of a request that is over");
    }

    #[test]
    fn the_request_that_is_due_longest_comes_first_and_a_running_one_holds_none_back() {
        let mut queue = Queue::default();
        for (name, due) in [("a", 5), ("b", 2), ("c", 4)] {
            queue.add(request(name), at(due));
        }
        assert_eq!(queue.take(at(9)), Some((request("b"), at(2))));
        queue.add(request("b"), at(1));
        assert_eq!(queue.next(), Some(at(4)));
        assert_eq!((taken(&mut queue, 9), taken(&mut queue, 9)), (Some(request("c")), Some(request("a"))));
        assert_eq!(taken(&mut queue, 9), None);
    }

    #[test]
    fn events_of_a_failed_request_wait_a_little_and_not_for_ever() {
        let mut queue = Queue::default();
        queue.add(request("a"), at(0));
        for _ in 0..12 {
            let now = queue.next().unwrap();
            assert!(queue.take(now).is_some());
            // Its own write comes back while it runs, and again when it has ended.
            queue.add(request("a"), now);
            queue.done(request("a"), Ended::Failed, now);
            queue.add(request("a"), now);
            assert!(queue.next().unwrap() > now && queue.next().unwrap() <= now + MAX_EVENT_DELAY);
        }
        let now = queue.next().unwrap();
        assert!(now > at(30), "tried again and again within {now:?}");
        queue.take(now);
        queue.done(request("a"), Ended::Well(Requeue::default()), now);
        queue.add(request("a"), now);
        assert_eq!(
            queue.next(),
            Some(now + MIN_INTERVAL),
            "a request that did not fail rests, and no longer"
        );
    }

    #[test]
    fn failures_wait_longer_each_time_and_a_success_forgets_them() {
        let mut queue = Queue::default();
        queue.add(request("a"), at(0));
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            assert!(queue.take(now).is_some());
            queue.done(request("a"), Ended::Failed, now);
            waits.push(queue.next().unwrap().saturating_sub(now));
            now = queue.next().unwrap();
        }
        assert!(
            waits.is_sorted() && waits[0] == BACK_OFF.first && waits[11] == BACK_OFF.longest,
            "{waits:?}"
        );
        queue.take(now);
        queue.done(request("a"), Ended::Well(Requeue::default()), now);
        queue.add(request("a"), now);
        queue.take(now);
        queue.done(request("a"), Ended::Failed, now);
        assert_eq!(queue.next(), Some(now + BACK_OFF.first));
    }

    #[test]
    fn a_stale_request_runs_at_once_after_an_event_and_backs_off_without() {
        let mut queue = Queue::default();
        queue.add(request("a"), at(0));
        let (mut now, mut waits) = (at(0), Vec::new());
        for _ in 0..9 {
            assert!(queue.take(now).is_some());
            queue.done(request("a"), Ended::Stale, now);
            waits.push(queue.next().unwrap().saturating_sub(now));
            now = queue.next().unwrap();
        }
        assert!(waits.is_sorted() && waits[0] == BACK_OFF.first && waits[8] == MAX_EVENT_DELAY, "{waits:?}");
        queue.take(now);
        queue.done(request("a"), Ended::Stale, now);
        queue.add(request("a"), now);
        assert_eq!(queue.next(), Some(now + MIN_INTERVAL));
    }

    #[test]
    fn only_requests_that_wait_for_the_outside_are_woken_by_it() {
        let mut queue = Queue::default();
        queue.add(request("a"), at(0));
        queue.take(at(0));
        queue.done(request("a"), Ended::Well(Requeue { at: None, outside: true }), at(0));
        assert_eq!(queue.take(at(9)), None);
        queue.outside_changed(None, at(9));
        assert_eq!(taken(&mut queue, 9), Some(request("a")));
        queue.done(request("a"), Ended::Well(Requeue::default()), at(9));
        queue.outside_changed(None, at(10));
        assert_eq!(queue.take(at(10)), None);
    }

    #[test]
    fn a_change_outside_during_a_reconcile_causes_another_one() {
        let waits = Ended::Well(Requeue { at: None, outside: true });
        let mut queue = Queue::default();
        queue.add(request("a"), at(0));
        queue.take(at(0));
        queue.outside_changed(None, at(1));
        queue.done(request("a"), waits, at(2));
        assert_eq!(taken(&mut queue, 3), Some(request("a")));
        queue.done(request("a"), waits, at(3));
        assert_eq!(queue.take(at(4)), None);
        // Who does not wait for it is left alone.
        queue.outside_changed(None, at(5));
        assert_eq!(taken(&mut queue, 5), Some(request("a")));
        queue.outside_changed(None, at(6));
        queue.done(request("a"), Ended::Well(Requeue::default()), at(7));
        assert_eq!(queue.take(at(9)), None);
    }
}
