//! A `segue up` of one test.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use testbed::eventually;

/// A `segue up` and its directory; both end with it.
pub struct Up {
    pub directory: TempDir,
    child: Child,
    arguments: &'static [&'static str],
}

impl Up {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with more arguments.
    pub fn start_with(arguments: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = begin(&directory.path().join("state"), arguments);
        Self { directory, child, arguments }
    }

    /// Ends it without a word, as a machine that loses power does to one process, and starts it again on what is left.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = begin(&self.directory.path().join("state"), self.arguments);
    }

    /// Tells it to end, as Ctrl-C does, and waits until it has.
    pub fn interrupt(&mut self) -> ExitStatus {
        super::interrupt(&self.child);
        self.child.wait().unwrap()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("state/kubeconfig")
    }

    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        // The library takes one from the environment, for loopback too.
        config.proxy_url = None;
        Client::try_from(config).unwrap()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).current_dir(super::root());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What a command says that must succeed.
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", super::stderr(&output));
        super::stdout(&output)
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub async fn see(&self, what: &str, arguments: &[&str], sees: impl Fn(&str) -> bool) {
        eventually(what, Duration::from_mins(1), async || sees(&self.says(arguments)).then_some(()))
            .await
            .unwrap_or_else(|late| panic!("{late}: {}", self.says(arguments)));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // One that has ended has given its number to others.
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status());
            drop(self.child.wait());
        }
    }
}

/// Starts one, and returns when it answers.
fn begin(state: &Path, arguments: &[&str]) -> Child {
    // Examples say `segue` and mean this one.
    let here = Path::new(env!("CARGO_BIN_EXE_segue")).parent().unwrap();
    let machine = std::env::var("PATH").unwrap_or_default();
    // Where Ray is, its Python must come before that of the machine.
    let ray = std::env::split_paths(&machine).find(|directory| directory.join("ray").is_file());
    let first = [here.to_owned()].into_iter().chain(ray);
    let path = std::env::join_paths(first.chain(std::env::split_paths(&machine))).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .env("PATH", path)
        .args(["up", "-o", "json", "--directory"])
        .arg(state)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("kubeconfig"), "{line}");
    child
}
