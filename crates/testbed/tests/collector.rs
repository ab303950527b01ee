//! What is left after owners, namespaces and definitions are deleted: the same here as on a cluster.
//!
//! Every story runs on the embedded API, and with `--ignored` on a real control plane. A line of a story is a request;
//! a line that begins with `=` is what there must be then, and stay.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, not in helpers of tests"
)]
use std::{collections::HashMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use testbed::{Embedded, eventually};

const SOON: Duration = Duration::from_secs(30);

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Where a story is told.
struct Stage {
    maps: Api<ConfigMap>,
    elsewhere: Api<ConfigMap>,
    uids: HashMap<String, String>,
    canaries: usize,
}

impl Stage {
    fn new(client: &Client, namespace: &str, elsewhere: &str) -> Self {
        Self {
            maps: Api::namespaced(client.clone(), namespace),
            elsewhere: Api::namespaced(client.clone(), elsewhere),
            uids: HashMap::new(),
            canaries: 0,
        }
    }

    async fn run(&mut self, story: &str) {
        for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["=", expected @ ..] => self.expect(line, &expected.join(" ")).await,
                ["make", name, rest @ ..] => self.make(name, rest).await,
                ["delete", name, policy] => {
                    let options = match *policy {
                        "Background" => DeleteParams::background(),
                        "Foreground" => DeleteParams::foreground(),
                        "Orphan" => DeleteParams::orphan(),
                        other => panic!("no such policy: {other}"),
                    };
                    self.maps.delete(name, &options).await.unwrap();
                }
                ["release", name] => self.patch(name, json!({"finalizers": null})).await,
                ["disown", name] => self.patch(name, json!({"ownerReferences": null})).await,
                _ => panic!("no such line: {line}"),
            }
        }
    }

    async fn patch(&self, name: &str, metadata: Value) {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// `of a b! c?`: owned by a, by b which waits for it, and by something with the name c and another uid.
    async fn make(&mut self, name: &str, rest: &[&str]) {
        let (mut owners, mut finalizers, mut holding) = (Vec::new(), Vec::new(), false);
        for word in rest {
            match *word {
                "of" => holding = false,
                "held" => holding = true,
                finalizer if holding => finalizers.push(json!(finalizer)),
                owner => owners.push(self.owner(owner)),
            }
        }
        let (api, plain) = match name.strip_prefix("elsewhere/") {
            Some(plain) => (&self.elsewhere, plain),
            None => (&self.maps, name),
        };
        let metadata = json!({"name": plain, "ownerReferences": owners, "finalizers": finalizers});
        let made = api.create(&PostParams::default(), &object(json!({"metadata": metadata}))).await.unwrap();
        self.uids.insert(name.to_owned(), made.uid().unwrap());
    }

    fn owner(&self, word: &str) -> Value {
        let name = word.trim_end_matches(['!', '?']);
        let plain = name.trim_start_matches("elsewhere/");
        let uid = self.uids.get(name).filter(|_| !word.ends_with('?')).cloned();
        let uid = uid.unwrap_or_else(|| "11111111-2222-3333-4444-555555555555".to_owned());
        let blocks = word.ends_with('!');
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": plain, "uid": uid, "blockOwnerDeletion": blocks})
    }

    /// Every object with what holds it and who owns it.
    async fn state(&self) -> String {
        let list = self.maps.list(&ListParams::default()).await.unwrap();
        let mut lines: Vec<String> = Vec::new();
        for map in list.items {
            let name = map.name_any();
            if name == "kube-root-ca.crt" || name.starts_with("canary") {
                continue;
            }
            let leaving = if map.metadata.deletion_timestamp.is_some() { " leaves" } else { "" };
            let mut line = format!("{name}{leaving}");
            for finalizer in map.finalizers() {
                line += &format!(" {finalizer}");
            }
            for (index, owner) in map.owner_references().iter().enumerate() {
                let of = if index == 0 { " of" } else { "" };
                let blocks = if owner.block_owner_deletion == Some(true) { "!" } else { "" };
                line += &format!("{of} {}{blocks}", owner.name);
            }
            lines.push(line);
        }
        lines.join(", ")
    }

    async fn expect(&mut self, line: &str, expected: &str) {
        let mut last = String::new();
        let seen = eventually(line, SOON, async || {
            last = self.state().await;
            (last == expected).then_some(())
        });
        if let Err(error) = seen.await {
            panic!("{error}; there is: {last}");
        }
        // Whatever the collector still had to do, it has done when it has collected this.
        self.canary().await;
        assert_eq!(self.state().await, expected, "it did not stay so");
    }

    async fn canary(&mut self) {
        self.canaries += 1;
        let (owner, follower) =
            (format!("canary-{}", self.canaries), format!("canary-{}-owned", self.canaries));
        self.make(&owner, &[]).await;
        self.make(&follower, &["of", &owner]).await;
        self.maps.delete(&owner, &DeleteParams::background()).await.unwrap();
        let gone = async || self.maps.get_opt(&follower).await.unwrap().is_none().then_some(());
        eventually("the canary collected", SOON, gone).await.unwrap();
    }
}

