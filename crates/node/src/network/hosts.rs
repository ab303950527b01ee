//! Names for the processes of pods, as a cluster's DNS has them: a hosts file for each namespace, which its
//! containers see as /etc/hosts. It follows the `EndpointSlice`s, so it says what DNS would: a Service by its
//! ready pods, and a pod by its hostname in the Service that its `subdomain` names.
use std::{
    fmt::Write,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use k8s_openapi::api::{
    core::v1::Pod,
    discovery::v1::{Endpoint, EndpointSlice},
};
use kube::{Api, ResourceExt, runtime::reflector::store::Writer};

use crate::{
    context::key,
    settings::Settings,
    watch::{apply, follow},
};

/// The hosts files, one per namespace.
#[derive(Debug)]
pub(crate) struct HostsFiles {
    directory: PathBuf,
    /// Why no process can have a hosts file of its own on this machine, if so.
    impossible: Option<String>,
    /// Locked while files are written, so that an older state never replaces a newer one.
    slices: Mutex<Writer<EndpointSlice>>,
}

impl HostsFiles {
    /// Removes the files of an earlier agent and tries whether this machine allows a process its own.
    pub async fn open(settings: &Settings) -> io::Result<Arc<Self>> {
        let directory = settings.directory.join("hosts");
        // The addresses that an earlier agent wrote are outdated.
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory)?;
        let files = Self { directory, impossible: None, slices: Mutex::default() };
        let trial = files.write("default", &[])?;
        let impossible = settings.shim.try_hosts(&trial).await.err();
        Ok(Arc::new(Self { impossible, ..files }))
    }

    /// Returns the file that a pod sees as /etc/hosts. Where the machine allows none, only pods with a
    /// subdomain fail.
    pub fn path_for(&self, pod: &Pod) -> Result<Option<PathBuf>, String> {
        let (namespace, _) = key(pod);
        let subdomain = pod.spec.as_ref().and_then(|spec| spec.subdomain.as_deref()).unwrap_or_default();
        match &self.impossible {
            None => {
                let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
                self.write(namespace, &sorted(&slices))
                    .map(Some)
                    .map_err(|error| format!("its hosts file: {error}"))
            }
            Some(_) if subdomain.is_empty() => Ok(None),
            Some(why) => Err(format!(
                "the subdomain {subdomain} needs a hosts file of the pod ({why}); run segue as root, or allow user namespaces \
                 (docs/operations.md)"
            )),
        }
    }

    /// Watches the `EndpointSlice`s and rewrites the files. Never returns.
    pub async fn follow_slices(self: Arc<Self>, slices: Api<EndpointSlice>) {
        let mut followed = pin!(follow(slices));
        while let Some(events) = followed.next().await {
            let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
            if !apply(&mut slices, &events) {
                continue;
            }
            let slices = sorted(&slices);
            for namespace in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
                // A write that fails is repeated with the next change, and reported by the next container's start.
                drop(self.write(&namespace.file_name().to_string_lossy(), &slices));
            }
        }
    }

    /// Writes in place, because the file is mounted, and never shorter, because it is read at the same time.
    fn write(&self, namespace: &str, slices: &[Arc<EndpointSlice>]) -> io::Result<PathBuf> {
        let path = self.directory.join(namespace);
        let file = File::options().write(true).create(true).truncate(false).open(&path)?;
        let mut text = hosts(&fs::read_to_string("/etc/hosts").unwrap_or_default(), namespace, slices);
        let before = usize::try_from(file.metadata()?.len()).unwrap_or_default();
        text.extend(std::iter::repeat_n('\n', before.saturating_sub(text.len())));
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(path)
    }
}

/// The slices in the order of namespace and name, so that the same slices give the same file.
fn sorted(slices: &Writer<EndpointSlice>) -> Vec<Arc<EndpointSlice>> {
    let mut sorted = slices.as_reader().state();
    sorted.sort_by_cached_key(|slice| (slice.namespace(), slice.name_any()));
    sorted
}

/// The machine's own names, then those of the namespace, which may be short, then all others.
fn hosts(machine: &str, namespace: &str, slices: &[Arc<EndpointSlice>]) -> String {
    let mut text = format!("{}\n", machine.trim_end());
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        slices.iter().partition(|slice| slice.namespace().as_deref() == Some(namespace));
    for slice in here {
        add_slice(&mut text, slice, true);
    }
    for slice in elsewhere {
        add_slice(&mut text, slice, false);
    }
    text
}

fn add_slice(text: &mut String, slice: &EndpointSlice, is_here: bool) {
    let Some(service) = slice.labels().get("kubernetes.io/service-name") else { return };
    let namespace = slice.namespace().unwrap_or_default();
    let is_ready = |endpoint: &&Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    for endpoint in slice.endpoints.iter().flatten().filter(is_ready) {
        let own = endpoint.hostname.iter().map(|hostname| format!("{hostname}.{service}"));
        for name in own.chain([service.clone()]) {
            let full = format!("{name}.{namespace}");
            let short = if is_here { name.as_str() } else { "" };
            for address in &endpoint.addresses {
                let _ = writeln!(text, "{address} {full}.svc.cluster.local {full}.svc {full} {short}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use serde_json::{Value, json};

    use super::*;

    fn slice(namespace: &str, service: &str, endpoints: &Value) -> Arc<EndpointSlice> {
        let labels = json!({"kubernetes.io/service-name": service});
        let meta = json!({"name": format!("{service}-1"), "namespace": namespace, "labels": labels});
        let slice = json!({"metadata": meta, "addressType": "IPv4", "endpoints": endpoints});
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn names_are_short_at_home_and_only_of_those_that_are_ready() {
        let pods = json!([
            {"addresses": ["127.64.0.2"], "hostname": "x-0", "conditions": {"ready": true}},
            {"addresses": ["127.64.0.3"], "conditions": {"ready": false}},
        ]);
        let slices =
            [slice("there", "db", &json!([{"addresses": ["127.64.0.9"]}])), slice("here", "x", &pods)];
        let expected = "127.0.0.1 localhost\n\
            127.64.0.2 x-0.x.here.svc.cluster.local x-0.x.here.svc x-0.x.here x-0.x\n\
            127.64.0.2 x.here.svc.cluster.local x.here.svc x.here x\n\
            127.64.0.9 db.there.svc.cluster.local db.there.svc db.there \n";
        assert_eq!(hosts("127.0.0.1 localhost\n\n", "here", &slices), expected);
        assert!(hosts("", "there", &slices).contains("db.there db\n"));
    }

    #[test]
    fn a_file_is_written_in_place_and_never_gets_shorter() {
        let directory = tempfile::tempdir().unwrap();
        let files =
            HostsFiles { directory: directory.path().to_owned(), impossible: None, slices: Mutex::default() };
        let long = slice("here", "long", &json!([{"addresses": ["127.64.0.2"]}]));
        let path = files.write("here", &[long]).unwrap();
        let before = fs::metadata(&path).unwrap();
        files.write("here", &[]).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
        assert!(!fs::read_to_string(path).unwrap().contains("long"));
    }
}
