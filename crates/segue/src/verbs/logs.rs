use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{
    client::{Ask, Cluster, Reach, with_query},
    failure::Failure,
    kinds::Served,
    object::Target,
    stream::Lines,
};
use crate::output::{self, Answer, Error, Format};

/// Print what a pod's container writes.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue logs web
  segue logs web -c sidecar --tail 20
  segue logs web -f
  segue logs web --previous

With -f, output that is yet to begin is waited for.
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
    let kinds = ["pod/", "pods/", "po/"];
    let pod = kinds.iter().find_map(|kind| args.pod.strip_prefix(kind)).unwrap_or(&args.pod);
    let namespace = cluster.namespace.clone();
    let target = Target { served: Served::pods(), namespace, name: pod.to_owned() };
    let opened = open(&cluster, &target, args).await;
    let mut output = opened.map_err(|failure| with_advice(failure, pod))?;
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

/// The output; who follows it waits for its begin.
async fn open(cluster: &Cluster, target: &Target, args: &Args) -> Result<Lines, Failure> {
    let flag = |on: bool| if on { "true" } else { "" };
    let tail = args.tail.map(|lines| lines.to_string()).unwrap_or_default();
    let parameters = [
        ("container", args.container.as_deref().unwrap_or_default()),
        ("follow", flag(args.follow)),
        ("tailLines", &tail),
        ("previous", flag(args.previous)),
    ];
    let path = with_query(&format!("{}/log", target.path()), &parameters);
    match cluster.follow(Ask::get(path.as_str())).await {
        Err(Failure::Refused(why)) if args.follow && why.contains(WAITING) => {
            eprintln!("{why}");
            let container = args.container.as_deref();
            cluster.watch_until(target, |pod| pod.is_none_or(|pod| has_begun(pod, container))).await?;
            cluster.follow(Ask::get(path)).await
        }
        opened => opened,
    }
}

/// What a kubelet says of a container that has no output yet.
const WAITING: &str = "is waiting to start";

/// Whether a container, or any if none is named, has run.
fn has_begun(pod: &Value, container: Option<&str>) -> bool {
    let status = &pod["status"];
    // Without a name, the only container is meant, and never an init container.
    let init = status["initContainerStatuses"].as_array().filter(|_| container.is_some());
    let mut statuses = status["containerStatuses"].as_array().into_iter().chain(init).flatten();
    statuses.any(|one| {
        let state = &one["state"];
        let began = state["running"].is_object() || state["terminated"].is_object();
        began && container.is_none_or(|name| one["name"] == name)
    }) || matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"))
}

/// What to do about the refusals that everybody meets.
fn with_advice(failure: Failure, pod: &str) -> Failure {
    let Failure::Refused(why) = failure else { return failure };
    let next = if why.contains("choose one of") {
        "; name it with -c"
    } else if why.contains(WAITING) {
        &format!("; `segue get pod/{pod}` says how far it is")
    } else if why.contains("not found") && why.starts_with("pods ") {
        "; `segue get pods` lists those that are there"
    } else {
        ""
    };
    Failure::Refused(why + next)
}
