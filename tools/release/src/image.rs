//! An OCI image layout in a tar, with one layer. It also has the `manifest.json` of `docker save`, so
//! that `docker load` reads it. Entry: [`build`].

mod name;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) use name::Name;

use crate::binary::Program;
use crate::facts::Facts;
use crate::tarball::{Tarball, gzip};

/// Where the program is in the image.
const PROGRAM: &str = "usr/local/bin/mvp";

/// A finished image.
#[derive(Debug)]
pub(crate) struct Image {
    /// The tar.
    pub bytes: Vec<u8>,
    /// The digest of the manifest, by which registries know the image.
    pub digest: String,
    /// The name in the image.
    pub name: String,
}

/// Packs a program. The same program, facts and name give the same bytes.
pub(crate) fn build(program: &Program, facts: &Facts, name: &Name) -> anyhow::Result<Image> {
    let layer = layer(program).bytes(facts.time)?;
    let mut layout = Layout::default();
    let packed = layout.add(LAYER, gzip(&layer)?);
    let config = layout.add(CONFIG, json(&config(program, facts, &digest(&layer))?)?);
    let manifest = json!({
        "annotations": labels(facts)?,
        "config": config.descriptor(),
        "layers": [packed.descriptor()],
        "mediaType": MANIFEST,
        "schemaVersion": 2,
    });
    let manifest = layout.add(MANIFEST, json(&manifest)?);
    let mut descriptor = manifest.descriptor();
    if let Some(fields) = descriptor.as_object_mut() {
        // containerd takes the name from the first, other tools the tag from the second.
        let names = json!({
            "io.containerd.image.name": name.full(),
            "org.opencontainers.image.ref.name": name.tag(),
        });
        fields.insert("annotations".to_owned(), names);
        let platform = json!({ "architecture": program.architecture, "os": "linux" });
        fields.insert("platform".to_owned(), platform);
    }
    let index = json!({ "manifests": [descriptor], "mediaType": INDEX, "schemaVersion": 2 });
    let docker = json!([{
        "Config": config.path(),
        "Layers": [packed.path()],
        "RepoTags": [name.to_string()],
    }]);
    let mut tar = layout.tar;
    tar.file("index.json", 0o644, json(&index)?);
    tar.file("manifest.json", 0o644, json(&docker)?);
    tar.file("oci-layout", 0o644, json(&json!({ "imageLayoutVersion": "1.0.0" }))?);
    let bytes = tar.bytes(facts.time)?;
    Ok(Image { bytes, digest: manifest.digest, name: name.to_string() })
}

/// The files of the image: the program, its libraries if it is not static, and what they expect.
fn layer(program: &Program) -> Tarball {
    let mut layer = Tarball::default();
    layer.file(PROGRAM, 0o755, program.bytes.clone());
    for (path, bytes) in &program.libraries {
        layer.file(path.trim_start_matches('/'), 0o755, bytes.clone());
    }
    layer.file("etc/group", 0o644, "root:x:0:\n");
    layer.file("etc/passwd", 0o644, "root:x:0:0:root:/:/sbin/nologin\n");
    // Both are in glibc itself: no NSS module is loaded.
    layer.file("etc/nsswitch.conf", 0o644, "hosts: files dns\n");
    layer.directory("run/mvp", 0o755);
    layer.directory("tmp", 0o1777);
    layer
}

fn config(program: &Program, facts: &Facts, diff_id: &str) -> anyhow::Result<Value> {
    Ok(json!({
        "architecture": program.architecture,
        "config": {
            "Entrypoint": [format!("/{PROGRAM}")],
            // `kubectl exec POD -- mvp adopt` finds the program here.
            "Env": ["PATH=/usr/local/bin"],
            "Labels": labels(facts)?,
            // The keys of the node that mvp reads belong to root.
            "User": "0:0",
            "WorkingDir": "/",
        },
        "created": facts.timestamp()?,
        "history": [{ "created": facts.timestamp()?, "created_by": "cargo run -p release -- image" }],
        "os": "linux",
        "rootfs": { "diff_ids": [diff_id], "type": "layers" },
    }))
}

fn labels(facts: &Facts) -> anyhow::Result<Value> {
    Ok(json!({
        "org.opencontainers.image.created": facts.timestamp()?,
        "org.opencontainers.image.description": "The Mixed Version Proxy for Kubernetes: never a false 404",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": facts.commit,
        "org.opencontainers.image.title": "mvp",
        "org.opencontainers.image.version": facts.version,
    }))
}

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The blobs of a layout.
#[derive(Debug, Default)]
struct Layout {
    tar: Tarball,
}

impl Layout {
    fn add(&mut self, media_type: &'static str, bytes: Vec<u8>) -> Blob {
        let blob = Blob { media_type, digest: digest(&bytes), size: bytes.len() };
        self.tar.file(&blob.path(), 0o644, bytes);
        blob
    }
}

/// A blob that was added to a layout.
#[derive(Debug)]
struct Blob {
    media_type: &'static str,
    digest: String,
    size: usize,
}

impl Blob {
    fn descriptor(&self) -> Value {
        json!({ "digest": self.digest, "mediaType": self.media_type, "size": self.size })
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

/// Such as `sha256:` and 64 digits.
fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)))
}

fn json(value: &Value) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}
