//! Network namespaces for tests. Entry item: [`in_a_network_of_its_own`]. Without root nothing is tested
//! there; the interpreter of `program` needs no rights.

use std::process::Command;
use std::thread;

/// Says why a test does not run. In CI (`MVP_TEST_KERNEL`) it must run.
pub(crate) fn not_tested(why: &str) {
    assert!(std::env::var_os("MVP_TEST_KERNEL").is_none(), "not tested: {why}");
    eprintln!("not tested: {why}");
}

/// Runs `test` on a thread with a network of its own, if that is permitted. It has the addresses
/// 10.9.9.1 and fd00::9, and loopback.
pub(crate) fn in_a_network_of_its_own(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        // SAFETY: no pointers; it concerns this thread only.
        #[allow(unsafe_code)]
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        if result != 0 {
            not_tested("a network namespace needs root");
            return;
        }
        // Without `nodad`, the kernel makes the address usable a moment later.
        for command in [
            "link set lo up",
            "address add 10.9.9.1/32 dev lo",
            "address add fd00::9/128 dev lo nodad",
        ] {
            let done = Command::new("ip").args(command.split(' ')).status();
            if !done.is_ok_and(|status| status.success()) {
                not_tested("ip of iproute2 is missing");
                return;
            }
        }
        test();
    });
    thread.join().unwrap();
}
