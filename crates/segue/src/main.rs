//! The command line: it reads what a person wants, calls the crate that knows, and prints the answer.

mod crds;
mod demo;
mod doors;
mod furnish;
mod log;
mod machine;
mod manifest;
mod manifests;
mod model_server;
mod node_logs;
mod numbers;
mod operator;
mod others;
mod output;
mod outside;
mod plan;
mod selection;
mod signals;
mod up;
mod validate;
mod verbs;
mod webhook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Hands live model-serving traffic from one version to the next without dropping it.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "Exit codes: 0 done, 1 refused (the answer is no), 2 it could not be asked."
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
    Retry(verbs::rollout::retry::Args),
    /// Hold an update where it is
    Pause(verbs::rollout::hold::Args),
    /// Let an update go on that was held
    Resume(verbs::rollout::hold::Args),
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
    let answer = match Cli::parse().command {
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
        Command::Retry(args) => verbs::rollout::retry::run(&args),
        Command::Pause(args) => verbs::rollout::hold::pause(&args),
        Command::Resume(args) => verbs::rollout::hold::resume(&args),
        Command::Adopt(args) => verbs::adopt::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::ModelServer(args) => model_server::run(&args),
    };
    match answer {
        Ok(output::Answer::Yes) => ExitCode::SUCCESS,
        Ok(output::Answer::No) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
