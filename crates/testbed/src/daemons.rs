//! The processes of one cluster and the directory they live in. Both end with the test process, however it ends.
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    panic,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use crate::Error;

/// A directory with `state` (keys and data), `logs`, and one file in `running` for each supervisor.
#[derive(Debug)]
pub(crate) struct Daemons {
    directory: PathBuf,
    daemons: Vec<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    name: &'static str,
    /// The process itself.
    id: u32,
    /// The shell that ends it when our end of the shell's standard input closes.
    supervisor: Child,
}

impl Daemons {
    /// An empty directory that only we can enter.
    pub(crate) fn new() -> Result<Self, Error> {
        let directory = tempfile::Builder::new()
            .prefix("segue-control-plane-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(Error::io("create a directory for the control plane"))?;
        for folder in ["state", "logs", "running"] {
            fs::create_dir(directory.path().join(folder)).map_err(Error::io(format!("create {folder}")))?;
        }
        // From here on it is removed by Drop, or by the last supervisor.
        Ok(Self { directory: directory.keep(), daemons: Vec::new() })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Keys and data: removed in every case.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Every process, the supervisors too.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.daemons.iter().flat_map(|daemon| [daemon.id, daemon.supervisor.id()]).collect()
    }

    /// The processes of these names.
    pub(crate) fn named(&self, names: &[&str]) -> Vec<u32> {
        self.daemons.iter().filter(|daemon| names.contains(&daemon.name)).map(|daemon| daemon.id).collect()
    }

    /// Starts `program`; what it says goes to `logs/<name>.log`.
    pub(crate) fn spawn<A: AsRef<OsStr>>(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), Error> {
        let failed = || Error::io(format!("start {name}"));
        File::create(self.directory.join("running").join(name)).map_err(failed())?;
        let mut supervisor = Command::new("sh")
            .args(["-c", include_str!("supervise.sh"), "supervise"])
            .arg(&self.directory)
            .arg(name)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Out of reach of an interrupt from the terminal, which would end the shell before its work is done.
            .process_group(0)
            .spawn()
            .map_err(failed())?;
        let id = first_line(&mut supervisor).map_err(failed());
        self.daemons.push(Daemon { name, id: *id.as_ref().unwrap_or(&0), supervisor });
        id.map(|_| ())
    }

    /// An error if one of them has ended by itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for Daemon { name, .. } in &self.daemons {
            if let Ok(status) = fs::read_to_string(self.state().join(format!("{name}.exit"))) {
                let log = self.directory.join("logs").join(format!("{name}.log"));
                return Err(Error::Ended { name, status: status.trim().to_owned(), log });
            }
        }
        Ok(())
    }

    /// The logs outlive the processes.
    pub(crate) fn keep_logs(&self) {
        keep_logs(&self.directory);
    }

    /// For a static, which is never dropped: a panic has to leave its mark while it happens.
    pub(crate) fn keep_logs_on_any_panic(&self) {
        let directory = self.directory.clone();
        let next = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            next(info);
            keep_logs(&directory);
        }));
    }
}

/// Marks a directory so that its logs stay, and says so the first time.
fn keep_logs(directory: &Path) {
    if File::create_new(directory.join("keep")).is_ok() {
        eprintln!("the logs of the control plane are kept in {}", directory.join("logs").display());
    }
}

/// The supervisor's first words: the process number of the daemon.
fn first_line(supervisor: &mut Child) -> io::Result<u32> {
    let mut line = String::new();
    if let Some(stdout) = supervisor.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    line.trim().parse().map_err(io::Error::other)
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if thread::panicking() {
            self.keep_logs();
        }
        // Close every pipe before waiting, so that they end side by side.
        for daemon in &mut self.daemons {
            drop(daemon.supervisor.stdin.take());
        }
        for daemon in &mut self.daemons {
            // Nobody can be told, and there is nothing else to try.
            let _ = daemon.supervisor.wait();
        }
        if self.daemons.is_empty() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::eventually;

    const SOON: Duration = Duration::from_secs(10);

    fn sh() -> &'static Path {
        Path::new("/bin/sh")
    }

    fn sleepers() -> Daemons {
        let mut daemons = Daemons::new().unwrap();
        for name in ["one", "two"] {
            daemons.spawn(name, sh(), ["-c", "echo awake; exec sleep 600"]).unwrap();
        }
        daemons
    }

    fn alive(id: u32) -> bool {
        Command::new("kill").args(["-0", &id.to_string()]).stderr(Stdio::null()).status().unwrap().success()
    }

    #[test]
    fn dropping_ends_every_process_and_removes_the_directory() {
        let daemons = sleepers();
        let (directory, processes) = (daemons.directory().to_owned(), daemons.processes());
        assert_eq!(processes.len(), 4);
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(processes.iter().all(|id| alive(*id)));
        drop(daemons);
        assert!(!directory.exists());
        assert!(!processes.iter().any(|id| alive(*id)));
    }

    #[test]
    fn a_panic_keeps_the_logs_and_nothing_else() {
        let daemons = sleepers();
        let directory = daemons.directory().to_owned();
        fs::write(daemons.state().join("secret"), "").unwrap();
        let processes = daemons.processes();
        panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _daemons = daemons;
            panic!("on purpose");
        }))
        .unwrap_err();
        assert!(!processes.iter().any(|id| alive(*id)));
        assert!(directory.join("logs/one.log").is_file());
        assert!(!directory.join("state").exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_panic_elsewhere_keeps_the_logs_of_a_shared_cluster() {
        let daemons = sleepers();
        let directory = daemons.directory().to_owned();
        daemons.keep_logs_on_any_panic();
        thread::spawn(|| panic!("on purpose")).join().unwrap_err();
        drop(daemons);
        assert!(directory.join("logs/one.log").is_file());
        assert!(!directory.join("state").exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_daemon_that_ends_by_itself_is_reported_with_its_log() {
        let mut daemons = Daemons::new().unwrap();
        daemons.spawn("brief", sh(), ["-c", "echo cannot >&2; exit 3"]).unwrap();
        let ended = eventually("the end", SOON, async || daemons.check().err()).await.unwrap();
        let Error::Ended { name: "brief", status, log } = ended else { panic!("{ended}") };
        assert_eq!((status.as_str(), fs::read_to_string(log).unwrap().as_str()), ("3", "cannot\n"));
        let directory = daemons.directory().to_owned();
        drop(daemons);
        assert!(!directory.exists());
    }

    #[test]
    fn an_unused_directory_is_removed() {
        let directory = Daemons::new().unwrap().directory().to_owned();
        assert!(!directory.exists());
    }
}
