//! Processes that an earlier agent or a killed shim left behind. They are found by a mark in their environment.
//!
//! A mark needs no record that could be lost or be older than a reused process id, and it follows a process that left
//! its group and its session. The kernel shows the environment that a process was started with.
use std::{fs, io, os::fd::OwnedFd, path::Path};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

/// The variable that holds the mark.
pub(crate) const MARK: &str = "SEGUE_CONTAINER";

/// The prefix of every mark of an agent: its directory.
pub(crate) fn mark_of_agent(directory: &Path) -> String {
    format!("{MARK}={}|", directory.display())
}

/// The value of the variable for one container.
pub(crate) fn mark(directory: &Path, pod_uid: &str, container: &str) -> String {
    format!("{}|{pod_uid}|{container}|", directory.display())
}

/// Kills every process whose mark has this prefix. Returns their number when all of them are gone.
pub(crate) async fn kill_marked(mark: String) -> io::Result<usize> {
    tokio::task::spawn_blocking(move || kill_all(&mark)).await?
}

fn kill_all(mark: &str) -> io::Result<usize> {
    let mut ended = 0;
    loop {
        let found: Vec<OwnedFd> =
            processes().into_iter().filter_map(|pid| open_if_marked(pid, mark)).collect();
        if found.is_empty() {
            return Ok(ended);
        }
        for process in found {
            let _ = pidfd_send_signal(&process, Signal::KILL);
            // Readable when the process is gone.
            poll(&mut [PollFd::new(&process, PollFlags::IN)], None)?;
            ended += 1;
        }
    }
}

/// Opens the process before it reads the mark, so that a reused id is never killed.
fn open_if_marked(pid: Pid, mark: &str) -> Option<OwnedFd> {
    let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let marked = environment.split(|byte| *byte == 0).any(|line| line.starts_with(mark.as_bytes()));
    marked.then_some(held)
}

/// The child processes of `parent`.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    processes().into_iter().filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn processes() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Pid::from_raw(name.parse().ok()?)).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The fourth field; the second is the name in brackets, which may hold anything.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    Pid::from_raw(after_name.split_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        assert_eq!(parent_in("7 (a) b) S 42 7 7"), Pid::from_raw(42));
        assert_eq!(parent_in("7 (a"), None);
    }
}
