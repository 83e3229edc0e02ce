//! What the fuzz targets in `fuzz/` reach of this program: its readers of files, each with an error that is
//! a sentence. Exists with `cfg(fuzzing)` alone.

#![allow(missing_docs)]

use std::path::Path;
use std::time::SystemTime;

use crate::cli::{self, Origins};
use crate::config::egress::EgressFile;
use crate::config::peers_file::PeersFile;
use crate::config::pem::Files;
use crate::mistake::{Mistake, Problem};
use crate::operator::kubeconfig::Kubeconfig;

type Outcome = Result<(), String>;

fn told(mistake: Mistake) -> String {
    mistake.to_string()
}

pub fn config(bytes: &[u8]) -> Outcome {
    cli::fuzzing::config(bytes).map_err(told)
}

pub fn like(bytes: &[u8]) -> Outcome {
    cli::fuzzing::like(bytes).map_err(told)
}

pub fn peers_file(bytes: &[u8]) -> Outcome {
    let origins = Origins::default();
    let file = PeersFile::check("p.yaml".into(), Ok(bytes.to_vec()), "own", &[], &origins);
    let file = file.map_err(told)?;
    for (index, peer) in file.peers.iter().enumerate() {
        assert!(peer.id != "own" && file.peers.iter().skip(index + 1).all(|p| p.id != peer.id));
    }
    Ok(())
}

pub fn egress_file(bytes: &[u8]) -> Outcome {
    let (origins, read) = (Origins::default(), no_file);
    let mut files = Files::new(&origins, SystemTime::UNIX_EPOCH, &read);
    EgressFile::check(&mut files, "e.yaml".into(), Ok(bytes.to_vec())).map(drop).map_err(told)
}

/// No plugin of it is run, and no file that it names is read.
pub fn kubeconfig(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    let config = Kubeconfig::of(&text).map_err(|problem| problem.to_string())?;
    let _: Vec<&str> = config.contexts().collect();
    config.current().map(drop).map_err(told)
}

pub fn pem(bytes: &[u8]) -> Outcome {
    let (origins, contents) = (Origins::default(), bytes.to_vec());
    let read = move |_: &Path| Ok(contents.clone());
    let mut files = Files::new(&origins, SystemTime::now(), &read);
    let both = |name| (name, Some("x.pem".into()));
    let pair = files.pair(both("tls-cert-file"), both("tls-private-key-file"));
    let bundle = files.authorities("client-ca-file", Some("x.pem".into()));
    if let Ok(Some(bundle)) = &bundle {
        let _: Vec<(i64, i64)> = bundle.validities().collect();
    }
    pair.map_err(told)?;
    bundle.map(drop).map_err(told)
}

fn no_file(path: &Path) -> Result<Vec<u8>, Problem> {
    Err(format!("{} does not exist", path.display()).into())
}
