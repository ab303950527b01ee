//! The versions of everything in the control plane, read from its `go.mod` and written nowhere else.
use crate::Error;

/// Which releases the control plane is made of. Each begins with a `v`, as Go writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// kube-apiserver, kube-controller-manager and kubectl.
    pub kubernetes: String,
    /// etcd.
    pub etcd: String,
    /// The Gateway API definitions.
    pub gateway_api: String,
    /// The oldest Go that builds them, as in `1.26`.
    pub go: String,
}

/// The Go module of the control plane.
pub(crate) const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane");
/// The Go module of the Gateway API.
pub(crate) const GATEWAY_API: &str = "sigs.k8s.io/gateway-api";

impl Versions {
    /// The versions that this tree is tested with.
    pub fn pinned() -> Result<Self, Error> {
        Self::parse(include_str!("../control-plane/go.mod"))
    }

    fn parse(go_mod: &str) -> Result<Self, Error> {
        let go = directive(go_mod, "go")?;
        Ok(Self {
            kubernetes: directive(go_mod, "k8s.io/kubernetes")?,
            etcd: directive(go_mod, "go.etcd.io/etcd/server/v3")?,
            gateway_api: directive(go_mod, GATEWAY_API)?,
            go: go.splitn(3, '.').take(2).collect::<Vec<_>>().join("."),
        })
    }

    /// A folder name that changes when a binary must be built again.
    pub(crate) fn cache_key(&self) -> String {
        format!("kubernetes-{}-etcd-{}", self.kubernetes, self.etcd)
    }

    /// The linker flags that a Kubernetes release is built with. Without them the server calls itself v0.0.0 and
    /// clients balk.
    pub(crate) fn linker_flags(&self) -> String {
        let mut numbers = self.kubernetes.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let package = "k8s.io/component-base/version";
        format!(
            "-s -w -X {package}.gitVersion={} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}",
            self.kubernetes
        )
    }
}

/// The version on the line `name version`, inside a `require` block or after the word `require`. A `tool` line has
/// no second word and a `replace` line begins with another one, so neither is taken for it.
fn directive(go_mod: &str, name: &'static str) -> Result<String, Error> {
    go_mod
        .lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let first = words.next().filter(|word| *word != "require").or_else(|| words.next())?;
            (first == name).then(|| words.next()).flatten()
        })
        .map(str::to_owned)
        .ok_or(Error::NoVersion(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module segue.dev/control-plane\n\ngo 1.30.4\n
        replace k8s.io/kubernetes => ../kubernetes v9.9.9\n
        tool go.etcd.io/etcd/server/v3\n
        tool (\n\tgo.etcd.io/etcd/server/v3\n)\n
        require sigs.k8s.io/gateway-api v1.2.3\n
        require (\n\tk8s.io/kubernetes v1.40.1 // indirect\n\tgo.etcd.io/etcd/server/v3 v3.9.0\n)\n";

    #[test]
    fn versions_come_from_require_lines_in_both_forms() {
        let versions = Versions::parse(GO_MOD).unwrap();
        assert_eq!(
            versions,
            Versions {
                kubernetes: "v1.40.1".into(),
                etcd: "v3.9.0".into(),
                gateway_api: "v1.2.3".into(),
                go: "1.30".into()
            }
        );
        assert_eq!(versions.cache_key(), "kubernetes-v1.40.1-etcd-v3.9.0");
    }

    #[test]
    fn the_server_knows_its_own_version() {
        let flags = Versions::parse(GO_MOD).unwrap().linker_flags();
        for flag in ["version.gitVersion=v1.40.1", "version.gitMajor=1", "version.gitMinor=40"] {
            assert!(flags.ends_with(flag) || flags.contains(&format!("{flag} ")), "{flag} in {flags}");
        }
    }

    #[test]
    fn a_missing_version_is_named() {
        let without = GO_MOD.replace("k8s.io/kubernetes v1.40.1", "");
        assert_eq!(
            Versions::parse(&without).unwrap_err().to_string(),
            "failed to find the version of k8s.io/kubernetes in control-plane/go.mod"
        );
    }

    #[test]
    fn the_go_mod_of_this_tree_is_complete() {
        let versions = Versions::pinned().unwrap();
        for version in [versions.kubernetes, versions.etcd, versions.gateway_api] {
            assert!(version.starts_with('v') && version.split('.').count() == 3, "{version}");
        }
    }

    #[test]
    fn go_sum_vouches_for_the_gateway_api() {
        // Nothing imports it, so `go mod tidy` leaves it out; then Go would add it to go.sum in the middle of a test.
        let line = format!("{GATEWAY_API} {} h1:", Versions::pinned().unwrap().gateway_api);
        assert!(include_str!("../control-plane/go.sum").contains(&line), "{line}");
    }
}
