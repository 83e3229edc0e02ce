//! Fuzz targets for everything that `mvp` reads from others, in one program: linking takes longer than
//! most of the compilation. `.ci/fuzz` builds and runs it; CONTRIBUTING.md tells how to use it.
//!
//! `FUZZ_TARGET` names the target. With `FUZZ_WRITE=FOLDER` the program writes the seeds and the
//! dictionary of each target there, and ends: seeds come from the fixtures of the repository, so that
//! no fixture is kept twice.
//!
//! A target is a function of bytes. A panic in it, on any thread, is a finding, and so is an input that
//! takes longer than the time limit or more memory than the memory limit.
#![no_main]

mod input;
mod target;
mod targets;

libfuzzer_sys::fuzz_target!(init: target::begin(), |data: &[u8]| target::run(data));
