//! The system call `bpf(2)`: maps, programs and links as owned descriptors. Entry items:
//! [`create_map`], [`load`], [`attach`].
//!
//! Every argument is a `repr(C)` structure without padding that the kernel reads during the call and
//! does not keep. Its size is passed along; the kernel takes what a longer structure would have as
//! zero. Pointers in it are addresses of values that live until the call returns.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::instruction::Instruction;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const PROGRAM_OF_SOCKET_LOOKUP: u32 = 30;
const ATTACH_TO_SOCKET_LOOKUP: u32 = 36;

/// The name of the program and its maps, which tools such as `bpftool` show.
const NAME: [u8; 16] = *b"mvp_steer\0\0\0\0\0\0\0";
/// None of the functions that the program calls is restricted to other licences.
const LICENSE: &CStr = c"Apache-2.0";

/// A kind of map.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MapKind {
    /// One value that this process can write as memory.
    Memory,
    /// Sockets by their index.
    Sockets,
}

/// Creates a map of `entries` values of `value_bytes` each. Its keys are indexes.
pub(crate) fn create_map(kind: MapKind, value_bytes: u32, entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
        inner_map: u32,
        numa_node: u32,
        name: [u8; 16],
    }
    const ARRAY: u32 = 2;
    const SOCKET_MAP: u32 = 15;
    const CAN_BE_MAPPED: u32 = 1 << 10;
    let (kind, flags) = match kind {
        MapKind::Memory => (ARRAY, CAN_BE_MAPPED),
        MapKind::Sockets => (SOCKET_MAP, 0),
    };
    let mut attributes = Attributes {
        kind,
        key_bytes: 4,
        value_bytes,
        entries,
        flags,
        inner_map: 0,
        numa_node: 0,
        name: NAME,
    };
    descriptor(MAP_CREATE, &mut attributes)
}

/// Puts a socket into a map of sockets. The kernel removes it when the socket is closed.
pub(crate) fn put_socket(
    map: BorrowedFd<'_>,
    index: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        unused: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let socket = raw(socket);
    let mut attributes = Attributes {
        map: raw(map),
        unused: 0,
        key: address_of(&index),
        value: address_of(&socket),
        flags: 0,
    };
    call(MAP_UPDATE, &mut attributes).map(drop)
}

/// Loads a program. The kernel verifies it first.
pub(crate) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        expected_attach_type: u32,
    }
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut attributes = Attributes {
        kind: PROGRAM_OF_SOCKET_LOOKUP,
        instruction_count: u32::try_from(program.len()).map_err(too_long)?,
        instructions: program.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: NAME,
        interface: 0,
        expected_attach_type: ATTACH_TO_SOCKET_LOOKUP,
    };
    descriptor(PROGRAM_LOAD, &mut attributes)
}

/// Attaches a program to the network namespace of this thread, until the descriptor is closed.
pub(crate) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        target: u32,
        kind: u32,
        flags: u32,
    }
    let namespace = File::open("/proc/thread-self/ns/net")?;
    let mut attributes = Attributes {
        program: raw(program),
        target: namespace.as_raw_fd().cast_unsigned(),
        kind: ATTACH_TO_SOCKET_LOOKUP,
        flags: 0,
    };
    descriptor(LINK_CREATE, &mut attributes)
}

/// A command that returns a new descriptor, which the kernel marks as close-on-exec.
fn descriptor<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let descriptor = call(command, attributes)?;
    // SAFETY: the commands that are called with this function return a new descriptor, which nobody
    // else owns.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `attributes` is valid for reads and writes of its size, and the kernel touches no more
    // than that. Pointers in it are valid for the command: see the module's text.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    match libc::c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn raw(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

fn address_of<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}
