use std::time::Duration;

use clap::Args as ClapArgs;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    client::{ApiRequest, ApiResponse, Cluster, Connection, with_query},
    discovery::Served,
    documents::Document,
    failure::Failure,
    live,
    target::Target,
};
use crate::output::{Answer, Error, Format, Report};

/// Who owns the fields that this command writes.
const FIELD_MANAGER: &str = "segue-cli";

/// How long a kind that was just defined may take to be served.
const ESTABLISHED: Duration = Duration::from_mins(1);

/// Apply manifests, by server-side apply
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue apply -f service.yaml
  segue apply -f manifests/ -f more.yaml -n serving
  segue crds | segue apply -f -
  segue apply -f service.yaml --dry-run

All manifests are checked before the first is written: if one is invalid, or a rollout has no room on the nodes, none is \
written. Namespaces and CRDs are written \
first. Exit codes: 0 applied, 1 a manifest was refused, 2 no answer from the API.")]
pub(crate) struct Args {
    /// A file of manifests, a folder of such files, or - for standard input; may be repeated
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    file: Vec<String>,
    /// Ask the server what it would do, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Take over fields of other field managers
    #[arg(long)]
    force_conflicts: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(apply(args))
}

async fn apply(args: &Args) -> Result<Answer, Failure> {
    let documents = Document::read_all(&args.file)?;
    let mut report = Report::new(args.output);
    for document in &documents {
        for problem in document.judge() {
            document.refuse(&mut report, problem["message"].as_str().unwrap_or_default(), &problem);
        }
    }
    if report.any_refused() {
        return nothing_written(report);
    }
    let mut applying =
        Applying { args, cluster: Cluster::connect(&args.connection).await?, known: Vec::new() };
    applying.rehearse(&documents, &mut report).await?;
    if report.any_refused() {
        return nothing_written(report);
    }
    for document in &documents {
        applying.write(document, &mut report).await?;
    }
    Ok(report.finish()?)
}

fn nothing_written(report: Report) -> Result<Answer, Failure> {
    eprintln!("no object was written");
    Ok(report.finish()?)
}

struct Applying<'a> {
    args: &'a Args,
    cluster: Cluster,
    /// Kinds that were asked for already.
    known: Vec<Served>,
}

