//! The agent's side of a shim: starts a program, hears how it ended.
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::shim;

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

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// What it sees as /etc/hosts, if not the machine's.
    pub hosts: Option<PathBuf>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    /// It never ran: the words of the system.
    NotStarted(String),
    /// The shim was killed; processes may be left.
    Lost,
}

/// A program under a shim. Dropping it kills the whole tree.
#[derive(Debug)]
pub(crate) struct Running {
    shim: Child,
    orders: Option<ChildStdin>,
    report: Lines<BufReader<ChildStdout>>,
    /// What the report said, for whoever waits again.
    end: Option<End>,
}

impl Shim {
    pub(crate) fn start(&self, program: &Program) -> io::Result<(Running, ChildStderr)> {
        let mut shim = Command::new(&self.program)
            .arg(shim::ARGUMENT)
            .arg(program.hosts.as_deref().unwrap_or_else(|| Path::new("")))
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

    /// Whether this machine lets a program have a hosts file of its own; if not, why.
    pub(crate) async fn try_hosts(&self, hosts: &Path) -> Result<(), String> {
        let program = Program {
            command: [shim::THIS_PROGRAM, "--version"].map(str::to_owned).into(),
            environment: BTreeMap::new(),
            directory: "/".into(),
            hosts: Some(hosts.to_owned()),
        };
        let (mut running, _output) = self.start(&program).map_err(|error| error.to_string())?;
        running.started().await.map_err(|end| match end {
            End::NotStarted(why) => why,
            other => format!("{other:?}"),
        })
    }
}

impl Running {
    /// Waits until it runs; how it ended if it never did.
    pub async fn started(&mut self) -> Result<(), End> {
        match self.report.next_line().await {
            Ok(Some(line)) if line.starts_with("started ") => Ok(()),
            Ok(Some(line)) => Err(read_report(&line).unwrap_or(End::Lost)),
            Ok(None) | Err(_) => Err(End::Lost),
        }
    }

    /// Waits for the end. May be dropped and called again.
    pub async fn ended(&mut self) -> End {
        while self.end.is_none() {
            let Ok(Some(line)) = self.report.next_line().await else { return End::Lost };
            self.end = read_report(&line);
        }
        drop(self.shim.wait().await);
        self.end.clone().unwrap_or(End::Lost)
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

fn read_report(line: &str) -> Option<End> {
    match line.split_once(' ')? {
        ("exited", code) => code.parse().ok().map(End::Exited),
        ("signalled", signal) => signal.parse().ok().map(End::Signalled),
        ("failed", why) => Some(End::NotStarted(why.to_owned())),
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
        // A shim that has told the end, and is gone when it is let go: the shell takes the argument for a script.
        let program = "/bin/sh".into();
        fs::write(directory.path().join(shim::ARGUMENT), "echo started 1\necho exited 3\nread order\n")
            .unwrap();
        let nothing = Program {
            command: Vec::new(),
            environment: BTreeMap::new(),
            directory: directory.path().to_owned(),
            hosts: None,
        };
        let (mut running, _output) = Shim { program }.start(&nothing).unwrap();
        running.started().await.unwrap();
        let interrupted = tokio::time::timeout(Duration::from_millis(200), running.ended()).await;
        assert!(interrupted.is_err(), "it is still there");
        running.kill();
        assert_eq!(running.ended().await, End::Exited(3));
    }

    #[test]
    fn a_report_is_read_and_a_start_is_no_end() {
        assert_eq!(read_report("exited 3"), Some(End::Exited(3)));
        assert_eq!(read_report("signalled 9"), Some(End::Signalled(9)));
        assert_eq!(
            read_report("failed cannot run x: No such file"),
            Some(End::NotStarted("cannot run x: No such file".to_owned()))
        );
        assert_eq!(read_report("started 17"), None);
    }
}
