//! Writes and their preconditions.

use apiserver::store::{Change, CommitError, History, Settings, Store};

use crate::support::{block_on, create, draft, key, pods, value};

fn both(test: impl Fn(Store)) {
    test(Store::memory(History::default()));
    let directory = tempfile::tempdir().unwrap();
    test(Store::open(directory.path(), Settings::default()).unwrap().store);
}

#[test]
fn a_write_over_another_revision_is_refused_with_what_is_there() {
    both(|store| {
        let first = block_on(store.commit(create("a", 1))).unwrap();
        let refused = |change| match block_on(store.commit(change)) {
            Err(CommitError::Conflict { current, .. }) => current,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(create("a", 2)), Some(first.clone()));
        assert_eq!(refused(Change::update(key("a"), 7, draft("a", 2))), Some(first.clone()));
        assert_eq!(refused(Change::delete(key("a"), 7, draft("a", 2))), Some(first.clone()));
        assert_eq!(refused(Change::update(key("b"), 7, draft("b", 2))), None);
        assert_eq!(store.revision(), 1);
        let last = block_on(store.commit(Change::delete(key("a"), 1, draft("a", 3)))).unwrap();
        assert_eq!((last.revision, value(&last)), (2, 3));
        assert_eq!(store.get(&key("a")), None);
    });
}

#[test]
fn changes_that_commit_together_all_happen_or_none() {
    both(|store| {
        block_on(store.commit(create("there", 1))).unwrap();
        let half = block_on(store.commit_all(vec![create("a", 2), create("b", 3), create("there", 4)]));
        assert!(matches!(half, Err(CommitError::Conflict { key: at, .. }) if at == key("there")));
        assert_eq!((store.revision(), pods(&store).len()), (1, 1));
        let whole = block_on(store.commit_all(vec![create("a", 2), create("b", 3)])).unwrap();
        assert_eq!(whole.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(pods(&store).len(), 3);
    });
}

#[test]
fn of_many_writers_of_one_revision_exactly_one_wins() {
    both(|store| {
        let mut over = block_on(store.commit(create("a", 0))).unwrap().revision;
        for round in 1..=20 {
            let wins: Vec<_> = std::thread::scope(|scope| {
                let write = |writer: u64| Change::update(key("a"), over, draft("a", round * 100 + writer));
                let store = &store;
                let writers: Vec<_> =
                    (0..8).map(|writer| scope.spawn(move || block_on(store.commit(write(writer))))).collect();
                writers.into_iter().filter_map(|writer| writer.join().unwrap().ok()).collect()
            });
            assert_eq!(wins.len(), 1);
            assert_eq!(store.get(&key("a")).as_ref(), Some(&wins[0]));
            over = wins[0].revision;
        }
        assert_eq!(over, 21);
    });
}

#[test]
fn a_dropped_resource_is_gone_and_can_come_back() {
    both(|store| {
        block_on(store.commit(create("a", 1))).unwrap();
        let mut watcher = store.watch("/pods", 1).unwrap();
        block_on(store.drop_resource("/pods")).unwrap();
        assert!(pods(&store).is_empty());
        assert!(watcher.try_next().is_err());
        assert!(store.watch("/pods", 1).is_err());
        block_on(store.commit(create("a", 2))).unwrap();
        assert_eq!(store.revision(), 3);
        assert_eq!(store.watch("/pods", 2).unwrap().try_next().unwrap().unwrap().revision(), 3);
    });
}
