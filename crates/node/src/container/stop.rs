//! The graceful stop of a container: its preStop hook, SIGTERM, and SIGKILL when the grace period is over.
use std::{fmt, future::Future, pin::Pin, time::Duration};

use tokio::time::{self, Instant};

use crate::{probe::handler::Handler, process::client::Shim};

/// The time that a container has after a hook that used up its grace period, as in the kubelet.
const AFTER_HOOK: Duration = Duration::from_secs(2);

/// The next step of a graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Terminate,
    Kill,
}

pub(crate) struct GracefulStop {
    hook: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    kill_at: Instant,
    killed: bool,
}

impl fmt::Debug for GracefulStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracefulStop").field("kill_at", &self.kill_at).finish_non_exhaustive()
    }
}

impl GracefulStop {
    pub fn new(hook: Option<Handler>, shim: Shim, grace: Duration) -> Self {
        let hook = hook.map(|hook| {
            let running: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                // A hook that fails does not delay the stop.
                drop(hook.run(&shim).await);
            });
            running
        });
        Self { hook, kill_at: Instant::now() + grace, killed: false }
    }

    /// Shortens the grace period; a longer one is ignored.
    pub fn shorten(&mut self, grace: Duration) {
        self.kill_at = self.kill_at.min(Instant::now() + grace);
    }

    /// Waits for the next step; for ever if there is none. Cancel safe.
    pub async fn next(stop: &mut Option<Self>) -> Step {
        match stop {
            Some(stop) if !stop.killed => stop.step().await,
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
        let hook = Some(Handler::Sleep(Duration::from_mins(1)));
        let mut stop = Some(GracefulStop::new(hook, Shim::default(), Duration::from_secs(5)));
        assert_eq!(GracefulStop::next(&mut stop).await, Step::Terminate);
        assert_eq!(began.elapsed().as_secs(), 5);
        assert_eq!(GracefulStop::next(&mut stop).await, Step::Kill);
        assert_eq!(began.elapsed().as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_grace_period_can_be_shortened_and_not_extended() {
        let began = Instant::now();
        let mut stop = GracefulStop::new(None, Shim::default(), Duration::from_secs(30));
        stop.shorten(Duration::from_secs(3));
        stop.shorten(Duration::from_mins(1));
        assert_eq!(GracefulStop::next(&mut Some(stop)).await, Step::Kill);
        assert_eq!(began.elapsed().as_secs(), 3);
    }
}
