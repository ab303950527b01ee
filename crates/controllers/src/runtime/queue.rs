//! Who is to be looked at, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use planner::Time;

use super::{Key, Who};

/// One object to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub(super) who: Who,
    pub(super) key: Key,
}

/// When an object is to be looked at again, if nothing changes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// At this time.
    pub at: Option<Time>,
    /// When what is outside the API changes.
    pub outside: bool,
}

impl Next {
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

    /// Without a time that has passed: looking again would find the same.
    #[must_use]
    pub fn after(self, now: Time) -> Self {
        Self { at: self.at.filter(|at| *at > now), ..self }
    }
}

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Well(Next),
    /// What was seen is not what is: news are on their way.
    Stale,
    Failed,
}

/// The first wait after an error or a stale view; it doubles with each in a row.
const BACK_OFF_START: Duration = Duration::from_millis(100);

/// How long news wait at most for an object that failed, and how long news are waited for where a view was stale. What we
/// write ourselves is news too: without a bound, one that is refused for ever would be tried as fast as the API answers.
const NEWS_WAIT: Duration = Duration::from_secs(5);

/// How long an object is left alone after a look: what comes in a burst, such as the pods of a set that get ready
/// together, is looked at once and told once. A first change is looked at without delay.
const REST: Duration = Duration::from_millis(20);

/// The longest: an API that is back is used again within a minute.
const BACK_OFF_CAP: Duration = Duration::from_mins(1);

/// Jobs by the time at which they are due. A job that runs is not started again beside itself: it is due again when it
/// has ended.
#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BTreeMap<Job, Time>,
    /// The same, the earliest first.
    by_time: BTreeSet<(Time, Job)>,
    running: BTreeSet<Job>,
    /// Those that wait for what is outside.
    outside: BTreeSet<Job>,
    /// Those that ran while what is outside changed: they may have looked at it before.
    overtaken: BTreeSet<Job>,
    failures: BTreeMap<Job, u32>,
    /// Those that were looked at a moment ago or failed last, and when they may be looked at again whatever is new.
    held: BTreeMap<Job, Time>,
}

impl Queue {
    /// Looks at it, not later than at this time.
    pub(super) fn add(&mut self, job: Job, at: Time) {
        let at = self.held.get(&job).map_or(at, |until| at.max(*until));
        if self.due.get(&job).is_some_and(|due| *due <= at) {
            return;
        }
        self.forget(&job);
        self.by_time.insert((at, job.clone()));
        self.due.insert(job, at);
    }

    /// What is outside has changed.
    pub(super) fn outside_changed(&mut self, now: Time) {
        self.overtaken.extend(self.running.iter().cloned());
        for job in std::mem::take(&mut self.outside) {
            self.add(job, now);
        }
    }

    /// The one that is due longest, from now on running, and since when it was due.
    pub(super) fn take(&mut self, now: Time) -> Option<(Job, Time)> {
        let (at, job) = self.waiting().next().filter(|(at, _)| *at <= now)?.clone();
        self.forget(&job);
        self.outside.remove(&job);
        self.running.insert(job.clone());
        Some((job, at))
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.waiting().next().map(|(at, _)| *at)
    }

    /// Those that do not run, the earliest first. Few run at once, so few are passed over.
    fn waiting(&self) -> impl Iterator<Item = &(Time, Job)> {
        self.by_time.iter().filter(|(_, job)| !self.running.contains(job))
    }

    fn forget(&mut self, job: &Job) {
        if let Some(at) = self.due.remove(job) {
            self.by_time.remove(&(at, job.clone()));
        }
    }

    /// It has ended.
    pub(super) fn done(&mut self, job: Job, looked: Looked, now: Time) {
        self.running.remove(&job);
        let overtaken = self.overtaken.remove(&job);
        self.held.retain(|_, until| *until > now);
        let Looked::Well(next) = looked else { return self.again(job, looked, now) };
        self.failures.remove(&job);
        self.hold(&job, now + REST);
        if next.outside && overtaken {
            self.add(job.clone(), now);
        } else if next.outside {
            self.outside.insert(job.clone());
        }
        if let Some(at) = next.at {
            self.add(job, at.max(now));
        }
    }

