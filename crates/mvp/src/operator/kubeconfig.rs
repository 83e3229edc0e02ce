//! A kubeconfig, read as kubectl reads it. Entries: [`Kubeconfig::load`], [`Kubeconfig::access`].
//!
//! Every setting is used or refused; none is ignored that changes whom the server sees or how it is
//! verified.

mod exec;
mod model;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use mvp_net::ClientTls;
use rustls_pki_types::ServerName;

use self::model::{Cluster, Context, Document, User};
use super::https::Https;
use crate::cli::{ServerUrl, server_url};
use crate::files;
use crate::mistake::{Mistake, Problem};

/// The merged content of one or more files. An entry remembers the folder of its file.
#[derive(Debug, Default)]
pub(crate) struct Kubeconfig {
    current: Option<String>,
    contexts: Vec<Entry<Context>>,
    clusters: Vec<Entry<Cluster>>,
    users: Vec<Entry<User>>,
}

#[derive(Debug)]
struct Entry<T> {
    name: String,
    value: T,
    folder: PathBuf,
}

/// What is needed to talk to a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub(crate) url: Option<ServerUrl>,
    pub(crate) credentials: Credentials,
}

/// How a server is verified, and who we are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// The CA bundle (PEM), and where it comes from.
    pub(crate) ca: Option<(Vec<u8>, String)>,
    /// A certificate and its key (PEM).
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) token: Option<String>,
    /// The name in the server's certificate; the host of the URL if there is none.
    pub(crate) server_name: Option<String>,
}

impl Kubeconfig {
    /// Reads the file of `--kubeconfig`, or those of `KUBECONFIG`, or `~/.kube/config`.
    pub(crate) fn load(flag: Option<&Path>) -> Result<Kubeconfig, Mistake> {
        let mut config = Kubeconfig::default();
        if let Some(path) = flag {
            config.read(path).map_err(|problem| Mistake::trouble("--kubeconfig", problem))?;
            return Ok(config);
        }
        let listed = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
        let paths: Vec<PathBuf> = match &listed {
            Some(paths) => std::env::split_paths(paths).collect(),
            None => {
                std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect()
            }
        };
        // Like kubectl: files of the list that do not exist are skipped.
        let there: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
        if there.is_empty() {
            let sentence = "there is no kubeconfig; give --kubeconfig=FILE, or set KUBECONFIG";
            return Err(Mistake::Trouble(sentence.to_owned()));
        }
        for path in there {
            let setting = if listed.is_some() { "KUBECONFIG" } else { "kubeconfig" };
            config.read(path).map_err(|problem| Mistake::trouble(setting, problem))?;
        }
        Ok(config)
    }

    /// The contents of one file.
    #[cfg(fuzzing)]
    pub(crate) fn of(text: &str) -> Result<Kubeconfig, Problem> {
        let mut config = Kubeconfig::default();
        config.add(text, Path::new("/nowhere")).map(|()| config)
    }

    /// Adds a file. What earlier files have is kept.
    fn read(&mut self, path: &Path) -> Result<(), Problem> {
        let text = String::from_utf8(files::read(path)?)
            .map_err(|_| format!("{} is not text; give a YAML file in UTF-8", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.add(&text, &folder).map_err(|problem| format!("{} {problem}", path.display()).into())
    }

    fn add(&mut self, text: &str, folder: &Path) -> Result<(), Problem> {
        let document: Document = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            let reason = error.without_snippet().to_string();
            let reason = reason.lines().next().unwrap_or_default().to_owned();
            format!("line {line}: {reason}; give a kubeconfig")
        })?;
        let current = document.current_context.filter(|name| !name.is_empty());
        self.current = self.current.take().or(current);
        for named in document.contexts.into_iter().flatten() {
            add(&mut self.contexts, named.name, named.context, folder);
        }
        for named in document.clusters.into_iter().flatten() {
            add(&mut self.clusters, named.name, named.cluster, folder);
        }
        for named in document.users.into_iter().flatten() {
            add(&mut self.users, named.name, named.user, folder);
        }
        Ok(())
    }

    /// The name of the current context.
    pub(crate) fn current(&self) -> Result<&str, Mistake> {
        self.current.as_deref().ok_or_else(|| {
            let names = self.names();
            if names.is_empty() {
                let sentence = "the kubeconfig has no contexts; give another --kubeconfig";
                return Mistake::Trouble(sentence.to_owned());
            }
            Mistake::Trouble(format!(
                "the kubeconfig has no current context; give --context: {names}"
            ))
        })
    }

    /// The names of all contexts, in the order of the files.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().map(|entry| entry.name.as_str())
    }

    fn names(&self) -> String {
        self.contexts().collect::<Vec<_>>().join(", ")
    }

    /// The server and the credentials of a context. It runs the exec plugin that the user has.
    pub(crate) fn access(&self, context: &str) -> Result<Access, Mistake> {
        let Some(found) = named(&self.contexts, context) else {
            let names = self.names();
            let sentence = format!("the kubeconfig has no context {context:?}; it has: {names}");
            return Err(Mistake::usage("--context", sentence));
        };
        let wrong = |problem: Problem| Mistake::trouble(format!("context {context:?}"), problem);
        let Context { cluster, user } = &found.value;
        let missing = |what: &str, name: &str| {
            wrong(format!("the kubeconfig has no {what} {name:?}, which it names; add it").into())
        };
        let cluster = named(&self.clusters, cluster).ok_or_else(|| missing("cluster", cluster))?;
        let mut access = cluster.access().map_err(wrong)?;
        if !user.is_empty() {
            let user = named(&self.users, user).ok_or_else(|| missing("user", user))?;
            user.authenticate(&mut access, cluster).map_err(wrong)?;
        }
        Ok(access)
    }
}

