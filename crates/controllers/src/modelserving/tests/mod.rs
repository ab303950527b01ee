//! Everything that decisions follow from is in the API.

mod api;
mod life;

use life::{CHANGES, Controller, Life, live};

/// Lives that differ in their roles, steps, budgets, delays and crashes. Unoptimized code lives one in a tenth of a second:
/// `SEGUE_LIVES=10000` is for an hour without work, or for `--release`.
fn lives() -> u64 {
    std::env::var("SEGUE_LIVES").map_or(100, |text| text.parse().unwrap())
}

/// Two controllers on two worlds that are the same as long as both decide the same: one lives all the time, the other is
/// another one at every decision. The first difference would be something that only the first one knew.
#[test]
fn a_controller_that_begins_anew_before_every_decision_decides_the_same() {
    let many = lives();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let workers = (0..threads).map(|first| {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let mut seen = Seen::default();
            for seed in (first..many).step_by(usize::try_from(threads).unwrap()) {
                let lives = runtime.block_on(live(seed, Controller::Lives));
                let begins = runtime.block_on(live(seed, Controller::BeginsAnew));
                is_same(seed, &lives, &begins);
                assert_eq!(lives.settled, CHANGES, "life {seed} does not come to its end");
                seen.add(&lives);
            }
            seen
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut all = Seen::default();
    for worker in workers {
        all.join(&worker.join().unwrap());
    }
    // A check of lives in which nothing happens would be none.
    assert!(all.decisions > 50 * many && all.writes > 50 * many && all.crashes > many, "{all:?}");
}

fn is_same(seed: u64, lives: &Life, begins: &Life) {
    let pairs = lives.decisions.iter().zip(&begins.decisions);
    let same = pairs.take_while(|(one, other)| one == other).count();
    let at =
        |life: &Life| life.decisions.get(same).map_or_else(|| "nothing".to_owned(), |it| it.join("\n  "));
    assert!(
        lives.decisions == begins.decisions,
        "life {seed}, decision {same}: who lives all the time writes\n  {}\nand who begins anew writes\n  {}",
        at(lives),
        at(begins)
    );
}

/// What happened in these lives.
#[derive(Debug, Default)]
struct Seen {
    decisions: u64,
    writes: u64,
    crashes: u64,
}

impl Seen {
    fn add(&mut self, life: &Life) {
        let writes = life.decisions.iter().map(Vec::len).sum::<usize>() as u64;
        self.join(&Self { decisions: life.decisions.len() as u64, writes, crashes: life.crashes });
    }

    fn join(&mut self, other: &Self) {
        self.decisions += other.decisions;
        self.writes += other.writes;
        self.crashes += other.crashes;
    }
}
