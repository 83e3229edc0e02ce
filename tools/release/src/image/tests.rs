//! An image read back as a container runtime reads it.

use std::collections::BTreeMap;
use std::io::Read;

use super::*;

/// A program of two libraries.
fn program() -> Program {
    Program {
        bytes: b"program".repeat(1000),
        architecture: "amd64",
        version: "1.2.3".to_owned(),
        commit: "c0ffee".to_owned(),
        libraries: vec![
            ("/lib64/ld.so".to_owned(), b"loader".to_vec()),
            ("/lib/libc.so.6".to_owned(), b"libc".to_vec()),
        ],
        needs_glibc: Some("2.34".to_owned()),
    }
}

fn facts() -> Facts {
    Facts { version: "1.2.3".to_owned(), commit: "c0ffee".to_owned(), time: 1_000_000_000 }
}

fn image() -> Image {
    build(&program(), &facts(), &Name::of_mvp("1.2.3")).unwrap()
}

/// The files of a tar.
fn entries(mut tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    while tar[0] != 0 {
        let text = |range: std::ops::Range<usize>| {
            let text = String::from_utf8(tar[range].to_vec()).unwrap();
            text.trim_end_matches('\0').to_owned()
        };
        let size = usize::from_str_radix(&text(124..136), 8).unwrap();
        files.insert(text(0..100), tar[512..512 + size].to_vec());
        tar = &tar[512 + size.next_multiple_of(512)..];
    }
    files
}

/// The blob of a descriptor, whose digest and size fit.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let named = descriptor["digest"].as_str().unwrap();
    let blob = &files[&format!("blobs/{}", named.replace(':', "/"))];
    assert_eq!(named, digest(blob));
    assert_eq!(descriptor["size"], blob.len());
    blob
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn two_images_of_one_program_are_equal() {
    let (one, two) = (image(), image());
    assert_eq!(one.digest, two.digest);
    assert_eq!(one.bytes, two.bytes);
}

#[test]
fn another_program_has_another_digest() {
    let changed = Program { bytes: b"another".to_vec(), ..program() };
    let other = build(&changed, &facts(), &Name::of_mvp("1.2.3")).unwrap();
    assert_ne!(other.digest, image().digest);
}

/// So that the digest of a release holds for every copy of it in a registry.
#[test]
fn the_name_is_not_part_of_the_digest() {
    let name = Name::parse("registry.example/mvp:9").unwrap();
    assert_eq!(build(&program(), &facts(), &name).unwrap().digest, image().digest);
}

#[test]
fn every_descriptor_fits_its_blob() {
    let image = image();
    let files = entries(&image.bytes);
    assert_eq!(parsed(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
    let index = parsed(&files["index.json"]);
    let entry = &index["manifests"][0];
    assert_eq!(entry["digest"], image.digest);
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "docker.io/library/mvp:1.2.3");
    assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
    let manifest = parsed(blob(&files, entry));
    assert_eq!(manifest["mediaType"], entry["mediaType"]);
    let config = parsed(blob(&files, &manifest["config"]));
    let layer = unpacked(blob(&files, &manifest["layers"][0]));
    assert_eq!(config["rootfs"]["diff_ids"], json!([digest(&layer)]));
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let blobs =
        files.keys().filter(|path| path.starts_with("blobs/sha256/") && !path.ends_with('/'));
    assert_eq!(blobs.count(), 3);
}

#[test]
fn docker_finds_the_same_config_and_layer() {
    let image = image();
    let files = entries(&image.bytes);
    let docker = parsed(&files["manifest.json"]);
    assert_eq!(docker[0]["RepoTags"], json!(["mvp:1.2.3"]));
    let manifest = parsed(blob(&files, &parsed(&files["index.json"])["manifests"][0]));
    let path = |descriptor: &Value| {
        format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
    };
    assert_eq!(docker[0]["Config"], path(&manifest["config"]));
    assert_eq!(docker[0]["Layers"], json!([path(&manifest["layers"][0])]));
}

#[test]
fn the_layer_has_the_program_its_libraries_and_no_more() {
    let files = entries(&image().bytes);
    let manifest = parsed(blob(&files, &parsed(&files["index.json"])["manifests"][0]));
    let layer = entries(&unpacked(blob(&files, &manifest["layers"][0])));
    let config = parsed(blob(&files, &manifest["config"]));
    let entry = config["config"]["Entrypoint"][0].as_str().unwrap();
    assert_eq!(layer[entry.trim_start_matches('/')], program().bytes);
    assert_eq!(config["config"]["Env"], json!(["PATH=/usr/local/bin"]));
    assert_eq!(config["created"], "2001-09-09T01:46:40Z");
    let names: Vec<&str> =
        layer.keys().map(String::as_str).filter(|path| !path.ends_with('/')).collect();
    let expected = [
        "etc/group",
        "etc/nsswitch.conf",
        "etc/passwd",
        "lib/libc.so.6",
        "lib64/ld.so",
        "usr/local/bin/mvp",
    ];
    assert_eq!(names, expected);
}