fn add<T>(entries: &mut Vec<Entry<T>>, name: String, value: T, folder: &Path) {
    if named(entries, &name).is_none() {
        entries.push(Entry { name, value, folder: folder.to_owned() });
    }
}

fn named<'a, T>(entries: &'a [Entry<T>], name: &str) -> Option<&'a Entry<T>> {
    entries.iter().find(|entry| entry.name == name)
}

impl Entry<Cluster> {
    fn access(&self) -> Result<Access, Problem> {
        let cluster = &self.value;
        if cluster.insecure_skip_tls_verify {
            let fix = "set certificate-authority to the CA of the server";
            return Err(format!("insecure-skip-tls-verify is not supported; {fix}").into());
        }
        if !cluster.proxy_url.is_empty() {
            return Err(
                "proxy-url is not supported; run mvp where the server can be reached".into()
            );
        }
        let url = server_url(&cluster.server).map_err(|problem| format!("server: {problem}"))?;
        let ca = self.pem(
            ("certificate-authority-data", &cluster.certificate_authority_data),
            ("certificate-authority", &cluster.certificate_authority),
        )?;
        let origin = format!("the CA of cluster {:?} in the kubeconfig", self.name);
        let server_name = Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty());
        let credentials =
            Credentials { ca: ca.map(|pem| (pem, origin)), server_name, ..Credentials::default() };
        Ok(Access { url: Some(url), credentials })
    }
}

impl Entry<User> {
    fn authenticate(&self, access: &mut Access, cluster: &Entry<Cluster>) -> Result<(), Problem> {
        let user = &self.value;
        if let Some(setting) = user.unsupported() {
            return Err(format!(
                "user {:?}: {setting} is not supported; use a client certificate, \
                 a token or an exec plugin",
                self.name
            )
            .into());
        }
        let certificate = self.pem(
            ("client-certificate-data", &user.client_certificate_data),
            ("client-certificate", &user.client_certificate),
        )?;
        let key =
            self.pem(("client-key-data", &user.client_key_data), ("client-key", &user.client_key))?;
        let credentials = &mut access.credentials;
        credentials.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err("the user has a certificate without a key; add it".into());
            }
            (None, Some(_)) => {
                return Err("the user has a key without a certificate; add it".into());
            }
        };
        credentials.token = match (user.token_file.as_str(), user.token.as_str()) {
            ("", "") => None,
            ("", token) => Some(token.to_owned()),
            (file, _) => {
                Some(token(&self.folder.join(file)).map_err(|what| format!("tokenFile: {what}"))?)
            }
        };
        if let (Some(exec), None, None) = (&user.exec, &credentials.identity, &credentials.token) {
            let found = exec::run(exec, &cluster.value, &self.folder)?;
            (credentials.identity, credentials.token) = (found.identity, found.token);
        }
        Ok(())
    }
}

impl<T> Entry<T> {
    /// PEM from embedded data or from a file; the data wins, as in kubectl.
    fn pem(&self, data: (&str, &str), file: (&str, &str)) -> Result<Option<Vec<u8>>, Problem> {
        let trouble = |key: &str, what: &str| format!("{key} of {:?}: {what}", self.name);
        match (data.1.trim(), file.1) {
            ("", "") => Ok(None),
            ("", path) => files::read(&self.folder.join(path))
                .map(Some)
                .map_err(|what| trouble(file.0, &what.to_string()).into()),
            (text, _) => BASE64.decode(text.as_bytes()).map(Some).map_err(|_| {
                trouble(data.0, "it is not base64; create the kubeconfig again").into()
            }),
        }
    }
}

/// The token in a file.
pub(crate) fn token(path: &Path) -> Result<String, Problem> {
    let text = String::from_utf8(files::read(path)?).ok();
    let text = text.map(|text| text.trim().to_owned()).filter(|token| !token.is_empty());
    text.ok_or_else(|| format!("{} has no token; write one into it", path.display()).into())
}

impl Credentials {
    /// The way to a server.
    pub(crate) fn way(&self, url: &ServerUrl) -> Result<Https, Problem> {
        let Some((ca, origin)) = &self.ca else {
            return Err(
                "there is no CA to verify the server with; give --certificate-authority".into()
            );
        };
        let identity = self.identity.as_ref().map(|(chain, key)| (&**chain, &**key));
        let tls = ClientTls::new(ca, identity).and_then(|tls| tls.explained(origin));
        let tls = tls.map_err(|error| format!("{origin}, or the client certificate: {error}"))?;
        let name = self.server_name.as_ref().unwrap_or(&url.host);
        let name = ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} is not a server name; give a DNS name"))?;
        Ok(Https { url: url.clone(), tls, name, token: self.token.clone(), source: None })
    }
}
