//! The process between the agent and a container: it takes the whole tree with it.
//!
//! The agent starts its own program again with [`ARGUMENT`]. That shim starts the container in a process group of its
//! own and reads its standard input: `T` asks the group to end, the end of the input kills it. So however the agent
//! ends, `kill -9` included, the kernel closes the pipe and the container goes. Should the shim itself be killed, the
//! container's first process dies with it (`PR_SET_PDEATHSIG`); the agent finds the rest by their mark
//! ([`crate::leftovers`]). A process that leaves the group is still a child of the shim, which is the reaper of its
//! tree, and is killed when the container's first process has ended, as a container's are.
//!
//! A container that is given a hosts file sees it as /etc/hosts: the kernel has a view of the mounts for each process
//! that asks for one, so neither the machine nor another pod sees it.
//!
//! Standard output carries the report to the agent, standard error is the container's output.
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::process::{CommandExt, parent_id},
    },
    process::{Command, ExitCode, Stdio},
    thread,
};

use rustix::{
    mount::{MountPropagationFlags, mount_bind, mount_change},
    process::{self, Pid, Signal, WaitOptions, WaitStatus},
    thread::{self as threads, UnshareFlags},
};

use crate::leftovers;

/// The first argument that makes a program a shim. A program that embeds the node calls [`main`] when it sees it.
pub const ARGUMENT: &str = "__pod-shim";

/// Asks the container's process group to end.
pub(crate) const TERMINATE: u8 = b'T';

/// This very program, even if its file has been replaced.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// Runs the rest of the arguments as a container, and returns when its whole tree is gone. The first is its hosts file;
/// empty for the machine's.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    let outcome = match arguments.next_if(|first| first == "become") {
        Some(_) => become_container(arguments).map_err(|error| error.to_string()),
        None => hold(arguments).map_err(|error| format!("failed {error}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            report(&why);
            ExitCode::FAILURE
        }
    }
}

/// The agent may be gone; then nobody reads it.
fn report(line: &str) {
    drop(writeln!(io::stdout(), "{line}"));
}

fn hold(command: impl Iterator<Item = OsString>) -> io::Result<()> {
    process::set_child_subreaper(Some(process::getpid()))?;
    let mut container = Command::new(THIS_PROGRAM)
        .args([ARGUMENT, "become", &std::process::id().to_string()])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let first = Pid::from_child(&container);
    thread::spawn(move || obey(first));
    // Its pipe is closed by the exec that succeeds; one that failed says why.
    let mut failure = String::new();
    if let Some(mut said) = container.stdout.take() {
        said.read_to_string(&mut failure)?;
    }
    if failure.is_empty() {
        report(&format!("started {first}"));
    } else {
        return Err(io::Error::other(failure.trim_end()));
    }
    let end = wait_for(first)?;
    sweep();
    report(&match (end.exit_status(), end.terminating_signal()) {
        (Some(code), _) => format!("exited {code}"),
        (None, signal) => format!("signalled {}", signal.unwrap_or_default()),
    });
    Ok(())
}

/// Does what the agent says until it is gone.
fn obey(group: Pid) {
    let mut input = io::stdin().lock();
    let mut order = [0];
    while input.read(&mut order).is_ok_and(|count| count > 0) {
        if order[0] == TERMINATE {
            let _ = process::kill_process_group(group, Signal::TERM);
        }
    }
    let _ = process::kill_process_group(group, Signal::KILL);
}

/// Reaps whoever ends until it is the container's first process.
fn wait_for(first: Pid) -> io::Result<WaitStatus> {
    loop {
        if let Some((pid, status)) = process::wait(WaitOptions::empty())?
            && pid == first
        {
            return Ok(status);
        }
    }
}

/// Kills what is left, and what becomes ours because its parent was killed, until there is nothing.
fn sweep() {
    let me = process::getpid();
    loop {
        for child in leftovers::children(me) {
            let _ = process::kill_process(child, Signal::KILL);
        }
        if process::wait(WaitOptions::empty()).is_err() {
            return;
        }
    }
}

/// In the child: dies with the shim, then turns into the container.
fn become_container(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let shim = arguments.next().and_then(|pid| pid.into_string().ok()).and_then(|pid| pid.parse().ok());
    if let Some(hosts) = arguments.next().filter(|hosts| !hosts.is_empty()) {
        see_as_hosts(&hosts).map_err(|error| io::Error::other(format!("cannot mount its hosts: {error}")))?;
    }
    process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if shim != Some(parent_id()) {
        // The shim ended before the signal was set.
        return Ok(());
    }
    let program = arguments.next().ok_or_else(|| io::Error::other("no command"))?;
    // Closed by an exec that succeeds.
    let mut shim = std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    let error = Command::new(&program).args(arguments).stdout(output).exec();
    write!(shim, "cannot run {}: {error}", program.to_string_lossy())
}

/// Puts a file over /etc/hosts for this process and what it turns into. Mounts of the machine still come in; this one
/// does not go out.
fn see_as_hosts(hosts: &OsStr) -> io::Result<()> {
    let (user, group) = (process::getuid(), process::getgid());
    if unshare(UnshareFlags::NEWNS).is_err() {
        // Who may not mount may do so as the owner of a user namespace, in which only he is.
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    Ok(mount_bind(hosts, "/etc/hosts")?)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of file descriptors, which stay shared here"
)]
fn unshare(what: UnshareFlags) -> io::Result<()> {
    Ok(threads::unshare(what)?)
}
