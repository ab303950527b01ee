//! Rotation of the webhook's certificate: replicas share it in a Secret, renew it before it expires, and serve it only once
//! the API trusts it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rustls::ServerConfig;
use serde_json::json;

use super::{
    SECRET, SERVICE,
    certificate::{Certificate, Resolver},
    tls,
};
use crate::{manifests, output::Error};

/// Annotation of the Secret: when the certificate expires, in seconds since 1970.
const EXPIRES: &str = "segue.dev/expires";

/// The wait before the next step while a rotation is under way.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a certificate is valid, and how often it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) certificate: Duration,
    pub(crate) check_interval: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { certificate: Duration::from_hours(90 * 24), check_interval: Duration::from_mins(1) }
    }
}

/// Rotates the certificate of one replica's webhook.
pub(crate) struct Rotation {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    configuration: String,
    names: Vec<String>,
    lifetimes: Lifetimes,
    clock: fn() -> Duration,
    resolver: Arc<Resolver>,
}

impl Rotation {
    /// Returns the rotation for the operator of a namespace. On loopback the certificate names loopback, too.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        on_loopback: bool,
        lifetimes: Lifetimes,
        clock: fn() -> Duration,
    ) -> Self {
        let mut names = vec![format!("{SERVICE}.{namespace}.svc")];
        if on_loopback {
            names.extend(["127.0.0.1", "localhost"].map(String::from));
        }
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client),
            configuration: manifests::cluster_wide(namespace),
            names,
            lifetimes,
            clock,
            resolver: Arc::default(),
        }
    }

    pub(crate) fn resolver(&self) -> Arc<Resolver> {
        Arc::clone(&self.resolver)
    }

    pub(crate) fn tls(&self) -> Result<Arc<ServerConfig>, Error> {
        tls(self.resolver())
    }

    /// Rotates for ever. A failed step is logged and repeated.
    pub(crate) async fn run(self) {
        let mut logged = String::new();
        loop {
            let wait = match self.step().await {
                Ok(true) => self.lifetimes.check_interval,
                Ok(false) => RETRY_INTERVAL,
                // Another replica has written the Secret first.
                Err(kube::Error::Api(status)) if status.code == 409 => RETRY_INTERVAL,
                Err(error) => {
                    let line = format!("note: failed to rotate the webhook's certificate: {error}; retrying");
                    if line != logged {
                        eprintln!("{line}");
                        logged = line;
                    }
                    RETRY_INTERVAL.max(self.lifetimes.check_interval / 10)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes the next step of a rotation. Returns whether none is left.
    async fn step(&self) -> Result<bool, kube::Error> {
        let certificate = self.ensure_secret().await?;
        let trusted = self.ensure_trusted(&certificate).await?;
        // Without a certificate, one that is not trusted yet is served; else only one that the API trusted before this step.
        if (trusted || !self.resolver.is_set()) && !self.resolver.serves(&certificate) {
            self.resolver.set(&certificate);
        }
        Ok(trusted)
    }

    /// Returns the certificate of the Secret, after making or renewing it if that is due.
    async fn ensure_secret(&self) -> Result<Certificate, kube::Error> {
        let now = (self.clock)();
        let secret = self.secrets.get_opt(SECRET).await?;
        let known = secret.as_ref().and_then(read);
        let life = self.lifetimes.certificate;
        if let Some(certificate) = known.as_ref().filter(|certificate| !certificate.is_old(now, life)) {
            return Ok(certificate.clone());
        }
        let before = known.as_ref().map(|known| known.authorities.as_str());
        let made = Certificate::make(&self.names, now, life, before)
            .map_err(|error| kube::Error::Service(Box::new(error)))?;
        let wanted = written(&made, secret.as_ref());
        match secret {
            None => self.secrets.create(&PostParams::default(), &wanted).await?,
            // With its resourceVersion: of two replicas that renew, one succeeds.
            Some(_) => self.secrets.replace(SECRET, &PostParams::default(), &wanted).await?,
        };
        Ok(made)
    }

    /// Writes the authorities of a certificate into the webhook configuration. Returns whether they were there already.
    async fn ensure_trusted(&self, certificate: &Certificate) -> Result<bool, kube::Error> {
        let live = match self.configurations.get(&self.configuration).await {
            Ok(live) => live,
            // Without a configuration, the API does not call this webhook.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
            Err(error) => return Err(error),
        };
        let bundle = ByteString(certificate.authorities.clone().into_bytes());
        let hooks = live.webhooks.unwrap_or_default();
        if hooks.iter().all(|hook| hook.client_config.ca_bundle.as_ref() == Some(&bundle)) {
            return Ok(true);
        }
        let hooks: Vec<_> = hooks
            .iter()
            .map(|hook| json!({"name": hook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        let patch = Patch::Strategic(json!({"webhooks": hooks}));
        let ours = PatchParams {
            field_manager: Some(controllers::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.configurations.patch(&self.configuration, &ours, &patch).await?;
        Ok(false)
    }
}

fn read(secret: &Secret) -> Option<Certificate> {
    let text = |name: &str| {
        let bytes = secret.data.as_ref()?.get(name)?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    let expires = secret.metadata.annotations.as_ref()?.get(EXPIRES)?.parse().ok()?;
    Some(Certificate {
        authorities: text("ca.crt")?,
        chain: text("tls.crt")?,
        key: text("tls.key")?,
        expires: Duration::from_secs(expires),
    })
}

fn written(certificate: &Certificate, before: Option<&Secret>) -> Secret {
    let mut metadata = before.map(|secret| secret.metadata.clone()).unwrap_or_default();
    metadata.name = Some(SECRET.to_owned());
    let expires = certificate.expires.as_secs().to_string();
    metadata.annotations.get_or_insert_default().insert(EXPIRES.to_owned(), expires);
    let data = [
        ("ca.crt", &certificate.authorities),
        ("tls.crt", &certificate.chain),
        ("tls.key", &certificate.key),
    ];
    let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes())));
    Secret {
        metadata,
        data: Some(data.into()),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests;
