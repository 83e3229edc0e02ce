//! How the other proxies are started: their command lines and configurations. Entry item: [`Proxies`].

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use testkit::certificates::SERVER_NAME;
use testkit::pki::PkiFiles;
use testkit::process::{Process, Program};

use super::{Programs, Target};

/// The proxies before one server.
pub(crate) struct Proxies<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) pki: &'a PkiFiles,
    /// The folder of configurations and logs.
    pub(crate) folder: &'a Path,
    /// The server behind.
    pub(crate) server: SocketAddr,
    /// The CPUs of the proxies.
    pub(crate) cpus: Option<String>,
}

impl Proxies<'_> {
    /// Starts a proxy of the comparison, but not `mvp`.
    pub(crate) fn start(&self, target: Target, listen: SocketAddr) -> anyhow::Result<Process> {
        match target {
            Target::Haproxy | Target::HaproxyAwsLc => self.haproxy(target, listen),
            Target::Nginx => {
                let file =
                    self.write("nginx.conf", include_str!("../../configs/nginx.conf"), listen)?;
                self.run(target, &["-p".to_owned(), text(self.folder), "-c".to_owned(), file])
            }
            Target::Envoy => {
                let file =
                    self.write("envoy.yaml", include_str!("../../configs/envoy.yaml"), listen)?;
                let flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"];
                let flags = flags.into_iter().chain(["-c", &file]).map(str::to_owned);
                self.run(target, &flags.collect::<Vec<_>>())
            }
            Target::Pingora => {
                let (server, proxy) = (self.pki.server(), self.pki.front_proxy());
                let files = [
                    &self.pki.ca(),
                    &server.certificate,
                    &server.key,
                    &proxy.certificate,
                    &proxy.key,
                ];
                let mut arguments: Vec<String> = files.into_iter().map(|file| text(file)).collect();
                arguments.extend([listen.to_string(), self.server.to_string()]);
                arguments.push(SERVER_NAME.to_owned());
                self.run(target, &arguments)
            }
            Target::Bare => {
                let pki = self.pki.folder().display().to_string();
                let (listen, server) = (listen.to_string(), self.server.to_string());
                self.run(target, &["forward".to_owned(), pki, listen, server])
            }
            Target::Direct | Target::MvpLocal | Target::MvpPeer => {
                anyhow::bail!("{} is no proxy of others", target.name())
            }
        }
    }

    fn haproxy(&self, target: Target, listen: SocketAddr) -> anyhow::Result<Process> {
        // haproxy reads a certificate and its key from one file.
        for (name, pair) in
            [("server.pem", self.pki.server()), ("proxy.pem", self.pki.front_proxy())]
        {
            let both = [std::fs::read(pair.certificate)?, std::fs::read(pair.key)?].concat();
            std::fs::write(self.folder.join(name), both)?;
        }
        let name = format!("haproxy-{}.cfg", listen.ip());
        let file = self.write(&name, include_str!("../../configs/haproxy.cfg"), listen)?;
        self.run(target, &["-db".to_owned(), "-f".to_owned(), file])
    }

    fn run(&self, target: Target, arguments: &[String]) -> anyhow::Result<Process> {
        let (name, program) = (target.name(), self.programs.of(target)?);
        let program = program.with_context(|| format!("no {name}"))?;
        let log = self.folder.join(format!("{}.log", name.replace([' ', ','], "-")));
        Program::new(name, &program).on_cpus(self.cpus.clone()).start(&log, arguments)
    }

    /// Writes a configuration, and returns its path.
    fn write(&self, name: &str, template: &str, listen: SocketAddr) -> anyhow::Result<String> {
        let file = self.folder.join(name);
        std::fs::write(&file, self.filled(template, listen))?;
        Ok(text(&file))
    }

    /// A configuration template with its placeholders replaced.
    fn filled(&self, template: &str, listen: SocketAddr) -> String {
        let pki = self.pki;
        let (server, proxy) = (pki.server(), pki.front_proxy());
        let mut filled = template.to_owned();
        for (blank, path) in [
            ("@FOLDER@", self.folder.to_owned()),
            ("@CA@", pki.ca()),
            ("@SERVER_CRT@", server.certificate),
            ("@SERVER_KEY@", server.key),
            ("@SERVER_PEM@", self.folder.join("server.pem")),
            ("@PROXY_CRT@", proxy.certificate),
            ("@PROXY_KEY@", proxy.key),
            ("@PROXY_PEM@", self.folder.join("proxy.pem")),
        ] {
            filled = filled.replace(blank, &text(&path));
        }
        for (place, address) in [("LISTEN", listen), ("BACKEND", self.server)] {
            filled = filled
                .replace(&format!("@{place}@"), &address.to_string())
                .replace(&format!("@{place}_IP@"), &address.ip().to_string())
                .replace(&format!("@{place}_PORT@"), &address.port().to_string());
        }
        filled.replace("@SERVER_NAME@", SERVER_NAME)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki;

    #[test]
    fn no_placeholder_of_a_configuration_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = pki::create(folder.path()).expect("certificates");
        let programs = Programs::only("/mvp".into());
        let [server, listen] = [1, 2].map(|host| SocketAddr::from(([127, 0, 0, host], 6443)));
        let proxies =
            Proxies { programs: &programs, pki: &pki, folder: folder.path(), server, cpus: None };
        for template in [
            include_str!("../../configs/haproxy.cfg"),
            include_str!("../../configs/nginx.conf"),
            include_str!("../../configs/envoy.yaml"),
        ] {
            let filled = proxies.filled(template, listen);
            // `@` alone is in comments, and in Envoy's `@type`.
            let blank = filled.split('@').find(|word| {
                let is_name = |letter: char| letter.is_ascii_uppercase() || letter == '_';
                word.len() > 1 && word.chars().all(is_name)
            });
            assert_eq!(blank, None);
            assert!(filled.contains("127.0.0.2") && filled.contains("127.0.0.1"));
        }
    }
}