/// What an API that is not a cluster has in its namespaces: nothing.
async fn namespace(client: &Client, name: &str) {
    let namespace: Namespace = object(json!({"metadata": {"name": name}}));
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

macro_rules! promises {
    ($($name:ident: $story:literal)*) => {
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                let embedded = super::Embedded::start().await.unwrap();
                let client = embedded.client();
                super::namespace(&client, "here").await;
                super::namespace(&client, "elsewhere").await;
                super::Stage::new(&client, "here", "elsewhere").run($story).await;
            })*
        }

        mod cluster {
            $(#[tokio::test]
            #[ignore = "needs a control plane"]
            async fn $name() {
                let cluster = testbed::Cluster::shared().await;
                let here = cluster.namespace("here").await.unwrap();
                let elsewhere = cluster.namespace("elsewhere").await.unwrap();
                super::Stage::new(&cluster.client(), &here, &elsewhere).run($story).await;
            })*
        }
    };
}

promises! {
    what_an_owner_has_goes_after_it: "
        make a
        make b of a
        make c of b
        make d
        delete a Background
        = d"
    in_the_foreground_an_owner_goes_after_what_it_waits_for: "
        make a
        make b of a! held segue.test/hold
        make c of a
        delete a Foreground
        = a leaves foregroundDeletion, b leaves segue.test/hold of a!
        release b
        = "
    in_the_foreground_nobody_waits_for_what_does_not_block: "
        make a
        make b of a held segue.test/hold
        delete a Foreground
        = b leaves segue.test/hold of a
        release b
        = "
    in_the_foreground_a_chain_goes_from_its_end: "
        make a
        make b of a!
        make c of b! held segue.test/hold
        delete a Foreground
        = a leaves foregroundDeletion, b leaves foregroundDeletion of a!, c leaves segue.test/hold of b!
        release c
        = "
    orphans_forget_their_owner_and_stay: "
        make a
        make b of a
        make c of b
        delete a Orphan
        = b, c of b"
    a_second_owner_keeps_an_object: "
        make a
        make b
        make c of a b
        delete a Background
        = b, c of b
        delete b Background
        = "
    a_second_owner_keeps_an_object_in_the_foreground_too: "
        make a
        make b
        make c of a! b!
        delete a Foreground
        = b, c of b!"
    an_owner_need_not_wait_for_what_is_taken_from_it: "
        make a
        make b of a! held segue.test/hold
        delete a Foreground
        = a leaves foregroundDeletion, b leaves segue.test/hold of a!
        disown b
        = b leaves segue.test/hold"
    an_owner_of_the_same_name_is_another_one: "
        make a
        make b of a?
        = a"
    an_owner_is_in_the_same_namespace: "
        make elsewhere/a
        make b of elsewhere/a
        = "
    what_is_made_after_its_owner_died_follows_it: "
        make a
        delete a Background
        make b of a
        = "
    an_owner_that_is_held_keeps_what_it_has: "
        make a held segue.test/hold
        make b of a
        delete a Background
        = a leaves segue.test/hold, b of a
        release a
        = "
    what_is_held_leaves_when_it_is_let_go: "
        make a
        make b of a held segue.test/hold
        delete a Background
        = b leaves segue.test/hold of a
        release b
        = "
    an_object_that_asked_to_orphan_what_it_has_is_obeyed: "
        make a
        make b of a held orphan
        make c of b
        delete a Background
        = c"
}

/// Two that wait for each other, made by hand: the second is named before it exists.
async fn circle(client: &Client, namespace: &str) {
    let mut stage = Stage::new(client, namespace, namespace);
    stage.run("make a\nmake b of a!").await;
    let owner = stage.owner("b!");
    stage.patch("a", json!({"ownerReferences": [owner]})).await;
    stage.run("= a of b!, b of a!\ndelete a Foreground\n= ").await;
}

/// A kind that is not in a namespace cannot be owned by something in one.
async fn unclear_owner(client: &Client, namespace: &str) {
    let mut stage = Stage::new(client, namespace, namespace);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    stage.run("make a").await;
    let name = format!("{namespace}-owned");
    let owned = json!({"metadata": {"name": name, "ownerReferences": [stage.owner("a")]}});
    namespaces.create(&PostParams::default(), &object(owned)).await.unwrap();
    stage.run("delete a Background\n= ").await;
    let owned = namespaces.get(&name).await.unwrap();
    assert!(owned.metadata.deletion_timestamp.is_none(), "it stays");
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
}