impl Applying<'_> {
    /// Asks the server about every document that it can judge now. One document needs none: it is written or refused.
    async fn rehearse(&mut self, documents: &[Document], report: &mut Report) -> Result<(), Failure> {
        for document in documents {
            let Some(served) = self.served(document).await? else {
                if !documents.iter().any(|other| defines(&other.manifest, document)) {
                    document.refuse(report, &unknown_kind(document), &Value::Null);
                }
                continue;
            };
            let target = match document.target(served, &self.cluster, self.args.connection.namespace.as_ref())
            {
                Ok(target) => target,
                Err(why) => {
                    document.refuse(report, &why, &Value::Null);
                    continue;
                }
            };
            self.refuse_without_room(document, &target, report).await?;
            let made_here =
                |other: &Document| other.kind() == "Namespace" && other.name() == target.namespace;
            if documents.len() > 1 && !self.args.dry_run && !documents.iter().any(made_here) {
                let answered = self.patch(&target, document, true).await?;
                refuse_unless_granted(document, &target, &answered, report);
            }
        }
        Ok(())
    }

    /// Refuses what the controllers would refuse: a rollout that the nodes have no room for. A person who may not read nodes
    /// gets the answer of the controllers.
    async fn refuse_without_room(
        &self,
        document: &Document,
        target: &Target,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let before = self.cluster.ask(ApiRequest::get(target.path())).await?;
        let live = before.code.is_success().then_some(before.body);
        match live::refusal(&self.cluster, &document.manifest, live).await {
            Ok(None) => {}
            Ok(Some(why)) => {
                let why = format!("{why}; with spec.capacity Warn it starts nevertheless");
                document.refuse(report, &why, &Value::Null);
            }
            Err(Failure::Refused(why)) => eprintln!("warning: {document}: {why}"),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    async fn write(&mut self, document: &Document, report: &mut Report) -> Result<(), Failure> {
        let Some(served) = self.served(document).await? else {
            document.refuse(report, &unknown_kind(document), &Value::Null);
            return Ok(());
        };
        let target = document.target(served, &self.cluster, self.args.connection.namespace.as_ref());
        let target = target.map_err(Failure::Refused)?;
        let before = self.cluster.ask(ApiRequest::get(target.path())).await?;
        let answered = self.patch(&target, document, self.args.dry_run).await?;
        if !refuse_unless_granted(document, &target, &answered, report) {
            return Ok(());
        }
        let word = match before.code {
            StatusCode::OK if essence(&before.body) == essence(&answered.body) => "unchanged",
            StatusCode::OK => "configured",
            _ => "created",
        };
        report.done(&target.title(), word, if self.args.dry_run { " (dry run)" } else { "" })?;
        if document.kind() == "CustomResourceDefinition" && !self.args.dry_run {
            self.wait_until_served(&target).await?;
        }
        Ok(())
    }

    /// What comes after may be of this kind.
    async fn wait_until_served(&self, target: &Target) -> Result<(), Failure> {
        let established = |crd: Option<&Value>| {
            let conditions = crd.and_then(|crd| crd["status"]["conditions"].as_array());
            conditions
                .into_iter()
                .flatten()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        let waited = timeout(ESTABLISHED, self.cluster.watch_until(target, established)).await;
        waited.unwrap_or_else(|_| {
            let title = target.title();
            Err(Failure::Refused(format!(
                "{title} is not established after {} s; see: segue get {title} -o yaml",
                ESTABLISHED.as_secs()
            )))
        })
    }

    async fn served(&mut self, document: &Document) -> Result<Option<Served>, Failure> {
        let (group, version) = document.group_and_version();
        let is_it =
            |kind: &&Served| kind.kind == document.kind() && kind.group == group && kind.version == version;
        if let Some(found) = self.known.iter().find(is_it) {
            return Ok(Some(found.clone()));
        }
        self.known.retain(|kind| kind.group != group || kind.version != version);
        self.known.extend(self.cluster.kinds_of(group, version).await?);
        Ok(self.known.iter().find(is_it).cloned())
    }

    async fn patch(&self, target: &Target, document: &Document, dry: bool) -> Result<ApiResponse, Failure> {
        let parameters = [
            ("fieldManager", FIELD_MANAGER),
            ("fieldValidation", "Strict"),
            ("force", if self.args.force_conflicts { "true" } else { "" }),
            ("dryRun", if dry { "All" } else { "" }),
        ];
        self.cluster
            .ask(ApiRequest {
                method: Method::PATCH,
                path: with_query(&target.path(), &parameters),
                // JSON is YAML.
                content: Some("application/apply-patch+yaml"),
                body: document.manifest.to_string().into_bytes(),
                ..ApiRequest::default()
            })
            .await
    }
}

fn refuse_unless_granted(
    document: &Document,
    target: &Target,
    answered: &ApiResponse,
    report: &mut Report,
) -> bool {
    if !answered.code.is_success() {
        let why = conflicts(&target.title(), answered).unwrap_or_else(|| answered.message());
        document.refuse(report, &why, &answered.body);
    }
    answered.code.is_success()
}

/// Whether an object defines the kind of a document.
fn defines(definition: &Value, document: &Document) -> bool {
    let (group, _) = document.group_and_version();
    let spec = &definition["spec"];
    definition["kind"] == "CustomResourceDefinition"
        && spec["group"] == group
        && spec["names"]["kind"] == document.kind()
}

fn unknown_kind(document: &Document) -> String {
    let (group, version) = document.group_and_version();
    let slash = if group.is_empty() { "" } else { "/" };
    let ours = api::Kind::of(&document.manifest).is_ok();
    let next = if ours { "install it with `segue crds | segue apply -f -`" } else { "install its CRD first" };
    format!("kind: the server does not serve {} ({group}{slash}{version}); {next}", document.kind())
}

/// Who owns what, and what can be done about it.
fn conflicts(title: &str, answered: &ApiResponse) -> Option<String> {
    let causes = answered.body["details"]["causes"].as_array()?;
    let causes: Vec<&Value> = causes.iter().filter(|one| one["reason"] == "FieldManagerConflict").collect();
    if causes.is_empty() {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines =
        causes.iter().map(|cause| format!("\n  {}: {}", text(&cause["field"]), text(&cause["message"])));
    Some(format!(
        "{title} has fields of other field managers:{}\n  remove these fields from the manifest, or take them over with \
         --force-conflicts",
        lines.collect::<String>()
    ))
}

/// What a person would call the object: without what every write changes, and what others report about it meanwhile.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
        meta.remove("resourceVersion");
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conflict_names_the_field_the_owner_and_the_way_out() {
        let body = json!({"details": {"causes": [{
            "reason": "FieldManagerConflict", "field": ".spec.replicas",
            "message": "conflict with \"kubectl\" using v1",
        }]}});
        let said = conflicts("pod/x", &ApiResponse { code: StatusCode::CONFLICT, body }).unwrap();
        for part in ["pod/x", ".spec.replicas", "kubectl", "--force-conflicts"] {
            assert!(said.contains(part), "{said}");
        }
        let other = ApiResponse { code: StatusCode::CONFLICT, body: json!({"message": "modified"}) };
        assert_eq!(conflicts("pod/x", &other), None);
    }
}
