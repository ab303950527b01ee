use clap::Args as ClapArgs;
use serde_json::json;

use super::{
    client::{Ask, Cluster, Reach, step, with_query},
    failure::Failure,
};
use crate::output::{self, Answer, Error, Format};

/// Print what a pod's container writes.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue logs web
  segue logs web -c sidecar --tail 20
  segue logs web -f
  segue logs web --previous

Exit code 1 when there is no such pod or container, or no output yet; 2 when the API could not be asked.")]
pub(crate) struct Args {
    /// The pod; pod/NAME is understood too
    #[arg(value_name = "POD")]
    pod: String,
    /// The container, if the pod has several
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Go on until the container ends
    #[arg(short, long)]
    follow: bool,
    /// The last lines only
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// The run before this one
    #[arg(short, long)]
    previous: bool,
    /// As it is, or as one JSON object per line
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(logs(args))
}

async fn logs(args: &Args) -> Result<Answer, Failure> {
    let cluster = Cluster::reach(&args.reach).await?;
    let pod =
        ["pod/", "pods/", "po/"].iter().find_map(|kind| args.pod.strip_prefix(kind)).unwrap_or(&args.pod);
    let flag = |on: bool| if on { "true" } else { "" };
    let tail = args.tail.map(|lines| lines.to_string()).unwrap_or_default();
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", step(&cluster.namespace), step(pod));
    let parameters = [
        ("container", args.container.as_deref().unwrap_or_default()),
        ("follow", flag(args.follow)),
        ("tailLines", &tail),
        ("previous", flag(args.previous)),
    ];
    let answered = cluster.follow(Ask::get(with_query(&path, &parameters))).await;
    let mut output = answered.map_err(|failure| with_advice(failure, pod))?;
    if args.output == Format::Table {
        // As it comes, wherever lines end.
        while let Some(piece) = output.piece().await? {
            if !output::pass_on(&piece)? {
                break;
            }
        }
        return Ok(Answer::Yes);
    }
    while let Some(line) = output.line().await? {
        let line = json!({"pod": pod, "container": args.container, "line": String::from_utf8_lossy(&line)});
        if !output::pass_on(format!("{line}\n").as_bytes())? {
            break;
        }
    }
    Ok(Answer::Yes)
}

/// What to do about the refusals that everybody meets.
fn with_advice(failure: Failure, pod: &str) -> Failure {
    let Failure::Refused(why) = failure else { return failure };
    let next = if why.contains("choose one of") {
        "; name it with -c"
    } else if why.contains("is waiting to start") {
        &format!("; `segue get pod/{pod}` says how far it is")
    } else if why.contains("not found") && why.starts_with("pods ") {
        "; `segue get pods` lists those that are there"
    } else {
        ""
    };
    Failure::Refused(why + next)
}
