//! Manifests with where they stand, so that a refusal can say it.

use std::{fmt, fs, path::Path};

use serde_json::{Value, json};

use super::{client::Cluster, discovery::Served, failure::Failure, target::Target};
use crate::{
    manifest,
    output::{Error, Report},
};

/// What a folder is looked through for.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// One manifest of a file.
#[derive(Debug, Clone)]
pub(super) struct Document {
    file: String,
    /// From 1, as people count.
    number: usize,
    pub manifest: Value,
}

/// `pods.yaml, document 2 (Pod web)`.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file == "-" { "standard input" } else { &self.file };
        write!(f, "{file}, document {} ({})", self.number, manifest::title(&self.manifest))
    }
}

impl Document {
    /// Every manifest of files, of the files in folders, and of standard input for `-`. First what others need to be
    /// there; the rest stays in the order of the files.
    pub fn read_all(files: &[String]) -> Result<Vec<Self>, Failure> {
        let mut documents = Vec::new();
        for file in files {
            for file in expand(file)? {
                let numbered = manifest::read_numbered(&file)?;
                documents.extend(numbered.into_iter().map(|(number, manifest)| Self {
                    file: file.clone(),
                    number,
                    manifest,
                }));
            }
        }
        documents.sort_by_key(|document| match document.kind() {
            "Namespace" => 0,
            "CustomResourceDefinition" => 1,
            _ => 2,
        });
        Ok(documents)
    }

    fn text(&self, field: &str) -> &str {
        self.manifest[field].as_str().unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    pub fn name(&self) -> &str {
        self.manifest["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn namespace(&self) -> Option<&str> {
        self.manifest["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty())
    }

    pub fn group_and_version(&self) -> (&str, &str) {
        let api_version = self.text("apiVersion");
        api_version.split_once('/').unwrap_or(("", api_version))
    }

    /// The errors of the document that can be found without an API. Prints warnings.
    pub fn judge(&self) -> Vec<Value> {
        let required = |field: &str, value: &str| {
            value.is_empty().then(|| json!({"field": field, "message": format!("{field}: Required value")}))
        };
        let missing = [
            required("apiVersion", self.text("apiVersion")),
            required("kind", self.kind()),
            required("metadata.name", self.name()),
        ];
        let missing: Vec<Value> = missing.into_iter().flatten().collect();
        if !missing.is_empty() || api::Kind::of(&self.manifest).is_err() {
            return missing;
        }
        let verdict = api::validate(&self.manifest, None).strict();
        for warning in &verdict.warnings {
            eprintln!("warning: {self}: {warning}");
        }
        let violations = verdict.violations.iter();
        violations
            .map(|one| json!({"field": one.field, "value": one.value, "allowed": one.allowed, "message": one.to_string()}))
            .collect()
    }

    /// The object that it is about; `asked` is the namespace that was asked for, which it must not contradict.
    pub fn target(
        &self,
        served: Served,
        cluster: &Cluster,
        asked: Option<&String>,
    ) -> Result<Target, String> {
        let own = self.namespace().filter(|_| served.namespaced);
        match (own, asked) {
            (Some(own), Some(asked)) if own != asked => {
                Err(format!("metadata.namespace is {own}, and --namespace is {asked}; leave one of them out"))
            }
            _ => Ok(Target {
                served,
                namespace: own.unwrap_or(&cluster.namespace).to_owned(),
                name: self.name().to_owned(),
            }),
        }
    }

    /// Adds a refusal of it to what is told.
    pub fn refuse(&self, report: &mut Report, why: &str, details: &Value) {
        report.refused(&self.to_string(), why, details);
    }
}

/// The files of a folder in the order of their names; a file as it is.
fn expand(file: &str) -> Result<Vec<String>, Failure> {
    let path = Path::new(file);
    if file == "-" || !path.is_dir() {
        return Ok(vec![file.to_owned()]);
    }
    let failed = |source| Error::Read { file: file.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if path.is_file() && ENDINGS.contains(&ending) {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    found.sort();
    if found.is_empty() { Err(Error::Empty { file: file.to_owned() }.into()) } else { Ok(found) }
}
