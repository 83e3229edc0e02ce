//! The programs under test, built once per version from Go modules into a cache outside the tree.
//! Entry item: [`Programs::get`].

mod browser;
mod clients;
mod debian;
mod nodes;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};
use testkit::process::Program;
use testkit::programs::{cache, mvp};

pub(crate) use browser::{Browser, browser_folder};
pub(crate) use clients::{Clients, node_folder, python_folder};
pub(crate) use nodes::NodePrograms;

/// The builds of every run. Each has a Go module under `e2e/programs`, which pins its dependencies.
const BUILDS: [Build; 3] = [
    Build {
        folder: "etcd",
        main_module: "go.etcd.io/etcd/server/v3",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
    },
    Build {
        folder: "v1.36",
        main_module: "k8s.io/kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            ("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
        ],
    },
    Build {
        folder: "v1.34",
        main_module: "k8s.io/kubernetes",
        programs: &[("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver")],
    },
];

/// The servers that are built only when a case needs them.
const OTHER_SERVERS: [Minor; 3] = [Minor::Oldest, Minor::V1_35, Minor::V1_37];

/// The test client that uses client-go.
const CLIENT_GO: Build =
    Build { folder: "client-go", main_module: "k8s.io/client-go", programs: &[("client-go", ".")] };

/// The e2e suite of Kubernetes.
const UPSTREAM: Build = Build {
    folder: "upstream",
    main_module: "k8s.io/kubernetes",
    programs: &[("e2e.test", "k8s.io/kubernetes/test/e2e")],
};

/// The conformance test of HTTP/2 servers.
const H2SPEC: Build = Build {
    folder: "h2spec",
    main_module: "github.com/summerwind/h2spec",
    programs: &[("h2spec", "github.com/summerwind/h2spec/cmd/h2spec")],
};

struct Build {
    folder: &'static str,
    /// The module that gives the version.
    main_module: &'static str,
    programs: &'static [(&'static str, &'static str)],
}

/// A minor version of Kubernetes that the suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Minor {
    /// The oldest version that builds with a current Go.
    Oldest,
    V1_34,
    V1_35,
    V1_36,
    V1_37,
}

impl Minor {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Minor::Oldest => "v1.24",
            Minor::V1_34 => "v1.34",
            Minor::V1_35 => "v1.35",
            Minor::V1_36 => "v1.36",
            Minor::V1_37 => "v1.37",
        }
    }
}

/// The programs that a run needs besides etcd and the two usual versions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs {
    pub(crate) servers: Vec<Minor>,
    pub(crate) clients: bool,
    /// The e2e suite of Kubernetes.
    pub(crate) upstream: bool,
    pub(crate) prometheus: bool,
    /// Chromium and what drives it.
    pub(crate) browser: bool,
    /// The programs of kubeadm nodes.
    pub(crate) nodes: bool,
}

/// Programs that are ready to run.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// By module folder: the version and the folder of the programs.
    built: BTreeMap<&'static str, (String, PathBuf)>,
    /// The gateway under test.
    pub(crate) mvp: PathBuf,
    /// Other clients than kubectl of the newest version, if a case needs them.
    pub(crate) clients: Clients,
    /// The folder of Prometheus and promtool, if a case needs them, or why they are missing.
    prometheus: Option<Result<PathBuf, String>>,
    /// The browser, if a case needs it, or why it is missing.
    browser: Option<Result<Browser, String>>,
    /// The programs of kubeadm nodes, if a case needs them, or why they are missing.
    nodes: Option<Result<NodePrograms, String>>,
}

impl Programs {
    /// Finds the usual programs in the cache, or builds them.
    pub(crate) fn get() -> anyhow::Result<Programs> {
        Programs::get_with(&Needs::default())
    }

    /// Finds or builds the usual programs and these.
    pub(crate) fn get_with(needs: &Needs) -> anyhow::Result<Programs> {
        let cache = cache()?;
        let mut built = BTreeMap::new();
        for build in &BUILDS {
            built.insert(build.folder, build.get(&cache)?);
        }
        for minor in OTHER_SERVERS.iter().filter(|minor| needs.servers.contains(minor)) {
            built.insert(minor.folder(), Build::kube_apiserver(*minor).get(&cache)?);
        }
        if needs.upstream {
            built.insert(UPSTREAM.folder, UPSTREAM.get(&cache)?);
        }
        let clients = if needs.clients { Clients::get(&cache)? } else { Clients::default() };
        let prometheus =
            needs.prometheus.then(|| debian::prometheus(&cache).map_err(|e| format!("{e:#}")));
        let nodes = needs.nodes.then(|| NodePrograms::get(&cache).map_err(|e| format!("{e:#}")));
        let browser = needs.browser.then(|| Browser::get(&cache).map_err(|e| format!("{e:#}")));
        Ok(Programs { built, clients, prometheus, browser, nodes, mvp: mvp("release")? })
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.program("etcd", "etcd")
    }

