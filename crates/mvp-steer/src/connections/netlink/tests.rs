//! Answers in parts, without a kernel.

use super::*;

/// Gives one part at each read.
struct Parts(Vec<Vec<u8>>);

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let part = self.0.remove(0);
        let length = part.len().min(buffer.len());
        buffer[..length].copy_from_slice(&part[..length]);
        Ok(length)
    }
}

/// A message without a body but an error number.
fn message(kind: u16, flags: u16, number: i32) -> Vec<u8> {
    let mut bytes = 20_u32.to_ne_bytes().to_vec();
    bytes.extend([kind, flags].map(u16::to_ne_bytes).concat());
    bytes.extend([SEQUENCE, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(number.to_ne_bytes());
    bytes
}

const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const INTERRUPTED: u16 = 0x10;

fn outcome(parts: Vec<Vec<u8>>) -> Result<(Vec<Socket>, bool), ConnectionError> {
    collected(&mut Parts(parts), Ports::at(1))
}

#[test]
fn a_list_is_read_to_its_end() {
    let (sockets, interrupted) =
        outcome(vec![message(NOOP, 0, 0), message(DONE, 0, 0), message(ERROR, 0, -1)]).unwrap();
    assert_eq!((sockets.len(), interrupted), (0, false));
    assert!(outcome(vec![message(NOOP, INTERRUPTED, 0), message(DONE, 0, 0)]).unwrap().1);
}

#[test]
fn errors_in_a_list_are_told() {
    for kind in [ERROR, DONE] {
        let error = outcome(vec![message(kind, 0, -libc::ENOENT)]).unwrap_err();
        assert!(error.to_string().contains("load its modules inet_diag and tcp_diag"), "{error}");
        let error = outcome(vec![message(kind, 0, -libc::ENOMEM)]).unwrap_err();
        assert!(matches!(error, ConnectionError::Failed { .. }), "{error}");
    }
    for parts in [vec![], vec![message(NOOP, 0, 0)], vec![vec![0; BUFFER]]] {
        let error = outcome(parts).unwrap_err();
        assert!(matches!(error, ConnectionError::Malformed(_)), "{error}");
    }
}

#[test]
fn a_list_that_changes_is_read_again_a_few_times() {
    let mut left = 3;
    let list = || {
        left -= 1;
        Ok((Vec::new(), left > 0))
    };
    assert!(repeated(list).is_ok());
    let mut times = 0;
    let always = || {
        times += 1;
        Ok((Vec::new(), true))
    };
    assert!(repeated(always).is_err());
    assert_eq!(times, ATTEMPTS);
}
