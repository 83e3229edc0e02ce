use std::fs;
use std::path::PathBuf;

use testkit::certificates::{Ca, FRONT_PROXY_NAME, SERVER_NAME, cn};

use super::*;

const MANIFEST: &str = "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    image: v1\n    \
    command:\n    - kube-apiserver\n    - --bind-address=127.0.0.1\n    \
    - --advertise-address=10.0.0.1\n    - --client-ca-file=ca.crt\n    \
    - --requestheader-client-ca-file=front.crt\n    - --tls-cert-file=server.crt\n    \
    - --tls-private-key-file=server.key\n    - --proxy-client-cert-file=proxy.crt\n    \
    - --proxy-client-key-file=proxy.key\n    workingDir: FOLDER\n";

/// A folder with a manifest and the files that it names, and what follows it.
struct Followed {
    folder: tempfile::TempDir,
    text: String,
    follower: Follower,
}

impl Followed {
    fn new() -> Followed {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let (ca, front) = (Ca::new("ca"), Ca::new("front"));
        fs::write(at.join("ca.crt"), ca.pem()).unwrap();
        fs::write(at.join("front.crt"), front.pem()).unwrap();
        ca.server(&[SERVER_NAME]).write(at, "server").unwrap();
        front.client(&[cn(FRONT_PROXY_NAME)]).write(at, "proxy").unwrap();
        let text = MANIFEST.replace("FOLDER", at.to_str().unwrap());
        let path = at.join("kube-apiserver.yaml");
        fs::write(&path, &text).unwrap();
        let like = format!("--like={}", path.display());
        let argv: Vec<OsString> = ["mvp", "serve", &like].map(OsString::from).into();
        let Ok(Invocation::Serve(args, origins, _)) = cli::parse(argv.clone()) else { panic!() };
        let config = ServeConfig::check(*args, &origins, SystemTime::now()).unwrap();
        let follower = Follower::new(&config, argv, watch::Sender::default()).unwrap();
        Followed { folder, text, follower }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("kube-apiserver.yaml")
    }

    fn has_changed(&self) -> bool {
        matches!(*self.follower.changed.borrow(), NewFlags::Changed(_))
    }

    /// Why the flags cannot be used.
    fn failing(&self) -> Option<String> {
        self.follower.failing.clone()
    }

    /// Why the steering pauses so many seconds from now.
    fn fault_in(&self, seconds: u64) -> Option<String> {
        self.follower.changed.borrow().fault(Instant::now() + Duration::from_secs(seconds))
    }

    /// Replaces the manifest by rename, as kubeadm does, and looks until it is settled.
    fn replaced(&mut self, text: &str) -> bool {
        let beside = self.folder.path().join("next");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path()).unwrap();
        self.looked()
    }

    fn looked(&mut self) -> bool {
        self.follower.look(SystemTime::now());
        self.follower.look(SystemTime::now());
        self.has_changed()
    }
}

#[test]
fn a_change_of_a_flag_is_published() {
    let mut followed = Followed::new();
    assert!(!followed.looked());
    let text = followed.text.replace("10.0.0.1", "10.0.0.2");
    followed.follower.look(SystemTime::now());
    assert!(followed.replaced(&text));
    let NewFlags::Changed(change) = followed.follower.changed.borrow().clone() else { panic!() };
    assert_eq!(change.flags, ["advertise-address", "bind-address"]);
    assert!(change.way.is_some());
}

/// `kubeadm upgrade` restores the old manifest if the new kube-apiserver does not become ready.
#[test]
fn a_change_that_is_taken_back_needs_no_restart() {
    let mut followed = Followed::new();
    let text = followed.text.clone();
    assert!(followed.replaced(&text.replace("10.0.0.1", "10.0.0.2")));
    assert!(!followed.replaced(&text));
    // Nor does a manifest that mvp cannot start with, as long as it is there.
    let new = text.replace("10.0.0.1", "10.0.0.3");
    assert!(followed.replaced(&new));
    fs::remove_file(followed.path()).unwrap();
    assert!(!followed.looked());
    assert!(followed.replaced(&new));
}

/// A file that is still being written is not compared.
#[test]
fn a_change_counts_when_it_is_settled() {
    let mut followed = Followed::new();
    fs::write(followed.path(), followed.text.replace("10.0.0.1", "10.0.0.2")).unwrap();
    followed.follower.look(SystemTime::now());
    assert!(!followed.has_changed());
    followed.follower.look(SystemTime::now());
    assert!(followed.has_changed());
}

#[test]
fn other_changes_have_no_effect() {
    let mut followed = Followed::new();
    let text = followed.text.clone();
    assert!(!followed.replaced(&text.replace("image: v1", "image: v2")));
    let more =
        text.replace("    workingDir", "    - --v=4\n    - --etcd-prefix=/x\n    workingDir");
    assert_ne!(more, text);
    assert!(!followed.replaced(&more));
    assert_eq!(followed.failing(), None);
    // The same flags in another form.
    assert!(
        !followed.replaced(&text.replace("--client-ca-file=ca.crt", "--client_ca_file=ca.crt"))
    );
}

#[test]
fn a_missing_or_invalid_manifest_needs_no_restart() {
    let mut followed = Followed::new();
    let text = followed.text.clone();
    fs::remove_file(followed.path()).unwrap();
    assert!(!followed.looked());
    let reason = followed.failing().unwrap();
    assert!(reason.contains("does not exist"), "{reason}");
    // kubeadm moves it away and back.
    assert_eq!(followed.fault_in(3600), None);
    assert!(!followed.replaced("kind: Pod\nspec: ["));
    assert!(!followed.replaced(&text.replace("10.0.0.1", "nowhere")));
    // mvp could not start with it.
    assert!(!followed.replaced(&text.replace("ca-file=ca.crt", "ca-file=missing.crt")));
    let reason = followed.failing().unwrap();
    assert!(reason.contains("missing.crt"), "{reason}");
    // The server may trust others by now.
    assert_eq!(followed.fault_in(30), None);
    let fault = followed.fault_in(61).unwrap();
    assert!(fault.contains("cannot be taken over") && fault.contains("missing.crt"), "{fault}");
    // The file that it names comes later.
    fs::copy(followed.folder.path().join("ca.crt"), followed.folder.path().join("missing.crt"))
        .unwrap();
    assert!(followed.looked());
    assert_eq!(followed.fault_in(3600), None);
}

#[test]
fn the_old_manifest_may_come_back() {
    let mut followed = Followed::new();
    let text = followed.text.clone();
    fs::remove_file(followed.path()).unwrap();
    assert!(!followed.looked());
    assert!(!followed.replaced(&text));
    assert_eq!(followed.failing(), None);
}
