//! A client that requests one path all the time and records each response with its time, so that a
//! case can check later what was returned after a given moment.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::Client;
use crate::tally::Tally;

/// One sentinel for each address.
pub(crate) struct Sentinel {
    told: Arc<Mutex<Vec<Told>>>,
    tasks: Vec<JoinHandle<()>>,
}

struct Told {
    asked: Instant,
    answered: Instant,
    what: String,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Sentinel {
    pub(crate) fn start(client: &Client, addresses: &[SocketAddr], path: &str) -> Sentinel {
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let ask = |to: &SocketAddr| {
            let (client, to, path) = (client.clone(), *to, path.to_owned());
            let told = Arc::clone(&told);
            tokio::spawn(async move {
                loop {
                    let asked = Instant::now();
                    let what = Tally::key(&client.get(to, &path).await);
                    let answered = Instant::now();
                    if let Ok(mut told) = told.lock() {
                        told.push(Told { asked, answered, what });
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            })
        };
        let tasks = addresses.iter().map(ask).collect();
        Sentinel { told, tasks }
    }

    /// The responses to requests that started after the first moment and ended before the second.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Tally {
        let mut tally = Tally::default();
        if let Ok(told) = self.told.lock() {
            let within = told.iter().filter(|told| told.asked >= from && told.answered <= to);
            within.for_each(|told| tally.one(told.what.clone()));
        }
        tally
    }
}
