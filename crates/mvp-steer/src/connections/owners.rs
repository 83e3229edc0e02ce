//! The processes that hold a socket, as far as `/proc` shows them. Entry item: [`Owners::of`].

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Processes by the inodes of the sockets that they hold.
#[derive(Debug, Default)]
pub(super) struct Owners(HashMap<u32, Vec<u32>>);

impl Owners {
    /// Looks for these sockets. Processes that may not be looked into, or are in another PID
    /// namespace, are not found.
    pub(super) fn of(inodes: &[u32], proc: &Path) -> Owners {
        let mut owners: HashMap<u32, Vec<u32>> =
            inodes.iter().filter(|inode| **inode != 0).map(|inode| (*inode, Vec::new())).collect();
        let processes = fs::read_dir(proc).into_iter().flatten().flatten().filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((process, fs::read_dir(entry.path().join("fd")).ok()?))
        });
        for (process, descriptors) in processes {
            for descriptor in descriptors.flatten() {
                let Some(inode) = fs::read_link(descriptor.path()).ok().as_deref().and_then(inode)
                else {
                    continue;
                };
                if let Some(holding) = owners.get_mut(&inode) {
                    holding.push(process);
                }
            }
        }
        Owners(owners)
    }

    /// The processes that hold a socket.
    pub(super) fn holding(&self, inode: u32) -> &[u32] {
        self.0.get(&inode).map_or(&[], Vec::as_slice)
    }

    #[cfg(test)]
    pub(super) fn new(held: &[(u32, &[u32])]) -> Owners {
        Owners(held.iter().map(|(inode, processes)| (*inode, processes.to_vec())).collect())
    }
}

/// The inode of `socket:[INODE]`.
fn inode(target: &Path) -> Option<u32> {
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_socket_of_this_process_is_found() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = inode(&link).unwrap();
        let owners = Owners::of(&[inode, 0], Path::new("/proc"));
        assert_eq!(owners.holding(inode), [std::process::id()]);
        assert_eq!(owners.holding(0), [0_u32; 0], "a socket without a process has inode 0");
        assert_eq!(Owners::of(&[inode], Path::new("/nowhere")).holding(inode), [0_u32; 0]);
    }

    #[test]
    fn other_descriptors_have_no_inode() {
        for (target, expected) in [
            ("socket:[123]", Some(123)),
            ("pipe:[123]", None),
            ("/tmp/socket:[1]", None),
            ("socket:[]", None),
            ("socket:[99999999999]", None),
        ] {
            assert_eq!(inode(Path::new(target)), expected, "{target}");
        }
    }
}
