//! The runtime status of a container, and its form in the API.
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::process::client::ExitStatus;

/// The runtime status of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuntimeStatus {
    pub state: State,
    pub last: Option<Terminated>,
    pub restarts: i32,
    /// The startup probe has succeeded.
    pub started: bool,
    pub ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Waiting { reason: String, message: String },
    Running { since: Timestamp },
    Terminated(Terminated),
}

/// A run of a container that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terminated {
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: String,
    pub started: Option<Timestamp>,
    pub finished: Timestamp,
}

impl Terminated {
    pub fn new(end: &ExitStatus, started: Option<Timestamp>, finished: Timestamp) -> Self {
        let (code, signal, reason, message) = match end {
            ExitStatus::Exited(0) => (0, None, "Completed", ""),
            ExitStatus::Exited(code) => (*code, None, "Error", ""),
            ExitStatus::Signalled(signal) => (128 + signal, Some(*signal), "Error", ""),
            ExitStatus::NotStarted(why) => (128, None, "StartError", why.as_str()),
            ExitStatus::Lost => {
                (137, None, "ContainerStatusUnknown", "the process that watched the container was killed")
            }
        };
        let (reason, message) = (reason.to_owned(), message.to_owned());
        Self { code, signal, reason, message, started, finished }
    }

    pub fn succeeded(&self) -> bool {
        self.code == 0
    }
}

impl Default for RuntimeStatus {
    fn default() -> Self {
        Self::waiting("ContainerCreating", "")
    }
}

impl RuntimeStatus {
    pub fn waiting(reason: &str, message: &str) -> Self {
        let state = State::Waiting { reason: reason.to_owned(), message: message.to_owned() };
        Self { state, last: None, restarts: 0, started: false, ready: false }
    }

    /// The last run that has ended; none while the container runs.
    pub fn last_termination(&self) -> Option<&Terminated> {
        match &self.state {
            State::Terminated(ended) => Some(ended),
            State::Waiting { .. } => self.last.as_ref(),
            State::Running { .. } => None,
        }
    }

    /// The status that an earlier agent wrote. A container that was running is terminated: no process outlives
    /// an agent.
    pub fn recovered(status: &ContainerStatus, now: Timestamp) -> Self {
        let state = status.state.as_ref();
        let terminated = state.and_then(|state| state.terminated.as_ref());
        let running = state.and_then(|state| state.running.as_ref());
        let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let ended = match (terminated, running) {
            (Some(terminated), _) => Some(read_ended(terminated, now)),
            (None, Some(running)) => Some(Terminated {
                code: 137,
                signal: Some(9),
                reason: "ContainerStatusUnknown".to_owned(),
                message: "the node agent was restarted".to_owned(),
                started: running.started_at.as_ref().map(|time| time.0),
                finished: now,
            }),
            (None, None) => None,
        };
        let last = last.map(|last| read_ended(last, now));
        // A container in back-off has its last run in `last`.
        let state = match ended.or_else(|| last.clone()) {
            Some(ended) => State::Terminated(ended),
            None => Self::default().state,
        };
        Self { state, last, restarts: status.restart_count, started: false, ready: false }
    }

    pub fn to_api(&self, container: &Container) -> ContainerStatus {
        let state = match &self.state {
            State::Waiting { reason, message } => ContainerState {
                waiting: Some(ContainerStateWaiting { reason: some(reason), message: some(message) }),
                ..ContainerState::default()
            },
            State::Running { since } => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
                ..ContainerState::default()
            },
            State::Terminated(ended) => terminated(ended),
        };
        let image = container.image.clone().unwrap_or_default();
        ContainerStatus {
            name: container.name.clone(),
            image_id: format!("name-only://{image}"),
            image,
            ready: self.ready,
            started: Some(self.started),
            restart_count: self.restarts,
            state: Some(state),
            last_state: Some(self.last.as_ref().map(terminated).unwrap_or_default()),
            ..ContainerStatus::default()
        }
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn terminated(ended: &Terminated) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: ended.code,
        signal: ended.signal,
        reason: some(&ended.reason),
        message: some(&ended.message),
        started_at: ended.started.map(Time),
        finished_at: Some(Time(ended.finished)),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn read_ended(state: &ContainerStateTerminated, now: Timestamp) -> Terminated {
    Terminated {
        code: state.exit_code,
        signal: state.signal,
        reason: state.reason.clone().unwrap_or_default(),
        message: state.message.clone().unwrap_or_default(),
        started: state.started_at.as_ref().map(|time| time.0),
        finished: state.finished_at.as_ref().map_or(now, |time| time.0),
    }
}
