use clap::Args as ClapArgs;
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    client::{ApiRequest, ApiResponse, Cluster, Connection, with_query},
    discovery::Served,
    failure::Failure,
    stream::Lines,
    target::Target,
};
use crate::output::{self, Answer, Error, Format};

/// Print the logs of a pod's container
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue logs web
  segue logs web -c sidecar --tail 20
  segue logs web -f
  segue logs web --previous

With -f, a container that has not started is waited for. Exit codes: 0 printed, 1 there is no such pod or container, or no \
logs yet, 2 no answer from the API.")]
pub(crate) struct Args {
    /// The pod, as NAME or pod/NAME
    #[arg(value_name = "POD")]
    pod: String,
    /// The container, if the pod has several
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Follow the logs until the container ends
    #[arg(short, long)]
    follow: bool,
    /// Print only the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Print the logs of the previous run of the container
    #[arg(short, long)]
    previous: bool,
    /// The output format: the lines, or one JSON object per line
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(logs(args))
}

async fn logs(args: &Args) -> Result<Answer, Failure> {
    let cluster = Cluster::connect(&args.connection).await?;
    let kinds = ["pod/", "pods/", "po/"];
    let pod = kinds.iter().find_map(|kind| args.pod.strip_prefix(kind)).unwrap_or(&args.pod);
    let namespace = cluster.namespace.clone();
    let target = Target { served: Served::pods(), namespace, name: pod.to_owned() };
    let mut output = open(&cluster, &target, args).await?;
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

/// Opens the logs. With -f, waits until the container has started.
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
    let refused = match cluster.open(ApiRequest::get(path.as_str())).await? {
        Ok(lines) => return Ok(lines),
        Err(refused) => refused,
    };
    let (container, pod) = (args.container.as_deref(), &target.name);
    let answered = cluster.ask(ApiRequest::get(target.path())).await?;
    let next = match Obstacle::of(&refused, &answered, container) {
        Some(Obstacle::NotBegun) if args.follow => {
            eprintln!("{}", words(&refused));
            cluster.watch_until(target, |pod| pod.is_none_or(|pod| has_begun(pod, container))).await?;
            return cluster.follow(ApiRequest::get(path)).await;
        }
        Some(Obstacle::NotBegun) => format!("; see: segue get pod/{pod}"),
        Some(Obstacle::WhichContainer) => "; name it with -c".to_owned(),
        Some(Obstacle::NoPod) => "; see: segue get pods".to_owned(),
        None => String::new(),
    };
    Err(Failure::Refused(words(&refused) + &next))
}

/// Why a request for logs was refused, where that is known. The API has one reason for all causes, so the cause is read
/// from the pod.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    NoPod,
    /// It has several containers, and none was named.
    WhichContainer,
    /// The container is yet to start.
    NotBegun,
}

impl Obstacle {
    /// What a refusal comes from, when this is the answer to who asks for the pod.
    fn of(refused: &ApiResponse, pod: &ApiResponse, container: Option<&str>) -> Option<Self> {
        if refused.code == StatusCode::NOT_FOUND && refused.body["details"]["kind"] == "pods" {
            return Some(Self::NoPod);
        }
        // Without a word an API answers for the output of a pod that no node has.
        let lacks = matches!(refused.code, StatusCode::BAD_REQUEST | StatusCode::NO_CONTENT);
        if !lacks || !pod.code.is_success() {
            return None;
        }
        let names = |list: &'static str| pod.body["spec"][list].as_array().into_iter().flatten();
        match container {
            None if names("containers").count() > 1 => return Some(Self::WhichContainer),
            Some(name) => {
                let mut all = ["containers", "initContainers"].into_iter().flat_map(names);
                all.find(|it| it["name"] == name)?;
            }
            None => {}
        }
        (!has_begun(&pod.body, container)).then_some(Self::NotBegun)
    }
}

fn words(refused: &ApiResponse) -> String {
    if refused.code == StatusCode::NO_CONTENT {
        return "the pod is waiting to start: no node has it yet".to_owned();
    }
    refused.message()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, body: Value) -> ApiResponse {
        ApiResponse { code: StatusCode::from_u16(code).unwrap(), body }
    }

    fn pod(containers: &[&str], begun: &[&str]) -> ApiResponse {
        let specs: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
        let state = |name: &&str| json!({"name": name, "state": {"running": {}}});
        let statuses: Vec<Value> = begun.iter().map(state).collect();
        answered(200, json!({"spec": {"containers": specs}, "status": {"containerStatuses": statuses}}))
    }

    /// No sentence of an API is read: they differ between versions and runtimes.
    #[test]
    fn what_stands_in_the_way_is_told_by_codes_and_by_the_pod() {
        let bad = || answered(400, json!({"message": "nobody knows these words", "reason": "BadRequest"}));
        let of = |refused: &ApiResponse, pod: &ApiResponse, name| Obstacle::of(refused, pod, name);
        let gone = answered(404, json!({"details": {"kind": "pods"}}));
        assert_eq!(of(&gone, &answered(404, Value::Null), None), Some(Obstacle::NoPod));
        let two = pod(&["a", "b"], &["a"]);
        assert_eq!(of(&bad(), &two, None), Some(Obstacle::WhichContainer));
        assert_eq!(of(&bad(), &two, Some("b")), Some(Obstacle::NotBegun));
        assert_eq!(of(&bad(), &two, Some("a")), None);
        assert_eq!(of(&bad(), &two, Some("c")), None, "what is not there never begins");
        let unplaced = answered(204, Value::Null);
        assert_eq!(of(&unplaced, &pod(&["a"], &[]), None), Some(Obstacle::NotBegun));
        assert!(words(&unplaced).contains("no node has it yet"));
        let forbidden = answered(403, json!({"message": "pod a is waiting to start; choose one of"}));
        assert_eq!(of(&forbidden, &pod(&["a"], &[]), None), None);
    }
}
