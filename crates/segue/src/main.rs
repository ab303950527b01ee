//! The command line: it reads what a person wants, calls the crate that knows, and prints the answer.

mod admission;
mod crds;
mod demo;
mod embedded;
mod logging;
mod manifest;
mod manifests;
mod model_server;
mod operator;
mod output;
mod plan;
#[cfg(test)]
mod sentences;
mod signals;
/// A kind that has what every kind has. The tests of the controllers run it.
#[cfg(test)]
#[path = "../../controllers/tests/toy/note/mod.rs"]
mod toy;
mod up;
mod validate;
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use controllers::request;

/// Hands live model-serving traffic from one version to the next without dropping it.
#[derive(Parser)]
#[command(
    version,
    about,
    max_term_width = 120,
    after_help = "Examples:\n  segue demo\n  segue up\n  segue apply -f service.yaml\n  segue why modeldeployment/chat\n\n\
                  Exit codes: 0 done, 1 refused, 2 failed (wrong arguments, or no answer from the API)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Up(up::Args),
    Operator(operator::Args),
    Apply(verbs::apply::Args),
    Get(verbs::get::Args),
    Logs(verbs::logs::Args),
    Delete(verbs::delete::Args),
    Why(verbs::why::Args),
    History(verbs::rollout::history::Args),
    Undo(verbs::rollout::undo::Args),
    Restart(verbs::rollout::restart::Args),
    /// End the pause of a rollout
    Promote(verbs::rollout::request::Args),
    /// Take a rollout back, and keep its version from being tried again
    Abort(verbs::rollout::request::Args),
    /// Try a failed or aborted rollout, or failed groups, again
    Retry(verbs::rollout::request::Args),
    /// Pause the rollout of an object
    #[command(after_help = verbs::rollout::pause::pause_help())]
    Pause(verbs::rollout::pause::Args),
    /// Resume a paused rollout
    #[command(after_help = verbs::rollout::pause::resume_help())]
    Resume(verbs::rollout::pause::Args),
    Adopt(verbs::adopt::Args),
    Plan(plan::Args),
    Validate(validate::Args),
    Crds(crds::Args),
    Manifests(manifests::Args),
    ModelServer(model_server::Args),
}

fn main() -> ExitCode {
    // A container's shim is this program again; it must not start a runtime or read other arguments.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == node::shim::ARGUMENT) {
        return node::shim::main(arguments);
    }
    match run(Cli::parse().command) {
        Ok(output::Answer::Yes) => ExitCode::SUCCESS,
        Ok(output::Answer::No) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<output::Answer, output::Error> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Operator(args) => operator::run(&args),
        Command::Apply(args) => verbs::apply::run(&args),
        Command::Get(args) => verbs::get::run(&args),
        Command::Logs(args) => verbs::logs::run(&args),
        Command::Delete(args) => verbs::delete::run(&args),
        Command::Why(args) => verbs::why::run(&args),
        Command::History(args) => verbs::rollout::history::run(&args),
        Command::Undo(args) => verbs::rollout::undo::run(&args),
        Command::Restart(args) => verbs::rollout::restart::run(&args),
        Command::Promote(args) => verbs::rollout::request::run(request::verbs::PROMOTE, &args),
        Command::Abort(args) => verbs::rollout::request::run(request::verbs::ABORT, &args),
        Command::Retry(args) => verbs::rollout::request::run(request::verbs::RETRY, &args),
        Command::Pause(args) => verbs::rollout::pause::pause(&args),
        Command::Resume(args) => verbs::rollout::pause::resume(&args),
        Command::Adopt(args) => verbs::adopt::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::ModelServer(args) => model_server::run(&args),
    }
}
