//! The phase of a pod, as the kubelet computes it.
use crate::container::status::{RuntimeStatus, State};

/// `spec.restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    OnFailure,
    Never,
}

impl Policy {
    pub fn read(text: Option<&str>) -> Self {
        match text {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }

    /// The policy for init containers: those that succeeded are not restarted, whatever the pod's policy.
    pub fn for_init(self) -> Self {
        if self == Self::Always { Self::OnFailure } else { self }
    }

    pub fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The containers of a pod, the input of [`phase`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Containers<'a> {
    pub init: &'a [RuntimeStatus],
    pub main: &'a [RuntimeStatus],
    pub policy: Policy,
    /// The pod is being deleted: terminated containers are not restarted.
    pub ending: bool,
}

pub(crate) fn phase(containers: &Containers<'_>) -> &'static str {
    let Containers { init, main, policy, ending } = *containers;
    let ended = |status: &RuntimeStatus| status.last_termination().is_some();
    let succeeded = |status: &RuntimeStatus| {
        status.last_termination().is_some_and(crate::container::status::Terminated::succeeded)
    };
    let running = |status: &RuntimeStatus| matches!(status.state, State::Running { .. });
    let never_ran = |status: &RuntimeStatus| !running(status) && !ended(status);

    let init_failed = init.iter().any(|status| ended(status) && !succeeded(status));
    if init_failed && (policy == Policy::Never || ending) && !main.iter().any(running) {
        return "Failed";
    }
    let waiting = init.iter().any(|status| !succeeded(status)) || main.iter().any(never_ran);
    if waiting && !main.iter().any(running) {
        return if ending { "Failed" } else { "Pending" };
    }
    if main.iter().any(running) {
        return if main.iter().any(never_ran) { "Pending" } else { "Running" };
    }
    match policy {
        _ if main.iter().all(succeeded) && (policy != Policy::Always || ending) => "Succeeded",
        Policy::Never => "Failed",
        _ if ending => "Failed",
        Policy::Always | Policy::OnFailure => "Running",
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{container::status::Terminated, process::client::ExitStatus};

    fn status(state: State) -> RuntimeStatus {
        RuntimeStatus { state, ..RuntimeStatus::default() }
    }

    fn running() -> RuntimeStatus {
        status(State::Running { since: Timestamp::UNIX_EPOCH })
    }

    fn ended(code: i32) -> RuntimeStatus {
        status(State::Terminated(Terminated::new(&ExitStatus::Exited(code), None, Timestamp::UNIX_EPOCH)))
    }

    fn crashing() -> RuntimeStatus {
        let State::Terminated(last) = ended(1).state else { panic!("should have ended") };
        RuntimeStatus { last: Some(last), ..RuntimeStatus::waiting("CrashLoopBackOff", "") }
    }

    #[track_caller]
    fn check(policy: Policy, init: &[RuntimeStatus], main: &[RuntimeStatus], alive: &str, ending: &str) {
        let of = |ending| phase(&Containers { init, main, policy, ending });
        assert_eq!((of(false), of(true)), (alive, ending));
    }

    #[test]
    fn a_pod_is_pending_until_all_its_containers_have_run() {
        check(Policy::Always, &[], &[RuntimeStatus::default()], "Pending", "Failed");
        check(Policy::Always, &[running()], &[RuntimeStatus::default()], "Pending", "Failed");
        check(Policy::Always, &[ended(0)], &[RuntimeStatus::default(), running()], "Pending", "Pending");
        check(Policy::Always, &[ended(0)], &[running()], "Running", "Running");
    }

    #[test]
    fn an_init_container_that_failed_fails_only_a_pod_that_is_never_restarted() {
        check(Policy::Never, &[ended(1)], &[RuntimeStatus::default()], "Failed", "Failed");
        check(Policy::OnFailure, &[ended(1)], &[RuntimeStatus::default()], "Pending", "Failed");
        check(Policy::Always, &[crashing()], &[RuntimeStatus::default()], "Pending", "Failed");
    }

    #[test]
    fn what_will_be_restarted_runs() {
        check(Policy::Always, &[], &[crashing()], "Running", "Failed");
        check(Policy::Always, &[], &[ended(0)], "Running", "Succeeded");
        check(Policy::OnFailure, &[], &[ended(1), ended(0)], "Running", "Failed");
    }

    #[test]
    fn what_will_not_be_restarted_is_over() {
        check(Policy::OnFailure, &[], &[ended(0), ended(0)], "Succeeded", "Succeeded");
        check(Policy::Never, &[], &[ended(0), ended(0)], "Succeeded", "Succeeded");
        check(Policy::Never, &[], &[ended(0), ended(1)], "Failed", "Failed");
        check(Policy::Never, &[], &[ended(1), running()], "Running", "Running");
    }

    #[test]
    fn a_policy_restarts_what_it_says() {
        let restarts = |policy: Policy| [0, 1].map(|code| policy.restarts(code));
        assert_eq!(restarts(Policy::read(None)), [true, true]);
        assert_eq!(restarts(Policy::read(Some("OnFailure"))), [false, true]);
        assert_eq!(restarts(Policy::read(Some("Never"))), [false, false]);
        assert_eq!(restarts(Policy::Always.for_init()), [false, true]);
    }
}
