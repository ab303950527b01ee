//! Waiting for a condition, never for a time.
use std::time::Duration;

use crate::Error;

/// The interval of polls of a condition: short enough that no test waits for it.
const INTERVAL: Duration = Duration::from_millis(25);

/// Asks `probe` until it answers, and fails with `what` in the message when it has not within `within`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), testbed::Error> {
/// let mut asked = 0;
/// let answer = testbed::eventually("the third answer", std::time::Duration::from_secs(5), async || {
///     asked += 1;
///     (asked == 3).then_some("here")
/// });
/// assert_eq!(answer.await?, "here");
/// # Ok(()) }
/// ```
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Error> {
    let asking = async {
        loop {
            if let Some(answer) = probe().await {
                return answer;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(within, asking)
        .await
        .map_err(|_| Error::Late { what: what.to_owned(), seconds: within.as_secs() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_never_comes_is_named() {
        let never = eventually("pigs fly", Duration::from_millis(1), async || None::<()>).await;
        assert_eq!(never.unwrap_err().to_string(), "failed to see pigs fly within 0 s");
    }

    #[tokio::test]
    async fn a_probe_that_hangs_is_given_up_too() {
        let hung =
            eventually("an answer", Duration::from_millis(1), std::future::pending::<Option<()>>).await;
        assert!(matches!(hung, Err(Error::Late { .. })));
    }
}