    /// Looks again at what came to nothing, later each time.
    fn again(&mut self, job: Job, looked: Looked, now: Time) {
        let failures = self.failures.entry(job.clone()).or_default();
        let wait = BACK_OFF_CAP.min(BACK_OFF_START * (1 << (*failures).min(10)));
        *failures += 1;
        let soon = wait.min(NEWS_WAIT);
        let (held, wait) = if looked == Looked::Stale { (REST, soon) } else { (soon, wait) };
        self.hold(&job, now + held);
        self.add(job, now + wait);
    }

    /// Leaves it alone until then. What came while it ran waits too.
    fn hold(&mut self, job: &Job, until: Time) {
        self.held.insert(job.clone(), until);
        if let Some(due) = self.due.get(job).copied() {
            self.forget(job);
            self.add(job.clone(), due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Job {
        Job { who: Who::LeaderWorkerSet, key: Key::new("ns", name) }
    }

    fn taken(queue: &mut Queue, seconds: u64) -> Option<Job> {
        queue.take(at(seconds)).map(|(job, _)| job)
    }

    fn at(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_earliest_time_counts_and_one_runs_once() {
        let mut queue = Queue::default();
        queue.add(job("a"), at(9));
        queue.add(job("a"), at(3));
        queue.add(job("a"), at(7));
        assert_eq!(queue.take(at(2)), None);
        assert_eq!(queue.next(), Some(at(3)));
        assert_eq!(taken(&mut queue, 3), Some(job("a")));
        queue.add(job("a"), at(3));
        assert_eq!((queue.take(at(4)), queue.next()), (None, None));
        queue.done(job("a"), Looked::Well(Next::default()), at(4));
        assert_eq!(taken(&mut queue, 5), Some(job("a")));
    }

    #[test]
    fn a_burst_is_looked_at_once_and_its_first_at_once() {
        let mut queue = Queue::default();
        let (mut looks, millis) = (Vec::new(), Duration::from_millis);
        for now in (0..100).map(millis) {
            queue.add(job("a"), now);
            if queue.take(now).is_some() {
                looks.push(now);
                queue.done(job("a"), Looked::Well(Next::default()), now);
            }
        }
        assert_eq!(looks, [0, 20, 40, 60, 80].map(millis));
        assert_eq!(queue.next(), Some(millis(100)), "the last is not lost");
        queue.add(job("b"), at(9));
        queue.take(at(9));
        queue.done(job("b"), Looked::Well(Next::default()), at(9));
        assert_eq!(queue.held.len(), 1, "nothing is kept of who is not looked at any more");
    }

    #[test]
    fn who_is_due_longest_comes_first_and_one_that_runs_holds_nobody_back() {
        let mut queue = Queue::default();
        for (name, due) in [("a", 5), ("b", 2), ("c", 4)] {
            queue.add(job(name), at(due));
        }
        assert_eq!(queue.take(at(9)), Some((job("b"), at(2))));
        queue.add(job("b"), at(1));
        assert_eq!(queue.next(), Some(at(4)));
        assert_eq!((taken(&mut queue, 9), taken(&mut queue, 9)), (Some(job("c")), Some(job("a"))));
        assert_eq!(taken(&mut queue, 9), None);
    }

    #[test]
    fn news_of_one_that_failed_wait_a_little_and_not_for_ever() {
        let mut queue = Queue::default();
        queue.add(job("a"), at(0));
        for _ in 0..12 {
            let now = queue.next().unwrap();
            assert!(queue.take(now).is_some());
            // Its own write comes back while it runs, and again when it has ended.
            queue.add(job("a"), now);
            queue.done(job("a"), Looked::Failed, now);
            queue.add(job("a"), now);
            assert!(queue.next().unwrap() > now && queue.next().unwrap() <= now + NEWS_WAIT);
        }
        let now = queue.next().unwrap();
        assert!(now > at(30), "tried again and again within {now:?}");
        queue.take(now);
        queue.done(job("a"), Looked::Well(Next::default()), now);
        queue.add(job("a"), now);
        assert_eq!(queue.next(), Some(now + REST), "one that did not fail rests, and no longer");
    }

    #[test]
    fn failures_wait_longer_each_time_and_a_success_forgets_them() {
        let mut queue = Queue::default();
        queue.add(job("a"), at(0));
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            assert!(queue.take(now).is_some());
            queue.done(job("a"), Looked::Failed, now);
            waits.push(queue.next().unwrap().saturating_sub(now));
            now = queue.next().unwrap();
        }
        assert!(waits.is_sorted() && waits[0] == BACK_OFF_START && waits[11] == BACK_OFF_CAP, "{waits:?}");
        queue.take(now);
        queue.done(job("a"), Looked::Well(Next::default()), now);
        queue.add(job("a"), now);
        queue.take(now);
        queue.done(job("a"), Looked::Failed, now);
        assert_eq!(queue.next(), Some(now + BACK_OFF_START));
    }

    #[test]
    fn a_stale_view_is_looked_at_at_once_with_news_and_less_and_less_often_without() {
        let mut queue = Queue::default();
        queue.add(job("a"), at(0));
        let (mut now, mut waits) = (at(0), Vec::new());
        for _ in 0..9 {
            assert!(queue.take(now).is_some());
            queue.done(job("a"), Looked::Stale, now);
            waits.push(queue.next().unwrap().saturating_sub(now));
            now = queue.next().unwrap();
        }
        assert!(waits.is_sorted() && waits[0] == BACK_OFF_START && waits[8] == NEWS_WAIT, "{waits:?}");
        queue.take(now);
        queue.done(job("a"), Looked::Stale, now);
        queue.add(job("a"), now);
        assert_eq!(queue.next(), Some(now + REST));
    }

    #[test]
    fn a_time_that_has_passed_is_no_reason_to_look_again() {
        let next = Next::default().until(Some(at(3)));
        assert_eq!((next.after(at(2)).at, next.after(at(3)).at), (Some(at(3)), None));
    }

    #[test]
    fn who_waits_for_the_outside_is_woken_by_it_alone() {
        let mut queue = Queue::default();
        queue.add(job("a"), at(0));
        queue.take(at(0));
        queue.done(job("a"), Looked::Well(Next { at: None, outside: true }), at(0));
        assert_eq!(queue.take(at(9)), None);
        queue.outside_changed(at(9));
        assert_eq!(taken(&mut queue, 9), Some(job("a")));
        queue.done(job("a"), Looked::Well(Next::default()), at(9));
        queue.outside_changed(at(10));
        assert_eq!(queue.take(at(10)), None);
    }

    #[test]
    fn what_changes_outside_during_a_look_is_looked_at_once_more() {
        let waits = Looked::Well(Next { at: None, outside: true });
        let mut queue = Queue::default();
        queue.add(job("a"), at(0));
        queue.take(at(0));
        queue.outside_changed(at(1));
        queue.done(job("a"), waits, at(2));
        assert_eq!(taken(&mut queue, 3), Some(job("a")));
        queue.done(job("a"), waits, at(3));
        assert_eq!(queue.take(at(4)), None);
        // Who does not wait for it is left alone.
        queue.outside_changed(at(5));
        assert_eq!(taken(&mut queue, 5), Some(job("a")));
        queue.outside_changed(at(6));
        queue.done(job("a"), Looked::Well(Next::default()), at(7));
        assert_eq!(queue.take(at(9)), None);
    }
}
