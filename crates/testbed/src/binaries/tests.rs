use std::thread;

use super::*;

fn go(program: impl Into<PathBuf>) -> Go {
    Go { program: program.into(), module: MODULE.into(), versions: Versions::pinned().unwrap(), say: |_| () }
}

/// A `go` that writes its arguments where `-o` points and notes each build in `builds` beside it.
fn fake_go() -> Go {
    go(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-go/go"))
}

#[test]
fn every_program_is_built_once_however_many_ask() {
    let cache = tempfile::tempdir().unwrap();
    let folders: Vec<_> = thread::scope(|scope| {
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(|| fake_go().build_all(cache.path()))).collect();
        askers.into_iter().map(|asker| asker.join().unwrap().unwrap()).collect()
    });
    assert!(folders.iter().all(|folder| *folder == folders[0]));
    let builds = fs::read_to_string(folders[0].join("builds")).unwrap();
    let mut built: Vec<_> = builds.lines().collect();
    built.sort_unstable();
    let mut packages = TOOLS.map(|tool| tool.package);
    packages.sort_unstable();
    assert_eq!(built, packages);
}

#[test]
fn an_interrupted_build_is_not_taken_for_a_program() {
    let cache = tempfile::tempdir().unwrap();
    let go = fake_go();
    let folder = cache.path().join(go.versions.cache_key());
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("etcd.partial"), "half").unwrap();
    go.build_all(cache.path()).unwrap();
    let etcd = fs::read_to_string(folder.join("etcd")).unwrap();
    assert!(etcd.contains("-trimpath") && etcd.contains("CGO_ENABLED=0"), "{etcd}");
    assert!(!folder.join("etcd.partial").exists());
}

#[test]
fn a_failed_build_says_what_go_said() {
    let go = fake_go();
    let error = go.run("build it", ["explode"].map(OsStr::new)).unwrap_err();
    assert_eq!(error.to_string(), "failed to build it with Go: unknown command explode");
}

#[test]
fn without_go_the_error_is_one_line_that_says_what_to_do() {
    let go = go("/nowhere/go");
    let error = go.build_all(tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
    let begin = format!(
        "the real-Kubernetes suite needs Go {} or newer to build kube-apiserver once; ",
        go.versions.go
    );
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.contains("install Go or set KUBEBUILDER_ASSETS"), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn a_checkout_that_is_gone_is_not_taken_for_a_missing_go() {
    let go = Go { module: "/nowhere/control-plane".into(), ..fake_go() };
    let error = go.build_all(tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
    assert_eq!(error, "failed to run go in /nowhere/control-plane");
}

#[test]
fn a_missing_program_in_the_assets_is_named() {
    let assets = tempfile::tempdir().unwrap();
    for name in ["etcd", "kube-apiserver", "kubectl"] {
        fs::write(assets.path().join(name), "").unwrap();
    }
    let error = all_in(assets.path().to_owned()).unwrap_err().to_string();
    assert!(error.contains("/kube-controller-manager") && error.contains("KUBEBUILDER_ASSETS"), "{error}");
    fs::write(assets.path().join("kube-controller-manager"), "").unwrap();
    assert_eq!(all_in(assets.path().to_owned()).unwrap(), assets.path());
}

#[test]
fn the_target_directory_is_the_marked_one() {
    let target = tempfile::tempdir().unwrap();
    fs::write(target.path().join("CACHEDIR.TAG"), "").unwrap();
    let program = target.path().join("x86_64-unknown-linux-gnu/debug/deps/a_test-0123");
    assert_eq!(tagged_ancestor(&program).as_deref(), Some(target.path()));
}
