//! Revisions: a cluster config and the applications that run on it. One is stored for each pair that was ever asked for, so
//! that a cluster keeps what it was told while the spec goes on.

use api::{
    Kind,
    raycluster::RayClusterSpec,
    rayservice::{self, RayService, RayServiceSpec},
};
use serde_json::{Value, json};

use crate::{
    digest::digest,
    labels,
    revisions::{NewRevision, Revisions, Template},
    runtime::{Error, Key},
};

/// How many revisions that no cluster uses are kept, to go back to.
pub(super) const HISTORY: usize = 10;

/// A cluster config and the applications that run on it.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// The cluster config, as it was written.
    pub(super) cluster: Value,
    /// The digest of the cluster config: clusters of the same digest are the same.
    pub(super) goal: String,
    /// The applications, as the YAML that Ray Serve reads.
    pub(super) applications: String,
    /// The same, read; nothing where it is empty or no mapping.
    pub(super) config: Option<Value>,
}

/// The revisions of a service.
pub(super) type Known = Revisions<Service>;

impl Template for Service {
    const LABEL: &'static str = labels::SERVICE_REVISION;

    fn kind() -> &'static Kind {
        &api::rayservice::KIND
    }

    fn read(data: &Value) -> Result<Self, String> {
        let spec = &data["spec"];
        // What is stored is read as the type, so that what cannot be made into a cluster is found here.
        let cluster: RayClusterSpec =
            serde_json::from_value(spec["rayClusterConfig"].clone()).map_err(|error| error.to_string())?;
        let applications = spec["serveConfigV2"].as_str().unwrap_or_default().to_owned();
        Self::new(&cluster, applications).map_err(|error| error.to_string())
    }

    fn meaning(&self) -> Result<String, String> {
        Ok(json!([what_counts(&self.cluster), self.applications]).to_string())
    }
}

impl Service {
    fn new(cluster: &RayClusterSpec, applications: String) -> Result<Self, serde_json::Error> {
        let cluster = serde_json::to_value(cluster)?;
        let goal = digest(&what_counts(&cluster));
        let config = rayservice::applications(&applications).ok().filter(Value::is_object);
        Ok(Self { cluster, goal, applications, config })
    }

    /// What a spec asks for.
    pub(super) fn of(spec: &RayServiceSpec) -> Result<Self, serde_json::Error> {
        Self::new(&spec.ray_cluster_config, spec.serve_config_v2.clone().unwrap_or_default())
    }
}

/// The revision that a service asks for.
pub(super) fn wanted(service: &RayService) -> Result<NewRevision, Error> {
    let malformed = |why: String| Error::Malformed { what: format!("RayService {}", Key::of(service)), why };
    let wanted = Service::of(&service.spec).map_err(|error| malformed(error.to_string()))?;
    let data = json!({"spec": {"rayClusterConfig": wanted.cluster, "serveConfigV2": wanted.applications}});
    NewRevision::of(&wanted, data, key, labels::RAY_SERVICE).map_err(malformed)
}

fn key(data: &Value, attempt: u32) -> String {
    if attempt == 0 { digest(data) } else { digest(&json!([data, attempt])) }
}

/// The fields of a cluster config whose change makes another cluster. The numbers of workers belong to the autoscaler and
/// change in place, and so does what stops the whole cluster.
fn what_counts(cluster: &Value) -> Value {
    let mut cluster = cluster.clone();
    if let Some(fields) = cluster.as_object_mut() {
        for field in ["suspend", "upgradeStrategy", "managedBy"] {
            fields.remove(field);
        }
    }
    for group in cluster["workerGroupSpecs"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = group.as_object_mut() {
            for field in ["replicas", "minReplicas", "maxReplicas", "scaleStrategy"] {
                fields.remove(field);
            }
        }
    }
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(config: &Value) -> String {
        let spec = json!({"rayClusterConfig": config, "serveConfigV2": "applications: []"});
        Service::of(&serde_json::from_value(spec).unwrap()).unwrap().goal
    }

    fn config(image: &str, group: &Value) -> Value {
        let pod = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        let mut worker = json!({"groupName": "w", "template": pod});
        crate::json::lay(&mut worker, group.clone());
        json!({"headGroupSpec": {"template": pod}, "workerGroupSpecs": [worker]})
    }

    #[test]
    fn the_number_of_workers_makes_no_other_cluster_and_an_image_does() {
        let before = goal(&config("one", &json!({"replicas": 1, "minReplicas": 1, "maxReplicas": 3})));
        assert_eq!(before, goal(&config("one", &json!({"replicas": 2, "minReplicas": 0, "maxReplicas": 9}))));
        assert_ne!(before, goal(&config("two", &json!({"replicas": 1, "minReplicas": 1, "maxReplicas": 3}))));
    }
}
