//! Upgrades a server of the running demo whenever somebody presses Enter. Entry: [`run`].

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use serde_json::json;
use tokio::sync::mpsc;

use super::cluster::Cluster;
use crate::cli::Output;

/// Upgrades the next server for each line of standard input, until the demo ends. Once all servers
/// have the newest release, they restart with it.
pub(super) async fn run(cluster: &mut Cluster, output: Output) -> anyhow::Result<()> {
    let mut lines = lines();
    for place in (0..cluster.servers.len()).cycle() {
        if lines.recv().await.is_none() {
            break;
        }
        let plan = cluster.at(place)?.plan.upgraded();
        let (id, release) = (plan.id, plan.release.name());
        if output == Output::Text {
            say(&format!("{} restarts with {release}\n", bold(id)))?;
        }
        cluster.end(place).await?;
        cluster.restart(place, plan, |_| {}).await?;
        let version = cluster.at(place)?.version();
        say(&match output {
            Output::Json => format!("{}\n", json!({"restarted": id, "version": version})),
            Output::Text => format!("{} is back with {version}\n", bold(id)),
        })?;
    }
    std::future::pending().await
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn bold(text: &str) -> String {
    match io::stdout().is_terminal() {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

/// The pause of a process in the background until it looks for input again.
const BACKGROUND: Duration = Duration::from_millis(500);

/// A message for each line of standard input. The channel closes at its end.
fn lines() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    // Reads of a terminal block, so they need a thread. It ends with the process.
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        loop {
            let stdin = io::stdin();
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None) {
                Ok(_) if is_in_background() => {
                    std::thread::sleep(BACKGROUND);
                    continue;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            // Not through std's buffer: poll does not see what is in it.
            let Ok(read @ 1..) = rustix::io::read(&stdin, &mut buffer) else { return };
            let bytes = buffer.get(..read).unwrap_or_default();
            for _ in bytes.iter().filter(|byte| **byte == b'\n') {
                if sender.blocking_send(()).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

/// Whether the terminal belongs to another job. A read would stop this process.
fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}
