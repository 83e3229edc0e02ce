//! Compiles the protocols, with nothing but cargo.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/etcd.proto", "proto/stored.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    // The other side of it, for the etcd that tests ask.
    let double = PathBuf::from(env::var("OUT_DIR")?).join("double");
    fs::create_dir_all(&double)?;
    let etcd = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure().build_client(false).out_dir(double).compile_fds(etcd)?;
    Ok(())
}
