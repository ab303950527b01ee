//! Custom resource definitions, installed the way a user installs them.
use std::{fs, path::Path, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use crate::{Error, eventually};

/// Reads every definition in the folder. Other kinds are left out: the Gateway API's folder also holds an admission
/// policy against downgrades, which guards clusters that live longer than a test.
pub(crate) fn read(folder: &Path) -> Result<Vec<Value>, Error> {
    let failed = || Error::io(format!("read {}", folder.display()));
    let mut definitions = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(failed())?;
        let documents = serde_saphyr::from_multiple::<Value>(&text)
            .map_err(|source| Error::Manifest { path, source: Box::new(source) })?;
        definitions.extend(documents.into_iter().filter(|it| it["kind"] == "CustomResourceDefinition"));
    }
    Ok(definitions)
}

/// Applies the definitions and waits until the server serves them.
pub(crate) async fn install(client: &Client, definitions: &[Value]) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let apply = PatchParams::apply("testbed").force();
    let names: Vec<_> = definitions.iter().filter_map(|it| it["metadata"]["name"].as_str()).collect();
    for (name, definition) in names.iter().zip(definitions) {
        api.patch(name, &apply, &Patch::Apply(definition))
            .await
            .map_err(Error::kube(format!("install the definition {name}")))?;
    }
    for name in names {
        eventually(&format!("{name} established"), Duration::from_secs(30), async || {
            api.get(name).await.ok().filter(is_established)
        })
        .await?;
    }
    Ok(())
}

/// Whether the server has accepted the names and serves the kind.
fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Established" && it.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definitions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let both =
            "kind: ValidatingAdmissionPolicy\n---\nkind: CustomResourceDefinition\nmetadata: {name: a}\n";
        fs::write(folder.path().join("both.yaml"), both).unwrap();
        fs::write(folder.path().join("notes.txt"), "kind: CustomResourceDefinition\n").unwrap();
        let read = read(folder.path()).unwrap();
        assert_eq!(
            read,
            [serde_json::json!({"kind": "CustomResourceDefinition", "metadata": {"name": "a"}})]
        );
    }

    #[test]
    fn a_broken_manifest_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("broken.yaml"), "a: [").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().ends_with("/broken.yaml"));
    }
}
