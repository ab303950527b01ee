//! A network of our own. kube-apiserver refuses endpoints in 127.0.0.0/8, so pods need other addresses, and every
//! process that reaches them has to be where those are. So the whole suite runs again in a network namespace.

use std::{
    env,
    io::Write,
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use testbed::Binaries;

use crate::site::{Operator, Site};

/// Set where the suite runs in its own network: how the operator fares there.
const INSIDE: &str = "SEGUE_TEST_INSIDE";

/// Every address of 10.0.0.0/8 is this machine: pods and Services. There is no way out.
const SCRIPT: &str = r#"ip link set lo up && ip route add local 10.0.0.0/8 dev lo && exec "$@""#;

/// What the tests said in each of the networks.
struct Said {
    steady: String,
    killed: String,
}

/// Runs a test where pods have addresses. `name` is its own.
pub fn inside(name: &str, operator: Operator, test: impl AsyncFnOnce(&'static Site)) {
    static SAID: OnceLock<Said> = OnceLock::new();
    if let Ok(here) = env::var(INSIDE) {
        if here == format!("{operator:?}") {
            let site = Site::shared(operator);
            site.runtime.block_on(test(site));
        }
        return;
    }
    let said = SAID.get_or_init(run_again);
    let said = match operator {
        Operator::Steady => &said.steady,
        Operator::Killed => &said.killed,
    };
    assert!(said.lines().any(|line| line == format!("test {name} ... ok")), "{said}");
}

/// The same tests, once more, side by side.
fn run_again() -> Said {
    // While there is a way out.
    Binaries::locate().unwrap();
    testbed::traefik().unwrap();
    let [steady, killed] = [Operator::Steady, Operator::Killed].map(enter);
    Said { steady: hear(steady), killed: hear(killed) }
}

/// Starts this program in a network of its own. It goes with us, however we go.
fn enter(operator: Operator) -> Child {
    Command::new("setpriv")
        .args(["--pdeathsig=KILL", "unshare", "--net", "sh", "-c", SCRIPT, "sh"])
        .arg(env::current_exe().unwrap())
        .args(env::args_os().skip(1))
        .arg("--test-threads=16")
        .env(INSIDE, format!("{operator:?}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("setpriv and unshare of util-linux are needed: {error}"))
}

fn hear(tests: Child) -> String {
    let output = tests.wait_with_output().unwrap();
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
