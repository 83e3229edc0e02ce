//! This host: descriptors, ports, the admin socket, and what steering of connections needs. It looks
//! into `/proc`; nothing is bound. Entry: [`check`].

mod sockets;
mod steering;

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use self::sockets::Listener;
use super::check::{Check, Group, split};
use super::settings::Settings;
use crate::admin::socket;
use crate::descriptors;

const GROUP: Group = Group::Host;

/// Checks this host. A running gateway has its ports and its socket already.
pub(crate) fn check(settings: &Settings, runs: bool) -> Vec<Check> {
    let args = &settings.args;
    let mut checks = vec![descriptors(hard_limit(), args.max_client_connections)];
    if !runs {
        let listeners = sockets::listeners();
        let listen = SocketAddr::new(args.bind_address, args.secure_port);
        let shared = args.permit_port_sharing;
        // With --steer it is the port of kube-apiserver, which listens there.
        let api = (!args.steer).then_some(("API port", listen));
        for (name, address) in api.into_iter().chain([("admin port", args.admin_bind_address)]) {
            checks.push(port(name, address, shared, listeners.as_deref()));
        }
        checks.extend(admin_socket(args.admin_socket.as_deref(), shared));
    }
    checks.push(steering::check(args.steer));
    checks
}

/// The limit of descriptors that `mvp serve` would have: it raises its own up to this.
fn hard_limit() -> Option<u64> {
    rlimit::Resource::NOFILE.get_hard().ok()
}

fn descriptors(limit: Option<u64>, asked: Option<usize>) -> Check {
    let name = "descriptors";
    let Some(limit) = limit else {
        return GROUP.skip(name, "the limit of open files cannot be read");
    };
    match descriptors::max_client_connections(limit, asked) {
        Ok(most) if asked.is_none() && most < FEW => {
            let what = format!("{limit} descriptors are enough for {most} client connections only");
            GROUP.warn(name, what, "raise the limit of open files (ulimit -n, LimitNOFILE=)")
        }
        Ok(most) => GROUP.ok(name, format!("{limit}, enough for {most} client connections")),
        Err(mistake) => {
            let (what, fix) = split(&mistake.to_string());
            GROUP.fail(name, what, fix.unwrap_or_default())
        }
    }
}

/// Fewer connections than this are not enough for a cluster: kubelets alone have several each.
const FEW: usize = 400;

/// Whether a port is free, or in use by a process that may share it.
fn port(name: &str, address: SocketAddr, shared: bool, all: Option<&[Listener]>) -> Check {
    let Some(all) = all else { return GROUP.skip(name, "/proc/net/tcp cannot be read") };
    let Some(taken) = all.iter().find(|listener| listener.blocks(address)) else {
        return GROUP.ok(name, format!("{address} is free"));
    };
    let by = taken.process().unwrap_or_else(|| "a process of another user or container".to_owned());
    // It will be restarted with the new configuration, or taken over from.
    if by.starts_with("mvp ") || shared {
        return GROUP.ok(name, format!("{address} is in use by {by}"));
    }
    let fix = "stop that process, or choose another address or port";
    GROUP.fail(name, format!("{address} is in use by {by}"), fix)
}

/// Whether the socket can be created. Without the flag it is not worth failing over.
fn admin_socket(flag: Option<&Path>, shared: bool) -> Option<Check> {
    let name = "admin socket";
    let path = flag.unwrap_or(Path::new(socket::DEFAULT));
    if path.as_os_str().is_empty() {
        return Some(GROUP.ok(name, "off: mvp forget and mvp doctor cannot ask this gateway"));
    }
    let shown = path.display();
    if UnixStream::connect(path).is_ok() && !shared && flag.is_some() {
        // The gateway that runs now has it, mostly.
        return Some(GROUP.ok(name, format!("{shown} is in use by a running gateway")));
    }
    // `mvp serve` makes the folder, but not its parents.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let parent = folder.and_then(Path::parent);
    let usable = folder.is_none_or(|folder| folder.is_dir() || parent.is_none_or(Path::is_dir));
    Some(match usable {
        true => GROUP.ok(name, shown.to_string()),
        false => {
            let fix = "create the folder, or choose another --admin-socket";
            GROUP.fail(name, format!("the folder of {shown} does not exist"), fix)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::doctor::check::Outcome;

    #[test]
    fn descriptors_must_be_enough() {
        assert_eq!(descriptors(Some(100_000), Some(1000)).result, Outcome::Ok);
        assert_eq!(descriptors(Some(100_000), None).result, Outcome::Ok);
        assert_eq!(descriptors(Some(256), None).result, Outcome::Warn);
        assert_eq!(descriptors(Some(1024), Some(100_000)).result, Outcome::Fail);
        assert_eq!(descriptors(None, None).result, Outcome::Skip);
    }

    #[test]
    fn a_port_in_use_is_a_failure() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let taken = [Listener { address: at("127.0.0.1:6443"), inode: 0 }];
        let outcome = |address, shared| port("p", at(address), shared, Some(&taken)).result;
        assert_eq!(outcome("127.0.0.1:6443", false), Outcome::Fail);
        assert_eq!(outcome("0.0.0.0:6443", false), Outcome::Fail, "it includes that address");
        assert_eq!(outcome("127.0.0.1:6443", true), Outcome::Ok);
        assert_eq!(outcome("127.0.0.2:6443", false), Outcome::Ok);
        assert_eq!(outcome("127.0.0.1:0", false), Outcome::Ok);
    }
}
