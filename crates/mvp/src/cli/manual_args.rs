//! The flags of the commands that tell about `mvp` itself.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::cli::Output;

/// The flags of `mvp version`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  What is in this binary:
    mvp version
  The commit, for a script:
    mvp version -o json | jq -r .commit

mvp --version prints the version alone, in one line.")]
pub(crate) struct VersionArgs {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

/// The flags of `mvp completions`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  For all users, with the package bash-completion:
    mvp completions bash > /usr/share/bash-completion/completions/mvp
  For you alone, in a directory of $fpath, or in fish's:
    mvp completions zsh > ~/.zsh/completions/_mvp
    mvp completions fish > ~/.config/fish/completions/mvp.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_parser = shell)]
    pub shell: Shell,
}

/// The flags of `mvp man`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  Read the page of one command:
    mvp man status | man -l -
  Install all pages; then man mvp-status works:
    mvp man --out /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command whose page is printed [default: the page of mvp itself].
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Option<String>,
    /// Write the pages of all commands into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The shells whose completions are tested.
const SHELLS: [(&str, Shell); 3] =
    [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

fn shell(text: &str) -> Result<Shell, String> {
    let found = SHELLS.into_iter().find(|(name, _)| *name == text);
    let found = found.map(|(_, shell)| shell);
    found.ok_or_else(|| "no shell that is supported; give bash, zsh or fish".to_owned())
}
