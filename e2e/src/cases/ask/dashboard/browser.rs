//! A browser that a script drives, command by command. Entry item: [`Tab`].

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::programs::{Browser, browser_folder};

/// The time limit of a command.
const DEADLINE: Duration = Duration::from_secs(120);

/// A browser with a page.
pub(super) struct Tab {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Tab {
    /// Starts the browser, with a fresh profile.
    pub(super) fn start(browser: &Browser) -> anyhow::Result<Tab> {
        let folder = browser.packages.parent().unwrap_or(&browser.packages);
        let mut process = Command::new("node")
            .arg(browser_folder().join("dashboard.js"))
            .arg(&browser.chromium)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .context("cannot run node")?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?).lines();
        Ok(Tab { input, output, _process: process })
    }

    /// Opens a page, and waits until it shows members and differences.
    pub(super) async fn open(&mut self, url: &str) -> anyhow::Result<Value> {
        self.ask("open", json!({ "url": url })).await
    }

    /// A picture for the documentation: of the whole page, or of what a phone shows at first.
    pub(super) async fn picture(
        &mut self,
        name: &str,
        theme: &str,
        width: u32,
    ) -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
        std::fs::create_dir_all(&folder)?;
        let options = json!({ "file": folder.join(name), "theme": theme, "width": width, "full": width > 500 });
        self.ask("screenshot", options).await.map(drop)
    }

    /// Sends a command with options, and waits for its answer.
    pub(super) async fn ask(&mut self, command: &str, options: Value) -> anyhow::Result<Value> {
        let mut request = options;
        if let Some(fields) = request.as_object_mut() {
            fields.insert("do".to_owned(), json!(command));
        }
        let exchange = async {
            self.input.write_all(format!("{request}\n").as_bytes()).await?;
            self.input.flush().await?;
            self.output.next_line().await?.context("the browser ended")
        };
        let line = timeout(DEADLINE, exchange);
        let line = line.await.with_context(|| format!("no answer to {request}"))?;
        let line = line.with_context(|| request.to_string())?;
        let answer: Value = serde_json::from_str(&line)?;
        match (answer.get("ok"), answer.get("error")) {
            (Some(ok), _) => Ok(ok.clone()),
            (None, Some(error)) => bail!("the page: {error}"),
            (None, None) => bail!("no answer: {line}"),
        }
    }
}
