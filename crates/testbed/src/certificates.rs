//! The keys of one cluster: they live in its directory, readable by us alone, and end with it.
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::Error;

/// Where the files are that kube-apiserver and kube-controller-manager are started with.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// The authority's certificate; its key is never written.
    pub(crate) ca: PathBuf,
    /// What the server shows.
    pub(crate) serving: PathBuf,
    /// The key of what the server shows.
    pub(crate) serving_key: PathBuf,
    /// What signs the tokens of service accounts.
    pub(crate) service_account_key: PathBuf,
    /// What checks them. The server would take a private key here, but not in the PKCS #8 form that we write.
    pub(crate) service_account_public_key: PathBuf,
}

impl Certificates {
    /// Makes all of them and writes them into `directory`.
    pub(crate) fn write(directory: &Path) -> Result<Self, Error> {
        let ca = CertifiedIssuer::self_signed(authority(), KeyPair::generate()?)?;
        let serving_key = KeyPair::generate()?;
        let tokens_key = KeyPair::generate()?;
        let serving = serving()?.signed_by(&serving_key, &ca)?;
        Ok(Self {
            ca: write_private(directory, "ca.crt", &ca.pem())?,
            serving: write_private(directory, "serving.crt", &serving.pem())?,
            serving_key: write_private(directory, "serving.key", &serving_key.serialize_pem())?,
            service_account_key: write_private(directory, "tokens.key", &tokens_key.serialize_pem())?,
            service_account_public_key: write_private(directory, "tokens.pub", &tokens_key.public_key_pem())?,
        })
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "segue test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn serving() -> Result<CertificateParams, rcgen::Error> {
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(String::from);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Writes a new file that only we can read.
pub(crate) fn write_private(directory: &Path, name: &str, contents: &str) -> Result<PathBuf, Error> {
    let path = directory.join(name);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(contents.as_bytes()))
        .map_err(Error::io(format!("write {}", path.display())))?;
    Ok(path)
}

/// A random bearer token.
pub(crate) fn random_token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(Error::io("read random bytes for a token"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn every_file_is_readable_by_us_alone() {
        let directory = tempfile::tempdir().unwrap();
        Certificates::write(directory.path()).unwrap();
        let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
        assert_eq!(files.len(), 5);
        for file in files {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", file.path().display());
        }
    }

    #[test]
    fn no_two_tokens_are_the_same() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
