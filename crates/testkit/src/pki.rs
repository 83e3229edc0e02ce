//! The certificate files of a cluster, laid out like kubeadm's. Entry item: [`Pki`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::certificates::{
    Attribute, Ca, FRONT_PROXY_NAME, Leaf, SERVER_NAME, cn, key_pair, o, replace,
};

/// The CAs of a cluster, and the folder of the certificates that they issue.
#[derive(Debug)]
pub struct Pki {
    files: PkiFiles,
    addresses: Vec<IpAddr>,
    cluster: Ca,
    front_proxy: Ca,
}

/// The paths of a cluster's certificate files. Clones, and other processes, name the same files.
#[derive(Debug, Clone)]
pub struct PkiFiles {
    folder: PathBuf,
}

/// The paths of a certificate and its key.
#[derive(Debug, Clone)]
pub struct PairFiles {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of the private key.
    pub key: PathBuf,
}

impl Pki {
    /// Creates the CAs `ca.crt` and `front-proxy-ca.crt`, the pairs `server` (valid for these
    /// addresses) and `front-proxy-client`, and the service account keys `sa`.
    pub fn new(folder: &Path, addresses: &[IpAddr]) -> io::Result<Pki> {
        fs::create_dir_all(folder)?;
        let pki = Pki {
            files: PkiFiles::at(folder),
            addresses: addresses.to_vec(),
            cluster: Ca::new("kubernetes"),
            front_proxy: Ca::new("front-proxy-ca"),
        };
        pki.trust_only_current_cas()?;
        let (private, public) = key_pair();
        fs::write(pki.files.service_accounts().key, private)?;
        fs::write(pki.files.service_accounts().certificate, public)?;
        pki.issue_server_certificates()?;
        Ok(pki)
    }

    /// The files.
    pub fn files(&self) -> &PkiFiles {
        &self.files
    }

    /// Replaces both CAs, and trusts the old ones beside the new ones.
    pub fn replace_cas(&mut self) -> io::Result<()> {
        let cluster = Ca::new("kubernetes-next");
        let front_proxy = Ca::new("front-proxy-ca-next");
        let both = |old: &Ca, new: &Ca| [old.pem(), new.pem()].concat();
        replace(&self.files.ca(), &both(&self.cluster, &cluster))?;
        replace(&self.files.front_proxy_ca(), &both(&self.front_proxy, &front_proxy))?;
        (self.cluster, self.front_proxy) = (cluster, front_proxy);
        Ok(())
    }

    /// Removes old CAs from the trust bundles.
    pub fn trust_only_current_cas(&self) -> io::Result<()> {
        replace(&self.files.ca(), self.cluster.pem())?;
        replace(&self.files.front_proxy_ca(), self.front_proxy.pem())
    }

    /// Writes the current CA of servers and users to a file of its own.
    pub fn current_ca(&self) -> io::Result<PathBuf> {
        let file = self.files.folder.join("current-ca.crt");
        replace(&file, self.cluster.pem())?;
        Ok(file)
    }

    /// Issues the pairs `server` and `front-proxy-client` again.
    pub fn issue_server_certificates(&self) -> io::Result<()> {
        let names = [SERVER_NAME.to_owned(), "localhost".to_owned()];
        let leaf = Leaf::named("kube-apiserver").names(&names).names(&self.addresses());
        self.issue("server", &self.cluster, leaf.for_servers())?;
        self.front_proxy_client(FRONT_PROXY_NAME).map(drop)
    }

    /// Issues a certificate for an etcd, as a server and as a client: behind its JSON API is a
    /// client of its own.
    pub fn etcd(&self) -> io::Result<PairFiles> {
        let leaf = Leaf::named("etcd").names(&self.addresses()).for_clients().for_servers();
        self.issue("etcd-server", &self.cluster, leaf)
    }

    /// Issues a certificate for the server behind a Service.
    pub fn service(&self, namespace: &str, name: &str) -> io::Result<PairFiles> {
        let dns = format!("{name}.{namespace}.svc");
        self.issue(name, &self.cluster, Leaf::named(name).names(&[dns]).for_servers())
    }

    /// Issues a client certificate for a user in up to two groups.
    pub fn user(&self, name: &str, groups: &[&str]) -> io::Result<PairFiles> {
        self.issue(name, &self.cluster, Leaf::new(&subject(name, groups)).for_clients())
    }

    /// Issues a client certificate of the front proxy CA.
    pub fn front_proxy_client(&self, name: &str) -> io::Result<PairFiles> {
        self.issue(name, &self.front_proxy, Leaf::named(name).for_clients())
    }

    /// Issues a certificate of the CA of servers and users.
    pub fn of_cluster(&self, name: &str, leaf: Leaf) -> io::Result<PairFiles> {
        self.issue(name, &self.cluster, leaf)
    }

    /// Issues a certificate of the CA of front proxies.
    pub fn of_front_proxies(&self, name: &str, leaf: Leaf) -> io::Result<PairFiles> {
        self.issue(name, &self.front_proxy, leaf)
    }

    /// Issues a client certificate of a CA that nobody trusts.
    pub fn untrusted_user(&self, name: &str, groups: &[&str]) -> io::Result<PairFiles> {
        let leaf = Leaf::new(&subject(name, groups)).for_clients();
        self.issue(&format!("untrusted-{name}"), &Ca::new("untrusted"), leaf)
    }

    fn addresses(&self) -> Vec<String> {
        self.addresses.iter().map(IpAddr::to_string).collect()
    }

    fn issue(&self, name: &str, ca: &Ca, leaf: Leaf) -> io::Result<PairFiles> {
        ca.issue(leaf).write(&self.files.folder, name)?;
        Ok(self.files.pair(name))
    }
}

impl PkiFiles {
    /// The files in a folder that [`Pki::new`] filled.
    pub fn at(folder: &Path) -> PkiFiles {
        PkiFiles { folder: folder.to_owned() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The bundle of CAs of servers and users.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The bundle of CAs of front proxies.
    pub fn front_proxy_ca(&self) -> PathBuf {
        self.folder.join("front-proxy-ca.crt")
    }

    /// The pair of this name.
    pub fn pair(&self, name: &str) -> PairFiles {
        let file = |extension| self.folder.join(format!("{name}.{extension}"));
        PairFiles { certificate: file("crt"), key: file("key") }
    }

    /// The serving certificate of every server.
    pub fn server(&self) -> PairFiles {
        self.pair("server")
    }

    /// The proxy client certificate.
    pub fn front_proxy(&self) -> PairFiles {
        self.pair(FRONT_PROXY_NAME)
    }

    /// The key that signs service account tokens. Its `certificate` is the public key.
    pub fn service_accounts(&self) -> PairFiles {
        self.pair("sa")
    }
}

fn subject(name: &str, groups: &[&str]) -> Vec<Attribute> {
    groups.iter().map(|group| o(group)).chain([cn(name)]).collect()
}
