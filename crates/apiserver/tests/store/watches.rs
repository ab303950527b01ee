//! Watchers wait, wake, and are told when they are too slow.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake},
};

use apiserver::store::{Change, History, Key, RevisionError, Store};

use crate::support::{PODS, SECRETS, block_on, create, draft, key};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn only_the_watchers_of_what_is_written_wake() {
    let store = Store::memory(History::default());
    let mut watcher = store.watch(PODS, 0).unwrap();
    let counter = Arc::new(Wakes::default());
    let waker = counter.clone().into();
    let mut context = Context::from_waker(&waker);
    let mut next = pin!(watcher.next());
    assert!(next.as_mut().poll(&mut context).is_pending());
    block_on(store.commit(Change::create(Key::new(SECRETS, "", "a"), draft("a", 1)))).unwrap();
    assert_eq!(counter.0.load(Ordering::Relaxed), 0);
    block_on(store.commit(create("a", 2))).unwrap();
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Ok(event)) = next.as_mut().poll(&mut context) else { panic!("should be there") };
    assert_eq!((event.revision(), event.deleted, &event.before), (2, false, &None));
}

#[test]
fn a_delete_carries_the_last_object_and_the_one_before() {
    let store = Store::memory(History::default());
    let first = block_on(store.commit(create("a", 1))).unwrap();
    let last = block_on(store.commit(Change::delete(key("a"), 1, draft("a", 2)))).unwrap();
    let event = store.watch(PODS, 1).unwrap().try_next().unwrap().unwrap();
    assert!(event.deleted && event.now().is_none());
    assert_eq!((event.revision(), &event.entry, &event.before), (2, &last, &Some(first)));
}

#[test]
fn a_slow_watcher_is_told_and_a_quiet_resource_keeps_its_history() {
    let store = Store::memory(History { events: 3, bytes: 1 << 20 });
    let mut slow = store.watch(PODS, 0).unwrap();
    let quiet = store.watch(SECRETS, 0).unwrap();
    for number in 1..=5 {
        block_on(store.commit(create(&number.to_string(), number))).unwrap();
    }
    assert_eq!(slow.try_next(), Err(RevisionError::Expired { oldest: 2 }));
    assert_eq!(block_on(slow.next()), Err(RevisionError::Expired { oldest: 2 }));
    assert_eq!(store.watch(PODS, 1).err(), Some(RevisionError::Expired { oldest: 2 }));
    assert_eq!(store.watch(PODS, 6).err(), Some(RevisionError::Future { newest: 5 }));
    assert_eq!(store.watch(PODS, 2).unwrap().try_next().unwrap().unwrap().revision(), 3);
    assert_eq!(quiet.progress(), Ok(5));
}

#[test]
fn history_is_bounded_in_bytes() {
    let store = Store::memory(History { events: 1000, bytes: 4000 });
    for number in 1..=100 {
        block_on(store.commit(create(&number.to_string(), number))).unwrap();
    }
    let Err(RevisionError::Expired { oldest }) = store.watch(PODS, 0).map(drop) else {
        panic!("should be expired")
    };
    assert!((85..100).contains(&oldest), "{oldest}");
}

#[test]
fn progress_never_passes_an_event_that_is_still_to_come() {
    let store = Store::memory(History::default());
    let mut watcher = store.watch(PODS, 0).unwrap();
    let secret = |name: &str| Change::create(Key::new(SECRETS, "", name), draft(name, 1));
    block_on(store.commit(secret("a"))).unwrap();
    assert_eq!(watcher.progress(), Ok(1));
    block_on(store.commit(create("a", 1))).unwrap();
    block_on(store.commit(secret("b"))).unwrap();
    assert_eq!(watcher.progress(), Ok(1));
    assert_eq!(watcher.try_next().unwrap().unwrap().revision(), 2);
    assert_eq!(watcher.progress(), Ok(3));
}

#[test]
fn a_watcher_on_another_thread_sees_every_write_in_order() {
    let store = Store::memory(History::default());
    let mut watcher = store.watch(PODS, 0).unwrap();
    let follower = std::thread::spawn(move || {
        block_on(async move {
            for revision in 1..=500 {
                assert_eq!(watcher.next().await.unwrap().revision(), revision);
            }
        });
    });
    std::thread::scope(|scope| {
        for writer in 0..5 {
            let store = &store;
            scope.spawn(move || {
                (0..100).for_each(|number| {
                    drop(block_on(store.commit(create(&format!("{writer}-{number}"), number))).unwrap());
                });
            });
        }
    });
    follower.join().unwrap();
}
