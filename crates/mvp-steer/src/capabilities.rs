//! Gives up rights of the process. Entry item: [`drop_all`].

use std::io;

/// Rights that this process keeps if it has them: reading files of other users, and ports below 1024.
const KEPT: [u32; 2] = [CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE];
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_NET_BIND_SERVICE: u32 = 10;

/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 capabilities.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    thread: i32,
}

/// Drops all capabilities of this thread but those that reading files and listening need, for good:
/// programs that it starts cannot regain them.
///
/// Call it before other threads are started: each thread has capabilities of its own, and inherits
/// those of the thread that started it.
pub fn drop_all() -> io::Result<()> {
    let mut words = [Word::default(); 2];
    let mut header = Header { version: VERSION, thread: 0 };
    // SAFETY: both pointers are valid during the call, and version 3 fills two words.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let kept = KEPT.iter().fold(0, |kept, capability| kept | 1 << capability);
    let [low, _] = words;
    let low =
        Word { effective: low.effective & kept, permitted: low.permitted & kept, inheritable: 0 };
    let words = [low, Word::default()];
    // SAFETY: both pointers are valid during the call, and version 3 reads two words.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no pointers.
    #[allow(unsafe_code)]
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hexadecimal line of `/proc/thread-self/status`.
    fn of_this_thread(name: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn only_rights_to_files_and_ports_are_left() {
        // Capabilities belong to threads: other tests keep theirs.
        let thread = std::thread::spawn(|| {
            drop_all().unwrap();
            let allowed = 1 << CAP_DAC_READ_SEARCH | 1 << CAP_NET_BIND_SERVICE;
            assert_eq!(of_this_thread("CapPrm:") & !allowed, 0);
            assert_eq!(of_this_thread("CapEff:") & !allowed, 0);
            assert_eq!(of_this_thread("CapInh:"), 0);
            assert_eq!(of_this_thread("NoNewPrivs:"), 1);
        });
        thread.join().unwrap();
    }
}