/// A namespace goes when the last thing in it is let go; nothing can be put into it meanwhile.
async fn leaving_namespace(client: &Client, namespace: &str) {
    let mut stage = Stage::new(client, namespace, namespace);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    stage.run("make a\nmake b held segue.test/hold").await;
    namespaces.delete(namespace, &DeleteParams::default()).await.unwrap();
    eventually("the namespace emptied", SOON, async || {
        (stage.state().await == "b leaves segue.test/hold").then_some(())
    })
    .await
    .unwrap();
    let there = namespaces.get(namespace).await.unwrap();
    assert_eq!(there.status.unwrap().phase.unwrap(), "Terminating");
    let late: ConfigMap = object(json!({"metadata": {"name": "late"}}));
    let refused = stage.maps.create(&PostParams::default(), &late).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    stage.run("release b").await;
    let gone = async || namespaces.get_opt(namespace).await.unwrap().is_none().then_some(());
    eventually("the namespace gone", SOON, gone).await.unwrap();
}

/// The definition of a kind of which nothing is known, with its name.
fn gadgets_definition() -> (&'static str, CustomResourceDefinition) {
    let name = "gadgets.collector.segue.test";
    let definition = json!({
        "metadata": {"name": name},
        "spec": {
            "group": "collector.segue.test",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    (name, object(definition))
}

/// A definition goes after its objects, and its kind is no longer served then.
async fn leaving_definition(client: &Client, namespace: &str) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (name, definition) = gadgets_definition();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("collector.segue.test", "v1", "Gadget"));
    let gadgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let gadget = |name: &str, finalizers: &[&str]| {
        let metadata = json!({"name": name, "finalizers": finalizers});
        object::<DynamicObject>(
            json!({"apiVersion": "collector.segue.test/v1", "kind": "Gadget", "metadata": metadata}),
        )
    };
    let options = PostParams::default();
    let held = gadget("held", &["segue.test/hold"]);
    eventually("the kind served", SOON, async || gadgets.create(&options, &held).await.ok()).await.unwrap();
    gadgets.create(&options, &gadget("free", &[])).await.unwrap();
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    eventually("what nobody holds gone", SOON, async || {
        gadgets.get_opt("free").await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
    assert!(gadgets.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
    let late = gadgets.create(&options, &gadget("late", &[])).await.unwrap_err();
    let kube::Error::Api(status) = late else { panic!("{late}") };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    gadgets.patch("held", &PatchParams::default(), &release).await.unwrap();
    let gone = async || definitions.get_opt(name).await.unwrap().is_none().then_some(());
    eventually("the definition gone", SOON, gone).await.unwrap();
    eventually("the kind not served", SOON, async || {
        let refused = gadgets.list(&ListParams::default()).await.err()?;
        matches!(refused, kube::Error::Api(status) if status.code == 404).then_some(())
    })
    .await
    .unwrap();
}

macro_rules! tales {
    ($($name:ident: $tale:ident)*) => {
        mod embedded_tales {
            $(#[tokio::test]
            async fn $name() {
                let embedded = super::Embedded::start().await.unwrap();
                super::namespace(&embedded.client(), "here").await;
                super::$tale(&embedded.client(), "here").await;
            })*
        }

        mod cluster_tales {
            $(#[tokio::test]
            #[ignore = "needs a control plane"]
            async fn $name() {
                let cluster = testbed::Cluster::shared().await;
                let namespace = cluster.namespace("tale").await.unwrap();
                super::$tale(&cluster.client(), &namespace).await;
            })*
        }
    };
}

tales! {
    a_circle_of_owners_that_wait_for_each_other_is_broken: circle
    an_owner_in_an_unknown_namespace_is_never_gone: unclear_owner
    a_namespace_goes_after_what_is_in_it: leaving_namespace
    a_definition_goes_after_its_objects: leaving_definition
}

/// A cluster's collector may not have heard of a kind before it is gone; ours always has.
#[tokio::test]
async fn what_belongs_to_the_objects_of_a_definition_goes_with_it() {
    let embedded = Embedded::start().await.unwrap();
    let client = embedded.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (name, definition) = gadgets_definition();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("collector.segue.test", "v1", "Gadget"));
    let gadgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let owner = object::<DynamicObject>(
        json!({"apiVersion": "collector.segue.test/v1", "kind": "Gadget", "metadata": {"name": "owner"}}),
    );
    let options = PostParams::default();
    let owner = eventually("the kind served", SOON, async || gadgets.create(&options, &owner).await.ok());
    let uid = owner.await.unwrap().metadata.uid;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let reference =
        json!({"apiVersion": "collector.segue.test/v1", "kind": "Gadget", "name": "owner", "uid": uid});
    let map = object(json!({"metadata": {"name": "owned", "ownerReferences": [reference]}}));
    maps.create(&options, &map).await.unwrap();
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    eventually("the definition gone", SOON, async || {
        definitions.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
    eventually("what belonged to its object gone", SOON, async || {
        maps.get_opt("owned").await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
}
