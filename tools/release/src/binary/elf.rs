//! The few facts of an ELF file that decide what an image needs. Entries: [`Facts::read`],
//! [`glibc`].

use anyhow::{Context, bail, ensure};

/// Facts of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The architecture by the name of Go and OCI.
    pub architecture: &'static str,
    /// The loader of a dynamically linked program.
    pub interpreter: Option<String>,
}

impl Facts {
    /// Reads the header and the program headers of a 64-bit little-endian file.
    pub(crate) fn read(file: &[u8]) -> anyhow::Result<Self> {
        ensure!(file.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
        let architecture = match number(file, 18, 2)? {
            62 => "amd64",
            183 => "arm64",
            machine => bail!("the machine {machine} is not supported; build for amd64 or arm64"),
        };
        let (start, size, count) =
            (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
        let mut interpreter = None;
        for index in 0..count {
            let header = start.saturating_add(index * size);
            // PT_INTERP
            if number(file, header, 4)? == 3 {
                let from = number(file, header.saturating_add(8), 8)?;
                let length = number(file, header.saturating_add(32), 8)?;
                let path = bytes(file, from, length)?;
                let path = std::str::from_utf8(path).context("the loader's path is not UTF-8")?;
                interpreter = Some(path.trim_end_matches('\0').to_owned());
            }
        }
        Ok(Self { architecture, interpreter })
    }
}

/// The newest version of glibc that a symbol asks for, such as `2.34`.
pub(crate) fn glibc(file: &[u8]) -> Option<String> {
    let mark = b"\0GLIBC_2.";
    let minors = file.windows(mark.len() + 3).filter_map(|window| {
        let digits = window.strip_prefix(mark)?;
        let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
        std::str::from_utf8(digits.get(..end)?).ok()?.parse::<u32>().ok()
    });
    minors.max().map(|minor| format!("2.{minor}"))
}

fn number(file: &[u8], from: u64, size: u64) -> anyhow::Result<u64> {
    let bytes = bytes(file, from, size)?;
    Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn bytes(file: &[u8], from: u64, size: u64) -> anyhow::Result<&[u8]> {
    let range = usize::try_from(from)?..usize::try_from(from.saturating_add(size))?;
    file.get(range).context("the ELF file is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one program header, of the loader.
    fn file(machine: u8) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64 + 56, 0);
        file[18] = machine;
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64] = 3;
        file[64 + 8] = 120;
        file[64 + 32] = 7;
        file.extend_from_slice(b"/lib/x\0\0GLIBC_2.9\0\0GLIBC_2.34\0\0GLIBC_2.4\0");
        file
    }

    #[test]
    fn loader_and_glibc_of_a_dynamic_program() {
        let expected = Facts { architecture: "arm64", interpreter: Some("/lib/x".to_owned()) };
        assert_eq!(Facts::read(&file(183)).unwrap(), expected);
        assert_eq!(glibc(&file(183)).as_deref(), Some("2.34"));
    }

    #[test]
    fn a_static_program_has_no_loader() {
        let mut file = file(62);
        file[64] = 1;
        assert_eq!(Facts::read(&file).unwrap().interpreter, None);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Facts::read(b"#!/bin/sh\n").is_err());
        assert!(Facts::read(&file(40)).is_err());
        assert!(Facts::read(&file(62)[..100]).is_err());
    }

    #[test]
    fn this_test_itself_is_dynamic() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let facts = Facts::read(&file).unwrap();
        assert!(facts.interpreter.unwrap().contains("ld-linux"));
    }
}
