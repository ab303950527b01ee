//! Volumes as directories. There are no mount namespaces here, so a `mountPath` is not where a container's own root
//! would have it: `/models` is `$SEGUE_ROOT/models`, a link in the container's working directory, and the
//! volume itself is in `$SEGUE_VOLUME_<NAME>`. `"${SEGUE_ROOT}/models"` is therefore right here and in a real
//! container alike. Files are written before a start and not kept up to date.
pub(crate) mod sources;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, Pod, PodSpec, Volume, VolumeProjection,
};

use crate::{
    container::environment::{EnvironmentError, PodInfo, field, resource},
    volume::sources::{Entries, Sources},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error(transparent)]
    Reference(#[from] EnvironmentError),
    #[error("failed to write volume {volume}: {source}")]
    Io { volume: String, source: io::Error },
    #[error("volume {0} has a path that leaves it")]
    Path(String),
}

/// The first volume that needs a real mount, which this node cannot make.
pub(crate) fn unsupported(spec: &PodSpec) -> Option<&str> {
    let can = |volume: &&Volume| {
        volume.empty_dir.is_some()
            || volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.downward_api.is_some()
            || volume.projected.is_some()
            || volume.host_path.is_some()
    };
    spec.volumes.iter().flatten().find(|volume| !can(volume)).map(|volume| volume.name.as_str())
}

/// The variable that holds the directory of a volume.
pub(crate) fn variable(volume: &str) -> String {
    let name = volume.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    format!("SEGUE_VOLUME_{}", name.collect::<String>())
}

/// The directory of a volume.
pub(crate) fn directory(pod_directory: &Path, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        Some(host) => PathBuf::from(&host.path),
        None => pod_directory.join("volumes").join(&volume.name),
    }
}

/// Writes the volumes of a pod below its directory.
pub(crate) fn write(place: PodInfo<'_>, sources: &Sources, pod_directory: &Path) -> Result<(), VolumeError> {
    let volumes = place.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes.filter(|volume| volume.host_path.is_none()) {
        let directory = directory(pod_directory, volume);
        let failed = |source| VolumeError::Io { volume: volume.name.clone(), source };
        fs::create_dir_all(&directory).map_err(failed)?;
        for (path, content) in files(place, volume, sources)? {
            let file = inside(&directory, &path).ok_or_else(|| VolumeError::Path(volume.name.clone()))?;
            write_file(&file, &content, volume.secret.is_some()).map_err(failed)?;
        }
    }
    Ok(())
}

fn write_file(file: &Path, content: &[u8], private: bool) -> io::Result<()> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(file, content)?;
    fs::set_permissions(file, fs::Permissions::from_mode(if private { 0o600 } else { 0o644 }))
}

/// A relative path that stays below the directory.
fn inside(directory: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let stays = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    stays.then(|| directory.join(path))
}

/// The files of a volume, by path.
fn files(place: PodInfo<'_>, volume: &Volume, sources: &Sources) -> Result<Entries, EnvironmentError> {
    if let Some(map) = &volume.config_map {
        return chosen(sources.config_map(&map.name, map.optional)?, map.items.as_deref(), &map.name);
    }
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        return chosen(sources.secret(name, secret.optional)?, secret.items.as_deref(), name);
    }
    if let Some(downward) = &volume.downward_api {
        return downward_files(place, downward.items.as_deref().unwrap_or_default());
    }
    let mut files = Entries::new();
    for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        files.extend(projected_files(place, source, sources)?);
    }
    Ok(files)
}

/// Tokens are left out: nothing on this machine authenticates pods.
fn projected_files(
    place: PodInfo<'_>,
    source: &VolumeProjection,
    sources: &Sources,
) -> Result<Entries, EnvironmentError> {
    if let Some(map) = &source.config_map {
        return chosen(sources.config_map(&map.name, map.optional)?, map.items.as_deref(), &map.name);
    }
    if let Some(secret) = &source.secret {
        return chosen(sources.secret(&secret.name, secret.optional)?, secret.items.as_deref(), &secret.name);
    }
    let items = source.downward_api.as_ref().and_then(|downward| downward.items.as_deref());
    downward_files(place, items.unwrap_or_default())
}

fn chosen(
    entries: Option<&Entries>,
    items: Option<&[KeyToPath]>,
    object: &str,
) -> Result<Entries, EnvironmentError> {
    let (Some(entries), Some(items)) = (entries, items) else {
        return Ok(entries.cloned().unwrap_or_default());
    };
    let file = |item: &KeyToPath| match entries.get(&item.key) {
        Some(value) => Ok((item.path.clone(), value.clone())),
        None => Err(EnvironmentError::NoKey { object: object.to_owned(), key: item.key.clone() }),
    };
    items.iter().map(file).collect()
}

fn downward_files(place: PodInfo<'_>, items: &[DownwardAPIVolumeFile]) -> Result<Entries, EnvironmentError> {
    let content = |item: &DownwardAPIVolumeFile| {
        if let Some(reference) = &item.field_ref {
            return field(place, &reference.field_path);
        }
        let Some(reference) = &item.resource_field_ref else {
            return Err(EnvironmentError::Field(item.path.clone()));
        };
        let name = reference.container_name.as_deref().unwrap_or_default();
        let containers = place.pod.spec.iter().flat_map(|spec| &spec.containers);
        let container = containers.into_iter().find(|container| container.name == name);
        let container = container.ok_or_else(|| EnvironmentError::NoObject(format!("container {name}")))?;
        let divisor = reference.divisor.as_ref().map(|divisor| divisor.0.as_str());
        resource(container, &reference.resource, divisor)
    };
    items.iter().map(|item| Ok((item.path.clone(), content(item)?.into_bytes()))).collect()
}

/// Links a container's mounts into its directory and adds their variables to its environment.
pub(crate) fn link(
    pod: &Pod,
    container: &Container,
    pod_directory: &Path,
    root: &Path,
    environment: &mut BTreeMap<String, String>,
) -> Result<(), VolumeError> {
    environment.insert("SEGUE_ROOT".to_owned(), root.display().to_string());
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.iter().find(|volume| volume.name == mount.name) else { continue };
        let whole = directory(pod_directory, volume);
        environment.insert(variable(&mount.name), whole.display().to_string());
        let escapes = || VolumeError::Path(mount.name.clone());
        let target = inside(&whole, mount.sub_path.as_deref().unwrap_or_default()).ok_or_else(escapes)?;
        let link = inside(root, mount.mount_path.trim_start_matches('/')).ok_or_else(escapes)?;
        make_link(&target, &link).map_err(|source| VolumeError::Io { volume: mount.name.clone(), source })?;
    }
    Ok(())
}

fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    if fs::symlink_metadata(link).is_ok() {
        // From an earlier run of the same container.
        return Ok(());
    }
    if !target.exists() {
        fs::create_dir_all(target)?;
    }
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent)?;
    }
    symlink(target, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_leave_its_volume() {
        assert_eq!(inside(Path::new("/v"), "a/b"), Some(PathBuf::from("/v/a/b")));
        assert_eq!(inside(Path::new("/v"), "../b"), None);
        assert_eq!(inside(Path::new("/v"), "/etc/passwd"), None);
    }

    #[test]
    fn a_volume_has_a_variable() {
        assert_eq!(variable("model-cache"), "SEGUE_VOLUME_MODEL_CACHE");
    }
}
