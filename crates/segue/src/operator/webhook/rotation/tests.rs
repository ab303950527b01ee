use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use testbed::Embedded;

use super::*;

const LIFE: Duration = Duration::from_mins(30);

const START: u64 = 1_000_000_000;

/// The seconds of the clock.
static NOW: AtomicU64 = AtomicU64::new(START);

fn clock() -> Duration {
    Duration::from_secs(NOW.load(Relaxed))
}

fn rotation(client: &Client) -> Rotation {
    let lifetimes = Lifetimes { certificate: LIFE, check_interval: Duration::from_secs(1) };
    Rotation::new(client.clone(), "default", false, lifetimes, clock)
}

#[tokio::test]
async fn a_certificate_is_shared_and_renewed_without_a_gap() {
    let api = Embedded::start().await.unwrap();
    let client = api.client();
    let (one, other) = (rotation(&client), rotation(&client));

    assert!(one.step().await.unwrap() && other.step().await.unwrap());
    let first = one.ensure_secret().await.unwrap();
    assert!(one.resolver.serves(&first) && other.resolver.serves(&first), "both show the one of the Secret");
    assert!(one.step().await.unwrap());
    assert_eq!(one.ensure_secret().await.unwrap(), first, "nothing is renewed before its time");

    NOW.fetch_add(LIFE.as_secs() * 2 / 3, Relaxed);
    let second = one.ensure_secret().await.unwrap();
    assert_ne!(second.chain, first.chain);
    assert!(second.authorities.ends_with(&first.authorities), "who still shows the first is trusted");
    assert_eq!(other.ensure_secret().await.unwrap(), second, "the other takes what is there");

    // Nobody asks here, so nobody must trust it first.
    assert!(other.step().await.unwrap() && other.resolver.serves(&second));
    assert!(one.resolver.serves(&first), "it has not looked again");
}

/// The clock of the test below.
static LATER: AtomicU64 = AtomicU64::new(START);

/// The API must know whom to trust before it is shown: else objects would pass unseen for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane"]
async fn what_is_shown_was_trusted_before() {
    use serde_json::json;
    let cluster = testbed::Cluster::start_with(testbed::Parts { controllers: false, ..Default::default() });
    let cluster = cluster.await.unwrap();
    let client = cluster.client();
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let hook = |name: &str| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        })
    };
    let names = ["one.validate.segue.dev", "two.validate.segue.dev"];
    let body = json!({"metadata": {"name": "segue.default"}, "webhooks": names.map(hook)});
    hooks.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let foreign = json!({"metadata": {"name": "foreign"}, "webhooks": [hook("one.validate.segue.dev")]});
    hooks.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let trusted = async |configuration: &str| -> Vec<Option<String>> {
        let hooks = hooks.get(configuration).await.unwrap().webhooks.unwrap();
        let text = |bundle: ByteString| String::from_utf8(bundle.0).unwrap();
        hooks.into_iter().map(|hook| hook.client_config.ca_bundle.map(text)).collect()
    };
    let one = Rotation { clock: || Duration::from_secs(LATER.load(Relaxed)), ..rotation(&client) };

    assert!(!one.step().await.unwrap(), "it must be looked at again whether the API knows");
    assert!(one.resolver.is_set(), "one that is not trusted yet is better than none");
    assert!(one.step().await.unwrap());
    let first = one.ensure_secret().await.unwrap();
    assert_eq!(
        trusted("segue.default").await,
        [Some(first.authorities.clone()), Some(first.authorities.clone())]
    );

    LATER.fetch_add(LIFE.as_secs() * 2 / 3, Relaxed);
    assert!(!one.step().await.unwrap());
    assert!(one.resolver.serves(&first), "the new one is not shown before the API has learnt of it");
    let second = one.ensure_secret().await.unwrap();
    assert_eq!(trusted("segue.default").await[1].as_ref(), Some(&second.authorities));
    assert!(one.step().await.unwrap() && one.resolver.serves(&second));
    assert_eq!(trusted("foreign").await, [None], "others' configurations are not ours");
}

#[test]
fn what_is_written_is_read_and_anything_else_is_made_anew() {
    let made = Certificate::make(&["x.svc".to_owned()], Duration::from_secs(START), LIFE, None).unwrap();
    let secret = written(&made, None);
    assert_eq!(read(&secret), Some(made.clone()));
    let mut odd = secret.clone();
    odd.metadata.annotations = None;
    assert_eq!(read(&odd), None);
    let mut before = secret;
    before.metadata.resource_version = Some("7".to_owned());
    assert_eq!(written(&made, Some(&before)).metadata.resource_version.as_deref(), Some("7"));
}
