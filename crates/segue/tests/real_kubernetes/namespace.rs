//! A network of our own. kube-apiserver refuses endpoints in 127.0.0.0/8, so pods need other addresses, and every
//! process that reaches them has to be where those are. So the whole suite runs again in a network namespace.

use std::{
    env,
    io::Write,
    process::{Command, Stdio},
    sync::OnceLock,
};

use testbed::Binaries;

use crate::site::Site;

/// Set where the suite runs in its own network.
const INSIDE: &str = "SEGUE_TEST_INSIDE";

/// Every address of 10.0.0.0/8 is this machine: pods and Services. There is no way out.
const SCRIPT: &str = r#"ip link set lo up && ip route add local 10.0.0.0/8 dev lo && exec "$@""#;

/// Runs a test where pods have addresses. `name` is its own.
pub fn inside(name: &str, test: impl AsyncFnOnce(&'static Site)) {
    static SAID: OnceLock<String> = OnceLock::new();
    if env::var_os(INSIDE).is_some() {
        let site = Site::shared();
        site.runtime.block_on(test(site));
        return;
    }
    let said = SAID.get_or_init(run_again);
    assert!(said.lines().any(|line| line == format!("test {name} ... ok")), "{said}");
}

/// The same tests, once more, side by side; what they said.
fn run_again() -> String {
    // While there is a way out.
    Binaries::locate().unwrap();
    testbed::traefik().unwrap();
    // It goes with us, however we go.
    let output = Command::new("setpriv")
        .args(["--pdeathsig=KILL", "unshare", "--net", "sh", "-c", SCRIPT, "sh"])
        .arg(env::current_exe().unwrap())
        .args(env::args_os().skip(1))
        .arg("--test-threads=16")
        .env(INSIDE, "1")
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("setpriv and unshare of util-linux are needed: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("running "),
        "a network namespace could not be made: it takes root (CAP_SYS_ADMIN, CAP_NET_ADMIN), unshare and ip"
    );
    said
}

/// Speaks past the test harness, which would keep figures to itself unless a test fails.
pub fn say(line: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}
