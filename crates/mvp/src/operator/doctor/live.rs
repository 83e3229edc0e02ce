//! A running gateway: what its admin endpoint tells. Entry: [`ask`].

use mvp_core::member::MemberKind;
use serde::Deserialize;

use super::check::{Check, Group};
use super::members::Candidate;
use crate::cli::{Flags, server_url};
use crate::operator::gateway::{Answer, GatewayArgs};

const GROUP: Group = Group::Gateway;

/// What a running gateway told.
pub(crate) struct Live {
    pub(crate) checks: Vec<Check>,
    /// Its flags; none if it does not tell them.
    pub(crate) flags: Option<Flags>,
    /// The other members that it knows.
    pub(crate) members: Vec<Candidate>,
}

/// Asks the gateway. Fails if none answers.
pub(crate) fn ask(gateway: &GatewayArgs) -> anyhow::Result<Live> {
    let mut checks = vec![
        health("live", "/livez", &gateway.get("/livez?verbose")?),
        health("ready", "/readyz", &gateway.get("/readyz?verbose")?),
    ];
    let metrics = gateway.get("/metrics")?.body;
    checks.push(reloads(&metrics));
    checks.extend(unsteered(&metrics));
    checks.extend(release(&metrics, env!("CARGO_PKG_VERSION")));
    let snapshot = gateway.get("/debug/snapshot")?.body;
    let members = match serde_json::from_str::<Snapshot>(&snapshot) {
        Ok(snapshot) => {
            checks.extend(views(&snapshot));
            snapshot.peers()
        }
        Err(error) => {
            checks.push(GROUP.skip("views", format!("/debug/snapshot cannot be read: {error}")));
            Vec::new()
        }
    };
    // The flags name files to read and servers to ask. Anybody may listen on a port that is free, so
    // only the socket, which belongs to the owner of the gateway, is believed.
    let flags = match gateway.admin_address {
        Some(_) => None,
        None => Some(gateway.get("/debug/flags")?).filter(|flags| flags.status == 200),
    };
    let flags = flags.map(|flags| serde_json::from_str(&flags.body)).transpose()?;
    Ok(Live { checks, flags, members })
}

/// The members of `/debug/snapshot`, as far as they matter here.
#[derive(Debug, Deserialize)]
struct Snapshot {
    members: Vec<Known>,
    #[serde(default)]
    conflicts: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    id: String,
    local: bool,
    kind: String,
    address: Option<String>,
    present: bool,
    view: String,
    last_error: Option<String>,
}

impl Snapshot {
    /// The members that can be asked.
    fn peers(&self) -> Vec<Candidate> {
        let peers = self.members.iter().filter(|member| !member.local);
        let candidate = |member: &Known| {
            let kind = match member.kind.as_str() {
                "bare" => MemberKind::Bare,
                _ => MemberKind::Mvp,
            };
            let address = member.address.as_deref()?;
            Some(Candidate {
                // Without an ID of its own, a member is called by its address.
                id: Some(member.id.clone()).filter(|id| id != address),
                url: server_url(&format!("https://{address}")).ok()?,
                kind: Some(kind).filter(|_| member.id != address),
                source: "the running gateway",
                left: !member.present,
            })
        };
        peers.filter_map(candidate).collect()
    }
}

/// The checks of `/livez` or `/readyz`.
fn health(name: &str, path: &str, answer: &Answer) -> Check {
    let failing: Vec<&str> =
        answer.body.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    let remarks: Vec<&str> =
        answer.body.lines().filter(|line| line.contains(" ok, but ")).collect();
    match (answer.status, failing.is_empty()) {
        (200, true) if remarks.is_empty() => GROUP.ok(name, format!("{path} passes")),
        (200, true) => GROUP.ok(name, format!("{path} passes; {}", remarks.join("; "))),
        (status, _) => {
            let fix =
                "correct what the reason names; see the table of log lines in docs/operate.md";
            GROUP.fail(name, format!("{path} answers {status}: {}", failing.join(", ")), fix)
        }
    }
}

/// Files that changed, and cannot be used.
fn reloads(metrics: &str) -> Check {
    let name = "reload";
    let failing = metrics.lines().filter_map(|line| {
        let (flag, value) = line.strip_prefix("mvp_reload_failing{flag=\"")?.split_once("\"} ")?;
        (value.trim() != "0").then(|| format!("--{flag}"))
    });
    let failing: Vec<String> = failing.collect();
    match failing.is_empty() {
        true => GROUP.ok(name, "all files in use are current"),
        false => {
            let what = format!("the new contents of {} cannot be used", failing.join(", "));
            let fix = "correct the file: the old contents stay in use until then; the log has the \
                       reason";
            GROUP.fail(name, what, fix)
        }
    }
}

/// Whether all clients come through a gateway that steers.
fn unsteered(metrics: &str) -> Option<Check> {
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    let name = "unsteered connections";
    if value("mvp_steering_active") != Some(1) {
        return None;
    }
    Some(match value("mvp_unsteered_connections") {
        Some(0) => GROUP.ok(name, "all clients come through the gateway"),
        None => {
            let what = "it is not known how many connections are from before the steering";
            GROUP.warn(name, what, "see the log line \"cannot count unsteered connections\"")
        }
        Some(count) => {
            let what = format!(
                "not protected yet: {count} client connections are from before the steering"
            );
            GROUP.warn(name, what, "run mvp adopt on this host")
        }
    })
}

