//! Campaigns: the controllers under every fault, in virtual time.
use std::process::ExitCode;

use testbed::campaign::{Workload, campaign, workloads};

const HELP: &str =
    "Usage: testbed campaign --kind lws|modelserving|modeldeployment|raycluster [--seeds N] [--from SEED] [--only WORKLOAD] [--no-singles] [-o json]

Runs every workload of a kind without a fault, with every single fault, and with N random plans each.
Exit codes: 0 every promise was kept, 1 one was broken, 2 the arguments are wrong.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let stories = workloads(&value("--kind").unwrap_or_default());
    if arguments.first().map(String::as_str) != Some("campaign") || stories.is_empty() {
        eprintln!("{HELP}");
        return ExitCode::from(2);
    }
    let (from, seeds) = (number("--from").max(1), number("--seeds"));
    let singles = !arguments.iter().any(|argument| argument == "--no-singles");
    let only = value("--only");
    let stories: Vec<Workload> =
        stories.into_iter().filter(|story| only.as_ref().is_none_or(|only| story.name == only)).collect();
    let report = campaign(&stories, singles, &(from..from + seeds));
    if value("-o").as_deref() == Some("json") {
        println!("{}", report.json());
    } else {
        println!("{:#}", report.json());
    }
    ExitCode::from(u8::from(!report.is_clean()))
}
