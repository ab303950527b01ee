//! The end of a container: its hook, a request, a deadline.
use std::{fmt, future::Future, pin::Pin, time::Duration};

use tokio::time::{self, Instant};

use crate::{check::Check, process::Shim};

/// What is left to a container whose hook used up its grace period, as the kubelet has it.
const AFTER_HOOK: Duration = Duration::from_secs(2);

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Terminate,
    Kill,
}

pub(crate) struct Ending {
    hook: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    kill_at: Instant,
    killed: bool,
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("kill_at", &self.kill_at).finish_non_exhaustive()
    }
}

impl Ending {
    pub fn new(hook: Option<Check>, shim: Shim, grace: Duration) -> Self {
        let hook = hook.map(|hook| {
            let running: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                // A hook that fails does not stop the end.
                drop(hook.make(&shim).await);
            });
            running
        });
        Self { hook, kill_at: Instant::now() + grace, killed: false }
    }

    /// A later wish can only shorten the grace period.
    pub fn shorten(&mut self, grace: Duration) {
        self.kill_at = self.kill_at.min(Instant::now() + grace);
    }

    /// The next step of an ending, if there is one. May be dropped and called again.
    pub async fn next(ending: &mut Option<Self>) -> Step {
        match ending {
            Some(ending) if !ending.killed => ending.step().await,
            _ => std::future::pending().await,
        }
    }

    async fn step(&mut self) -> Step {
        let Some(hook) = &mut self.hook else {
            time::sleep_until(self.kill_at).await;
            self.killed = true;
            return Step::Kill;
        };
        if time::timeout_at(self.kill_at, hook).await.is_err() {
            self.kill_at = Instant::now() + AFTER_HOOK;
        }
        self.hook = None;
        Step::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_takes_too_long_leaves_two_seconds() {
        let began = Instant::now();
        let hook = Some(Check::Sleep(Duration::from_mins(1)));
        let mut ending = Some(Ending::new(hook, Shim::default(), Duration::from_secs(5)));
        assert_eq!(Ending::next(&mut ending).await, Step::Terminate);
        assert_eq!(began.elapsed().as_secs(), 5);
        assert_eq!(Ending::next(&mut ending).await, Step::Kill);
        assert_eq!(began.elapsed().as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_grace_period_can_be_shortened_and_not_extended() {
        let began = Instant::now();
        let mut ending = Ending::new(None, Shim::default(), Duration::from_secs(30));
        ending.shorten(Duration::from_secs(3));
        ending.shorten(Duration::from_mins(1));
        assert_eq!(Ending::next(&mut Some(ending)).await, Step::Kill);
        assert_eq!(began.elapsed().as_secs(), 3);
    }
}
