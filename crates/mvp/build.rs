//! Tells the crate which compiler builds it, for the metric `mvp_build_info`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MVP_COMMIT");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // Such as "rustc 1.95.0 (59807616e 2026-04-14)".
    let version = said.as_deref().ok().and_then(|said| said.split_ascii_whitespace().nth(1));
    println!("cargo::rustc-env=MVP_RUSTC={}", version.unwrap_or_default());
}
