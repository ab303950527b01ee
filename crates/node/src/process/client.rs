//! The agent's side of a shim: it starts a program and reads the shim's reports.
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::process::shim;

/// The program that is started as the shim; see [`shim`].
#[derive(Debug, Clone)]
pub struct Shim {
    pub program: PathBuf,
}

impl Default for Shim {
    fn default() -> Self {
        Self { program: shim::THIS_PROGRAM.into() }
    }
}

/// A process to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// The file that it sees as /etc/hosts, if not the machine's.
    pub hosts: Option<PathBuf>,
    pub network: Network,
}

/// The network of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Network {
    /// That of the machine.
    #[default]
    Machine,
    /// A new one, without an address.
    Own,
    /// That of a pod.
    Pod {
        /// Where the kernel shows it.
        path: String,
        /// The file that the program sees as /etc/resolv.conf.
        resolver: PathBuf,
    },
}

impl Network {
    fn arguments(&self) -> [&OsStr; 2] {
        match self {
            Self::Machine => [OsStr::new(""); 2],
            Self::Own => [OsStr::new(shim::OWN_NETWORK), OsStr::new("")],
            Self::Pod { path, resolver } => [OsStr::new(path), resolver.as_os_str()],
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Exited(i32),
    Signalled(i32),
    /// The program could not be started: the system's error.
    NotStarted(String),
    /// The shim was killed; processes of the tree may be left.
    Lost,
}

/// A program under a shim. Dropping it kills the whole tree.
#[derive(Debug)]
pub(crate) struct Running {
    shim: Child,
    orders: Option<ChildStdin>,
    report: Lines<BufReader<ChildStdout>>,
    /// The exit status, once the shim has reported it.
    end: Option<ExitStatus>,
}

impl Shim {
    pub(crate) fn start(&self, program: &Program) -> io::Result<(Running, ChildStderr)> {
        let mut shim = Command::new(&self.program)
            .arg(shim::ARGUMENT)
            .arg(program.hosts.as_deref().unwrap_or_else(|| Path::new("")))
            .args(program.network.arguments())
            .args(&program.command)
            .env_clear()
            .envs(&program.environment)
            .current_dir(&program.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on a terminal is the agent's: it ends its pods in order.
            .process_group(0)
            .spawn()?;
        let missing = || io::Error::other("the shim has no pipes");
        let (Some(report), Some(output)) = (shim.stdout.take(), shim.stderr.take()) else {
            return Err(missing());
        };
        let orders = shim.stdin.take();
        Ok((Running { shim, orders, report: BufReader::new(report).lines(), end: None }, output))
    }

    /// Returns an error with the cause if this machine does not let a program have a hosts file of its own.
    pub(crate) async fn try_hosts(&self, hosts: &Path) -> Result<(), String> {
        let program = Program {
            command: [shim::THIS_PROGRAM, "--version"].map(str::to_owned).into(),
            environment: BTreeMap::new(),
            directory: "/".into(),
            hosts: Some(hosts.to_owned()),
            network: Network::Machine,
        };
        let (mut running, _output) = self.start(&program).map_err(|error| error.to_string())?;
        running.started().await.map(drop).map_err(|end| match end {
            ExitStatus::NotStarted(why) => why,
            other => format!("{other:?}"),
        })
    }
}

impl Running {
    /// Waits until the program runs, and returns its process id. The error is its exit status if it never ran.
    pub async fn started(&mut self) -> Result<u32, ExitStatus> {
        let Ok(Some(line)) = self.report.next_line().await else { return Err(ExitStatus::Lost) };
        let process = line.strip_prefix("started ").and_then(|process| process.parse().ok());
        process.ok_or_else(|| read_report(&line).unwrap_or(ExitStatus::Lost))
    }

    /// Waits for the exit status. Cancel safe.
    pub async fn ended(&mut self) -> ExitStatus {
        while self.end.is_none() {
            let Ok(Some(line)) = self.report.next_line().await else { return ExitStatus::Lost };
            self.end = read_report(&line);
        }
        drop(self.shim.wait().await);
        self.end.clone().unwrap_or(ExitStatus::Lost)
    }

    pub async fn terminate(&mut self) {
        if let Some(orders) = &mut self.orders {
            // A shim that is gone has nothing left to end.
            drop(orders.write_all(&[shim::TERMINATE]).await);
        }
    }

    pub fn kill(&mut self) {
        self.orders = None;
    }
}

fn read_report(line: &str) -> Option<ExitStatus> {
    match line.split_once(' ')? {
        ("exited", code) => code.parse().ok().map(ExitStatus::Exited),
        ("signalled", signal) => signal.parse().ok().map(ExitStatus::Signalled),
        ("failed", why) => Some(ExitStatus::NotStarted(why.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    #[tokio::test]
    async fn an_end_that_nobody_waited_for_long_enough_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        // A shim that has reported the exit and then waits for its input to close: the shell runs the argument
        // as a script.
        let program = "/bin/sh".into();
        fs::write(directory.path().join(shim::ARGUMENT), "echo started 1\necho exited 3\nread order\n")
            .unwrap();
        let nothing = Program {
            command: Vec::new(),
            environment: BTreeMap::new(),
            directory: directory.path().to_owned(),
            hosts: None,
            network: Network::Machine,
        };
        let (mut running, _output) = Shim { program }.start(&nothing).unwrap();
        running.started().await.unwrap();
        let interrupted = tokio::time::timeout(Duration::from_millis(200), running.ended()).await;
        assert!(interrupted.is_err(), "it is still there");
        running.kill();
        assert_eq!(running.ended().await, ExitStatus::Exited(3));
    }

    #[test]
    fn a_report_is_read_and_a_start_is_no_end() {
        assert_eq!(read_report("exited 3"), Some(ExitStatus::Exited(3)));
        assert_eq!(read_report("signalled 9"), Some(ExitStatus::Signalled(9)));
        assert_eq!(
            read_report("failed cannot run x: No such file"),
            Some(ExitStatus::NotStarted("cannot run x: No such file".to_owned()))
        );
        assert_eq!(read_report("started 17"), None);
    }
}