/// Whether the gateway is the `mvp` that is installed.
fn release(metrics: &str, own: &str) -> Option<Check> {
    let line = metrics.lines().find(|line| line.starts_with("mvp_build_info{"))?;
    let version = line.split_once("version=\"")?.1.split_once('"')?.0;
    Some(match version == own {
        true => GROUP.ok("mvp release", version),
        false => {
            let what = format!("mvp {version} runs, and this program is {own}");
            GROUP.warn("mvp release", what, "restart the gateway, or use its own program")
        }
    })
}

/// What the gateway knows about each member.
fn views(snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut fresh = 0_usize;
    for member in &snapshot.members {
        let error = member.last_error.as_deref().unwrap_or("the reason is not known");
        let name = format!("view of {}", member.id);
        match (member.view.as_str(), member.present) {
            ("Fresh", _) => fresh += 1,
            _ if member.address.is_none() && !member.local => {
                let why = "its address is not known, so that nothing is sent to it";
                checks.push(GROUP.skip(name, why));
            }
            (_, false) => {
                let why = format!("it left; its APIs get 503 until it is forgotten ({error})");
                checks.push(GROUP.skip(name, why));
            }
            (view, true) => {
                let what = format!("{}: {error}", view.to_lowercase());
                let fix = "correct what the reason names; the checks of members say more";
                checks.push(GROUP.fail(name, what, fix));
            }
        }
    }
    for conflict in &snapshot.conflicts {
        let fix = "give each server its own --server-id";
        checks.push(GROUP.fail("conflicting IDs", conflict.clone(), fix));
    }
    checks.insert(0, GROUP.ok("views", format!("the discovery of {fresh} members is fresh")));
    checks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operator::doctor::check::Outcome;

    #[test]
    fn health_names_what_fails() {
        let answer = |status, body: &str| Answer { status, body: body.to_owned() };
        let ready = answer(200, "[+]a ok\n[+]request-headers ok, but UIDs are lost\npassed\n");
        let check = health("ready", "/readyz", &ready);
        assert_eq!(check.result, Outcome::Ok);
        assert!(check.detail.contains("UIDs are lost"), "{}", check.detail);
        let not = answer(503, "[+]a ok\n[-]members failed: not seen yet: b\nreadyz check failed\n");
        let check = health("ready", "/readyz", &not);
        assert_eq!(check.result, Outcome::Fail);
        assert!(check.detail.ends_with("members failed: not seen yet: b"), "{}", check.detail);
    }

    #[test]
    fn metrics_tell_failing_files_and_the_release() {
        let text = "mvp_reload_failing{flag=\"peer-ca-file\"} 1\n\
                    mvp_reload_failing{flag=\"tls-cert-file\"} 0\n\
                    mvp_build_info{version=\"9.9.9\",commit=\"\",rustc=\"x\"} 1\n";
        let check = reloads(text);
        assert_eq!(check.result, Outcome::Fail);
        assert!(check.detail.contains("--peer-ca-file cannot"), "{}", check.detail);
        assert_eq!(reloads("").result, Outcome::Ok);
        assert_eq!(release(text, "9.9.9").unwrap().result, Outcome::Ok);
        assert_eq!(release(text, "0.1.0").unwrap().result, Outcome::Warn);
    }

    #[test]
    fn clients_from_before_the_steering_are_a_warning() {
        let check = |text: &str| unsteered(text).map(|check| check.result);
        assert_eq!(check("a 1\n"), None, "without --steer");
        let active = "mvp_steering_active 1\n";
        assert_eq!(check(active), Some(Outcome::Warn), "unknown");
        assert_eq!(check(&format!("{active}mvp_unsteered_connections 0\n")), Some(Outcome::Ok));
        let text = format!("{active}mvp_unsteered_connections 2\n");
        assert_eq!(check(&text), Some(Outcome::Warn));
    }

    #[test]
    fn views_and_conflicts() {
        let member = |id: &str, view: &str, present: bool| {
            json!({
                "id": id, "local": id == "a", "kind": "mvp", "address": "10.0.0.1:6443",
                "present": present, "view": view, "lastError": null,
            })
        };
        let members =
            [member("a", "Fresh", true), member("b", "Stale", true), member("c", "Stale", false)];
        let snapshot = json!({"members": members, "conflicts": ["two use b"]});
        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        let found: Vec<_> =
            views(&snapshot).into_iter().map(|check| (check.name, check.result)).collect();
        let expected = [
            ("views", Outcome::Ok),
            ("view of b", Outcome::Fail),
            ("view of c", Outcome::Skip),
            ("conflicting IDs", Outcome::Fail),
        ];
        assert_eq!(found, expected.map(|(name, result)| (name.to_owned(), result)));
        let peers: Vec<_> = snapshot.peers().into_iter().map(|peer| (peer.id, peer.left)).collect();
        assert_eq!(peers, [(Some("b".to_owned()), false), (Some("c".to_owned()), true)]);
    }
}
