//! Keeps the keys of a gateway out of core dumps. Entry: [`forbid`].

use std::io;

use rlimit::Resource;

/// The limit of a core dump in bytes.
///
/// Not 0: with that limit, the kernel still sends the memory of a process that crashes to a program, if
/// `kernel.core_pattern` names one. With 1 it does not, and a file of one byte is never written either
/// (`do_coredump` in `fs/coredump.c`).
const LIMIT: u64 = 1;

/// Forbids core dumps of this process, and of those that it starts, for good.
pub(crate) fn forbid() -> io::Result<()> {
    let limit = Resource::CORE.get_hard()?.min(LIMIT);
    Resource::CORE.set(limit, limit)
}