    pub(crate) fn kube_apiserver(&self, minor: Minor) -> PathBuf {
        self.program(minor.folder(), "kube-apiserver")
    }

    pub(crate) fn kube_controller_manager(&self) -> PathBuf {
        self.program("v1.36", "kube-controller-manager")
    }

    pub(crate) fn kubectl(&self) -> PathBuf {
        self.program("v1.36", "kubectl")
    }

    pub(crate) fn kubeadm(&self) -> PathBuf {
        self.program("v1.36", "kubeadm")
    }

    /// The e2e suite of Kubernetes.
    pub(crate) fn upstream_suite(&self) -> PathBuf {
        self.program(UPSTREAM.folder, "e2e.test")
    }

    /// The folder of Prometheus and promtool.
    pub(crate) fn prometheus(&self) -> anyhow::Result<&Path> {
        clients::available(self.prometheus.as_ref(), "Prometheus").map(PathBuf::as_path)
    }

    /// The browser and what drives it.
    pub(crate) fn browser(&self) -> anyhow::Result<&Browser> {
        clients::available(self.browser.as_ref(), "the browser")
    }

    /// The programs of kubeadm nodes.
    pub(crate) fn nodes(&self) -> anyhow::Result<&NodePrograms> {
        clients::available(self.nodes.as_ref(), "kubeadm")
    }

    /// The version that the server reports, such as `v1.36.4`.
    pub(crate) fn version(&self, minor: Minor) -> &str {
        self.built.get(minor.folder()).map_or("", |(version, _)| version)
    }

    /// `etcd v3.6.8, Kubernetes v1.34.10, …`
    pub(crate) fn described(&self) -> String {
        let name = |folder: &str| if folder == "etcd" { "etcd" } else { "Kubernetes" };
        let built = self.built.iter().filter(|(folder, _)| **folder != UPSTREAM.folder);
        let all: Vec<String> =
            built.map(|(folder, (version, _))| format!("{} {version}", name(folder))).collect();
        all.join(", ")
    }

    fn program(&self, folder: &str, name: &str) -> PathBuf {
        self.built.get(folder).map_or_else(PathBuf::new, |(_, folder)| folder.join(name))
    }
}

impl std::fmt::Display for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (_, folder) in self.built.values() {
            writeln!(f, "{}", folder.display())?;
        }
        write!(f, "{}", self.mvp.display())
    }
}

/// Finds h2spec in the cache, or builds it.
pub(crate) fn h2spec() -> anyhow::Result<PathBuf> {
    H2SPEC.get(&cache()?).map(|(_, folder)| folder.join("h2spec"))
}

impl Build {
    fn kube_apiserver(minor: Minor) -> Build {
        Build {
            folder: minor.folder(),
            main_module: "k8s.io/kubernetes",
            programs: &[("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver")],
        }
    }

    fn get(&self, cache: &Path) -> anyhow::Result<(String, PathBuf)> {
        self.get_as(cache, "")
    }

    /// Finds or builds the programs in a folder whose name ends with this text: two builds of one
    /// module need different folders.
    fn get_as(&self, cache: &Path, suffix: &str) -> anyhow::Result<(String, PathBuf)> {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(self.folder);
        let version = self.version(&module)?;
        let folder = cache.join(format!("{version}-{}{suffix}", self.key(&module)?));
        if self.programs.iter().all(|(name, _)| folder.join(name).is_file()) {
            return Ok((version, folder));
        }
        let go = go_version()?;
        // Built in another folder first: an interrupted build never looks complete.
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {cache:?}"))?;
        let beside = tempfile::tempdir_in(cache)?;
        for (name, package) in self.programs {
            let flags = linker_flags(&version);
            let mut command = Program::new("go", Path::new("go")).command()?;
            command.current_dir(&module);
            // A suite of tests is a program, too, but `go build` does not make it.
            let is_suite = name.ends_with(".test");
            // vet would analyse every dependency.
            let build: &[&str] =
                if is_suite { &["test", "-vet=off", "-c"] } else { &["build", "-v"] };
            command.args(build);
            command.args(["-ldflags", &flags, "-o"]);
            command.arg(beside.path().join(name)).arg(package);
            compile(&mut command, &format!("{name} {version} ({go})"))?;
        }
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::rename(beside.path(), &folder)
            .with_context(|| format!("cannot put the programs into {folder:?}"))?;
        Ok((version, folder))
    }

