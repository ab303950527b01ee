//! The config maps and secrets that a pod refers to, read once before a start.
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, Secret};
use kube::{Api, Client};

use crate::container::environment::EnvironmentError;

pub(crate) type Entries = BTreeMap<String, Vec<u8>>;

/// The contents of the objects by name; `None` for an object that does not exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    config_maps: BTreeMap<String, Option<Entries>>,
    secrets: BTreeMap<String, Option<Entries>>,
}

impl Sources {
    /// Reads all config maps and secrets that the pod refers to.
    pub async fn fetch(client: &Client, pod: &Pod) -> Result<Self, kube::Error> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let mut sources = Self::default();
        let Some(spec) = &pod.spec else { return Ok(sources) };
        let names = References::of(spec);
        for name in names.config_maps {
            let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(&name).await?;
            sources.add_config_map(&name, map.map(config_map_entries));
        }
        for name in names.secrets {
            let secret = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(&name).await?;
            let entries =
                secret.map(|secret| secret.data.into_iter().flatten().map(|(k, v)| (k, v.0)).collect());
            sources.secrets.insert(name, entries);
        }
        Ok(sources)
    }

    pub fn add_config_map(&mut self, name: &str, entries: Option<Entries>) {
        self.config_maps.insert(name.to_owned(), entries);
    }

    pub fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<&Entries>, EnvironmentError> {
        found(&self.config_maps, "configmap", name, optional)
    }

    pub fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<&Entries>, EnvironmentError> {
        found(&self.secrets, "secret", name, optional)
    }
}

fn found<'a>(
    all: &'a BTreeMap<String, Option<Entries>>,
    kind: &str,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<&'a Entries>, EnvironmentError> {
    let entries = all.get(name).and_then(Option::as_ref);
    if entries.is_none() && optional != Some(true) {
        return Err(EnvironmentError::NoObject(format!("{kind} {name}")));
    }
    Ok(entries)
}

fn config_map_entries(map: ConfigMap) -> Entries {
    let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    text.chain(map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0))).collect()
}

#[derive(Debug, Default)]
struct References {
    config_maps: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

impl References {
    fn of(spec: &PodSpec) -> Self {
        let mut names = Self::default();
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            names.add_container(container);
        }
        for volume in spec.volumes.iter().flatten() {
            names.config_maps.extend(volume.config_map.iter().map(|map| map.name.clone()));
            names.secrets.extend(volume.secret.iter().filter_map(|secret| secret.secret_name.clone()));
            let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
            for source in projected {
                names.config_maps.extend(source.config_map.iter().map(|map| map.name.clone()));
                names.secrets.extend(source.secret.iter().map(|secret| secret.name.clone()));
            }
        }
        names
    }

    fn add_container(&mut self, container: &Container) {
        for from in container.env_from.iter().flatten() {
            self.config_maps.extend(from.config_map_ref.iter().map(|map| map.name.clone()));
            self.secrets.extend(from.secret_ref.iter().map(|secret| secret.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            self.config_maps.extend(source.config_map_key_ref.iter().map(|key| key.name.clone()));
            self.secrets.extend(source.secret_key_ref.iter().map(|key| key.name.clone()));
        }
    }
}
