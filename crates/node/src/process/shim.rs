//! The process between the agent and a container, which ends with its whole process tree.
//!
//! The agent starts its own program again with [`ARGUMENT`]. That shim starts the container in a process group of its
//! own and reads its standard input: `T` asks the group to end, the end of the input kills it. So however the agent
//! ends, `kill -9` included, the kernel closes the pipe and the container goes. Should the shim itself be killed, the
//! container's first process dies with it (`PR_SET_PDEATHSIG`); the agent finds the rest by their mark
//! ([`crate::process::orphans`]). A process that leaves the group is still a child of the shim, which is the
//! reaper of its tree, and is killed when the container's first process has ended, as a container's are.
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
    thread::{self as threads, LinkNameSpaceType, UnshareFlags},
};

use crate::process::orphans;

/// The first argument that makes a program a shim. A program that embeds the node calls [`main`] when it sees it.
pub const ARGUMENT: &str = "__pod-shim";

/// In the place of a network's path: the container gets a new one.
pub(crate) const OWN_NETWORK: &str = "new";

/// Asks the container's process group to end.
pub(crate) const TERMINATE: u8 = b'T';

/// The program that is running, even if its file has been replaced.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// Runs the rest of the arguments as a container, and returns when its whole tree is gone. The first is its
/// hosts file, then come the path of its network and the file for its resolver; empty for those of the machine.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    let outcome = match arguments.next_if(|first| first == "become") {
        Some(_) => become_container(arguments).map_err(|error| error.to_string()),
        None => run_container(arguments).map_err(|error| format!("failed {error}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            report(&why);
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to the agent. The error of a closed pipe is ignored: the agent is gone.
fn report(line: &str) {
    drop(writeln!(io::stdout(), "{line}"));
}

fn run_container(command: impl Iterator<Item = OsString>) -> io::Result<()> {
    process::set_child_subreaper(Some(process::getpid()))?;
    let mut container = Command::new(THIS_PROGRAM)
        .args([ARGUMENT, "become", &std::process::id().to_string()])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let first = Pid::from_child(&container);
    thread::spawn(move || read_orders(first));
    // An exec that succeeds closes the pipe; one that fails writes its error into it.
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
    kill_descendants();
    report(&match (end.exit_status(), end.terminating_signal()) {
        (Some(code), _) => format!("exited {code}"),
        (None, signal) => format!("signalled {}", signal.unwrap_or_default()),
    });
    Ok(())
}

/// Reads the agent's orders; kills the group when the pipe is closed.
fn read_orders(group: Pid) {
    let mut input = io::stdin().lock();
    let mut order = [0];
    while input.read(&mut order).is_ok_and(|count| count > 0) {
        if order[0] == TERMINATE {
            let _ = process::kill_process_group(group, Signal::TERM);
        }
    }
    let _ = process::kill_process_group(group, Signal::KILL);
}

/// Reaps child processes until the container's first process has ended.
fn wait_for(first: Pid) -> io::Result<WaitStatus> {
    loop {
        if let Some((pid, status)) = process::wait(WaitOptions::empty())?
            && pid == first
        {
            return Ok(status);
        }
    }
}

/// Kills all child processes, also those that are inherited because their parent was killed, until none is left.
fn kill_descendants() {
    let me = process::getpid();
    loop {
        for child in orphans::children(me) {
            let _ = process::kill_process(child, Signal::KILL);
        }
        if process::wait(WaitOptions::empty()).is_err() {
            return;
        }
    }
}

/// In the child: sets the signal that kills it with the shim, then executes the container's program.
fn become_container(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let shim = arguments.next().and_then(|pid| pid.into_string().ok()).and_then(|pid| pid.parse().ok());
    if let Some(hosts) = arguments.next().filter(|hosts| !hosts.is_empty()) {
        mount(&hosts, "/etc/hosts")
            .map_err(|error| io::Error::other(format!("cannot mount its hosts: {error}")))?;
    }
    if let Some(network) = arguments.next().filter(|network| !network.is_empty()) {
        enter_network(&network)
            .map_err(|error| io::Error::other(format!("cannot enter its network: {error}")))?;
    }
    if let Some(resolver) = arguments.next().filter(|resolver| !resolver.is_empty()) {
        mount(&resolver, "/etc/resolv.conf")
            .map_err(|error| io::Error::other(format!("cannot mount its resolver: {error}")))?;
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

/// Mounts a file over another for this process and its children. Later mounts of the machine are seen here;
/// this mount is not seen elsewhere.
fn mount(file: &OsStr, over: &str) -> io::Result<()> {
    let (user, group) = (process::getuid(), process::getgid());
    if unshare(UnshareFlags::NEWNS).is_err() {
        // Without the right to mount, a user namespace of its own gives it.
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    Ok(mount_bind(file, over)?)
}

/// Moves this process, and with it its children, into a network.
fn enter_network(network: &OsStr) -> io::Result<()> {
    if network == OWN_NETWORK {
        return unshare(UnshareFlags::NEWNET);
    }
    let network = fs::File::open(network)?;
    Ok(threads::move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of file descriptors, which stay shared here"
)]
fn unshare(what: UnshareFlags) -> io::Result<()> {
    Ok(threads::unshare(what)?)
}
