//! The shim as a program of its own, for tests: `segue` carries it under the same argument.
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == node::shim::ARGUMENT) {
        node::shim::main(arguments)
    } else {
        ExitCode::FAILURE
    }
}