    /// The version that the module requires.
    fn version(&self, module: &Path) -> anyhow::Result<String> {
        let file = module.join("go.mod");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
        let required = text.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|word| *word == "require");
            let version = (words.next()? == self.main_module).then(|| words.next())?;
            version.filter(|version| version.starts_with('v'))
        });
        required
            .map(str::to_owned)
            .with_context(|| format!("{file:?} requires no {}", self.main_module))
    }

    /// A hash of the sources and the linker flags.
    fn key(&self, module: &Path) -> anyhow::Result<String> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let file = module.join(file);
            hash.update(std::fs::read(&file).with_context(|| format!("cannot read {file:?}"))?);
        }
        // The source of a test client, if there is one.
        hash.update(std::fs::read(module.join("main.go")).unwrap_or_default());
        hash.update(linker_flags(""));
        Ok(short(hash))
    }
}

fn short(hash: Sha256) -> String {
    hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The linker sets the version of Kubernetes programs.
fn linker_flags(version: &str) -> String {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} \
         -X {package}.gitMinor={minor}"
    )
}

fn go_version() -> anyhow::Result<String> {
    let output = Command::new("go").arg("version").output();
    let output = output.ok().filter(|output| output.status.success()).context(
        "Go is missing: the suite builds kube-apiserver, kubectl and etcd with it; install Go 1.26 \
         or newer",
    )?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.split(' ').nth(2).unwrap_or("go").to_owned())
}

/// Runs a compiler that prints each package, and shows progress.
fn compile(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    eprintln!("building {what}");
    let mut child = command.stderr(Stdio::piped()).spawn().context("cannot run go")?;
    let errors = child.stderr.take().context("go has no standard error")?;
    let compiled = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&compiled);
    let (done, ended) = mpsc::channel();
    // The last lines contain the error, if there is one.
    let reader = std::thread::spawn(move || {
        let mut last = Vec::new();
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            counter.fetch_add(1, Ordering::Relaxed);
            last.push(line);
            if last.len() > 20 {
                last.remove(0);
            }
        }
        let _ = done.send(());
        last
    });
    let terminal = std::io::stderr().is_terminal();
    let pause = Duration::from_secs(if terminal { 1 } else { 30 });
    while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
        let (packages, seconds) = (compiled.load(Ordering::Relaxed), started.elapsed().as_secs());
        let line = format!("  {packages} packages, {} min {:02} s", seconds / 60, seconds % 60);
        if terminal { eprint!("\r{line}") } else { eprintln!("{line}") }
    }
    let status = child.wait()?;
    let last = reader.join().unwrap_or_default();
    let seconds = started.elapsed().as_secs();
    if !status.success() {
        bail!("cannot build {what}:\n{}", last.join("\n"));
    }
    let packages = compiled.load(Ordering::Relaxed);
    let line_start = if terminal { "\r" } else { "" };
    eprintln!("{line_start}built {what}: {packages} packages in {seconds} s");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_pins_one_version() {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        for (build, prefix) in BUILDS.iter().zip(["v3.6.", "v1.36.", "v1.34."]) {
            let version = build.version(&programs.join(build.folder)).expect("a version");
            assert!(version.starts_with(prefix), "{version}");
        }
        let version = UPSTREAM.version(&programs.join(UPSTREAM.folder)).expect("a version");
        assert!(version.starts_with("v1.36."), "{version}");
        for minor in OTHER_SERVERS {
            let build = Build::kube_apiserver(minor);
            let version = build.version(&programs.join(build.folder)).expect("a version");
            assert!(version.starts_with(&format!("{}.", minor.folder())), "{version}");
        }
    }

    #[test]
    fn the_version_is_stamped_in() {
        let flags = linker_flags("v1.36.4");
        for part in ["gitVersion=v1.36.4", "gitMajor=1", "gitMinor=36"] {
            assert!(flags.split('.').count() > 1 && flags.contains(part), "{flags}");
        }
    }
}
