//! The programs of the control plane: found where `KUBEBUILDER_ASSETS` says, or built once with Go.
use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    Error, Versions,
    versions::{GATEWAY_API, MODULE},
};

const ASSETS: &str = "KUBEBUILDER_ASSETS";
const GATEWAY_CRDS: &str = "SEGUE_GATEWAY_CRDS";

/// A program and the Go package it is built from.
struct Tool {
    name: &'static str,
    package: &'static str,
    /// How long a first build takes on two idle cores.
    cost: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool { name: "etcd", package: "go.etcd.io/etcd/server/v3", cost: "1 minute" },
    Tool { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", cost: "6 minutes" },
    Tool {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        cost: "2 minutes",
    },
    Tool { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", cost: "1 minute" },
];

/// Where the programs and the Gateway API definitions are.
#[derive(Debug, Clone)]
pub struct Binaries {
    programs: PathBuf,
    gateway_crds: PathBuf,
}

impl Binaries {
    /// Finds them, or builds them and remembers them under the target directory. The first build of a release takes
    /// minutes; it blocks, and so do other test binaries that want the same.
    pub fn locate() -> Result<Self, Error> {
        let go = Go { program: "go".into(), module: MODULE.into(), versions: Versions::pinned()?, say };
        let programs = match env::var_os(ASSETS) {
            Some(folder) => all_in(folder.into())?,
            None => go.build_all(&target_directory().join("testbed/control-plane"))?,
        };
        let gateway_crds = match env::var_os(GATEWAY_CRDS).map(PathBuf::from) {
            Some(folder) if !folder.is_dir() => {
                return Err(Error::Missing { path: folder, variable: GATEWAY_CRDS });
            }
            Some(folder) => folder,
            None => go.gateway_api()?.join("config/crd/standard"),
        };
        Ok(Self { programs, gateway_crds })
    }

    /// etcd.
    pub fn etcd(&self) -> PathBuf {
        self.programs.join("etcd")
    }

    /// kube-apiserver.
    pub fn apiserver(&self) -> PathBuf {
        self.programs.join("kube-apiserver")
    }

    /// kube-controller-manager.
    pub fn controller_manager(&self) -> PathBuf {
        self.programs.join("kube-controller-manager")
    }

    /// kubectl.
    pub fn kubectl(&self) -> PathBuf {
        self.programs.join("kubectl")
    }

    /// The folder of the Gateway API definitions, standard channel.
    pub fn gateway_crds(&self) -> &Path {
        &self.gateway_crds
    }
}

/// The folder, if it holds every program. setup-envtest leaves kube-controller-manager out, so this is not a formality.
fn all_in(folder: PathBuf) -> Result<PathBuf, Error> {
    match TOOLS.iter().map(|tool| folder.join(tool.name)).find(|path| !path.is_file()) {
        Some(path) => Err(Error::Missing { path, variable: ASSETS }),
        None => Ok(folder),
    }
}

/// The target directory of this build. Cargo marks it with a `CACHEDIR.TAG`, which finds it from the test's own path
/// whatever the profile, the target triple or the configuration; a relative `CARGO_TARGET_DIR` would be relative to a
/// directory we no longer know.
pub(crate) fn target_directory() -> PathBuf {
    let named = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let tagged = || env::current_exe().ok().and_then(|program| tagged_ancestor(&program));
    named.or_else(tagged).unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}

fn tagged_ancestor(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|ancestor| ancestor.join("CACHEDIR.TAG").is_file()).map(Path::to_owned)
}

/// The Go toolchain at work in the control plane's module.
struct Go {
    program: PathBuf,
    module: PathBuf,
    versions: Versions,
    /// Tells a person why nothing happens for minutes.
    say: fn(&str),
}

impl Go {
    /// The folder under `cache` that holds this release, with every program in it.
    fn build_all(&self, cache: &Path) -> Result<PathBuf, Error> {
        let folder = cache.join(self.versions.cache_key());
        if TOOLS.iter().all(|tool| folder.join(tool.name).is_file()) {
            return Ok(folder);
        }
        // Before a word about building: is there a Go at all?
        self.run("run", ["version"].map(OsStr::new))?;
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        // Held until the end of this function; another test binary waits here and then finds the work done.
        let lock = File::create(folder.join("lock")).map_err(Error::io("create the build lock"))?;
        lock.lock().map_err(Error::io("take the build lock"))?;
        for tool in TOOLS.iter().filter(|tool| !folder.join(tool.name).is_file()) {
            self.build(tool, &folder)?;
        }
        Ok(folder)
    }

    /// Builds under another name first: a program that exists is a whole program.
    fn build(&self, tool: &Tool, folder: &Path) -> Result<(), Error> {
        let version = if tool.name == "etcd" { &self.versions.etcd } else { &self.versions.kubernetes };
        let name = format!("{} {version}", tool.name);
        (self.say)(&format!("building {name} with Go, once, about {} on two cores ...", tool.cost));
        let partial = folder.join(format!("{}.partial", tool.name));
        #[expect(
            clippy::disallowed_methods,
            reason = "tells a person how long the build took, decides nothing"
        )]
        let begin = std::time::Instant::now();
        let flags = self.versions.linker_flags();
        let arguments = ["build", "-trimpath", "-ldflags", &flags, "-o"].map(OsStr::new);
        self.run(
            &format!("build {name}"),
            arguments.into_iter().chain([partial.as_os_str(), OsStr::new(tool.package)]),
        )?;
        let program = folder.join(tool.name);
        fs::rename(&partial, &program).map_err(Error::io(format!("name {}", program.display())))?;
        (self.say)(&format!("built {name} in {} s", begin.elapsed().as_secs()));
        Ok(())
    }

    /// The sources of the Gateway API in Go's module cache, which `go.sum` vouches for.
    fn gateway_api(&self) -> Result<PathBuf, Error> {
        let action = "download the Gateway API definitions";
        let module = format!("{GATEWAY_API}@{}", self.versions.gateway_api);
        let output = self.run(action, ["mod", "download", "-json", &module].map(OsStr::new))?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        answer["Dir"].as_str().map(PathBuf::from).ok_or_else(|| Error::Go {
            action: action.to_owned(),
            stderr: format!("it named no folder for {module}"),
        })
    }

    fn run<'a>(&self, action: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<Output, Error> {
        let output = Command::new(&self.program)
            .args(arguments)
            .current_dir(&self.module)
            .env("CGO_ENABLED", "0")
            .output()
            .map_err(|source| match source.kind() {
                // A missing folder looks the same: Cargo takes two checkouts that share a target directory for one,
                // and may run what it built from a checkout that is gone.
                io::ErrorKind::NotFound if self.module.is_dir() => Error::NoGo(self.versions.go.clone()),
                _ => Error::Io { action: format!("run go in {}", self.module.display()), source },
            })?;
        if output.status.success() {
            return Ok(output);
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Go { action: action.to_owned(), stderr })
    }
}

/// Speaks past the test harness, which would hold back what `eprintln` says until the test has failed.
pub(crate) fn say(line: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr(), "testbed: {line}");
}

#[cfg(test)]
mod tests;
