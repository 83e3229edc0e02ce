//! Why connections cannot be steered, and what to do.

use std::io;

/// Why connections cannot be steered. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The process lacks rights, or a filter of system calls forbids `bpf`.
    #[error(
        "{what} is not permitted: give the process CAP_BPF and CAP_NET_ADMIN, and check that its seccomp \
         profile allows bpf(2) (profiles of older container runtimes allow it only with CAP_SYS_ADMIN); on \
         Linux before 5.11, also raise its limit of locked memory (RLIMIT_MEMLOCK)"
    )]
    NotPermitted {
        /// What was refused.
        what: &'static str,
    },
    /// The kernel lacks what is needed.
    #[error(
        "{what} is not supported by this kernel: steering needs Linux 5.9 or newer with CONFIG_BPF_SYSCALL \
         ({error})"
    )]
    NotSupported {
        /// What the kernel lacks.
        what: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
    /// Anything else.
    #[error("{what} failed: {error}")]
    Failed {
        /// What failed.
        what: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl SteerError {
    /// The error of a step, by what the kernel said.
    pub(crate) fn new(what: &'static str, error: io::Error) -> SteerError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SteerError::NotPermitted { what },
            Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => {
                SteerError::NotSupported { what, error }
            }
            _ => SteerError::Failed { what, error },
        }
    }
}
