//! What is put on a cluster so that `segue operator` runs there: nothing but that, and no CRD.

mod rights;
mod workload;

use clap::{Args as ClapArgs, ValueEnum};
use controllers::kind::{Place, Served};
use serde_json::{Value, json};

pub(crate) use self::rights::LEASE;
use crate::{
    operator::selection::{self, Selection},
    output::{self, Answer, Error},
};

/// Print the manifests that install `segue operator` on a cluster
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue manifests | segue apply -f -
  segue manifests --image registry.example/segue:0.1.0 | segue apply -f -
  segue manifests --kinds leaderworkerset --namespaces team-a,team-b
  segue manifests | segue delete -f -

CRDs are not included, because another operator may own them: see `segue crds --check`. Without --kinds, all kinds are \
reconciled. With --namespaces, the operator has rights in these namespaces only. Deleting the manifests leaves all pods \
running.")]
pub(crate) struct Args {
    /// The namespace of the operator
    #[arg(long, value_name = "NAME", default_value = "segue-system", value_parser = selection::namespace)]
    namespace: String,
    /// The image, to be built from the Dockerfile: there is no public one yet
    #[arg(long, value_name = "IMAGE", default_value = concat!("segue:", env!("CARGO_PKG_VERSION")))]
    image: String,
    #[command(flatten)]
    selection: Selection,
    /// Leave out the admission webhook; the CRDs still validate every object
    #[arg(long)]
    without_webhooks: bool,
    /// The output format: YAML documents or one JSON List
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

/// What is to be installed.
struct Install<'a> {
    namespace: &'a str,
    image: &'a str,
    kinds: &'a [&'static Served],
    selection: &'a Selection,
    webhooks: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    let Args { namespace, image, selection, without_webhooks, output } = args;
    let kinds = selection.kinds_or_all()?;
    let install = Install { namespace, image, kinds: &kinds, selection, webhooks: !without_webhooks };
    let objects = install.objects();
    match output {
        Format::Json => {
            output::print(&output::json(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?)?;
        }
        Format::Yaml => {
            for object in &objects {
                output::print(&format!("---\n{}", output::yaml(object)?))?;
            }
        }
    }
    Ok(Answer::Yes)
}

/// The name of what has no namespace: two installations do not meet in it.
pub(crate) fn cluster_wide(namespace: &str) -> String {
    format!("segue.{namespace}")
}

/// The labels of everything. Not `managed-by`: that marks what the controllers made.
fn labels() -> Value {
    json!({"app.kubernetes.io/name": "segue", "app.kubernetes.io/version": env!("CARGO_PKG_VERSION")})
}

impl Install<'_> {
    /// In the order in which they are needed.
    fn objects(&self) -> Vec<Value> {
        let mut objects = vec![self.namespace(), self.service_account()];
        objects.extend(self.access());
        if self.webhooks {
            objects.push(self.service());
        }
        objects.extend([self.deployment(), self.disruption_budget()]);
        if self.webhooks {
            objects.push(self.webhook());
        }
        objects
    }

    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": labels()})
    }

    fn namespace(&self) -> Value {
        let mut labels = labels();
        labels["pod-security.kubernetes.io/enforce"] = json!("restricted");
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}})
    }

    fn service_account(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata("segue")})
    }

    /// Roles and who has them.
    fn access(&self) -> Vec<Value> {
        let rights = rights::of(self.kinds, self.webhooks, self.namespace);
        let everywhere = self.selection.namespaces.is_empty();
        let cluster: &[Place] =
            if everywhere { &[Place::Cluster, Place::Namespaces] } else { &[Place::Cluster] };
        let name = cluster_wide(self.namespace);
        let metadata = json!({"name": name, "labels": labels()});
        let mut objects = self.bound("ClusterRole", &metadata, &rights::rules(&rights, cluster)).to_vec();
        objects.extend(self.bound("Role", &self.metadata("segue"), &rights::rules(&rights, &[Place::Home])));
        for namespace in &self.selection.namespaces {
            let metadata = json!({"name": name, "namespace": namespace, "labels": labels()});
            objects.extend(self.bound("Role", &metadata, &rights::rules(&rights, &[Place::Namespaces])));
        }
        objects
    }

    /// A role, and its binding to the operator.
    fn bound(&self, kind: &str, metadata: &Value, rules: &[Value]) -> [Value; 2] {
        let version = "rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules});
        let binding = json!({
            "apiVersion": version,
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": "segue", "namespace": self.namespace}],
        });
        [role, binding]
    }
}

#[cfg(test)]
mod tests;
