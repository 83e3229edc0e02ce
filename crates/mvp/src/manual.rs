//! What installers put beside the binary, made from the definition of the command line: completions of
//! shells and manual pages. Entries: [`completions`], [`pages`].

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::build_info::VERSION;
use crate::cli::{self, CompletionsArgs, ManArgs};
use crate::mistake::Mistake;

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&cli::command()), "mvp", &mut script);
    io::stdout().write_all(&script)?;
    Ok(())
}

/// Prints one manual page, or writes all of them.
pub(crate) fn pages(args: &ManArgs) -> anyhow::Result<()> {
    let all = all_pages();
    if let Some(directory) = &args.out {
        return write_all(directory, all);
    }
    let name = args.command.as_ref().map_or_else(|| "mvp".to_owned(), |name| format!("mvp-{name}"));
    let Some(page) = all.iter().find(|page| page.get_name() == name) else {
        let names: Vec<&str> =
            all.iter().filter_map(|page| page.get_name().strip_prefix("mvp-")).collect();
        let hint = format!("no such command; give one of {}", names.join(", "));
        return Err(Mistake::usage("mvp man", hint).into());
    };
    io::stdout().write_all(&rendered(page)?)?;
    Ok(())
}

fn write_all(directory: &Path, all: Vec<Command>) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("--out: cannot create {}", directory.display()))?;
    for page in all {
        let path = directory.join(format!("{}.1", page.get_name()));
        std::fs::write(&path, rendered(&page)?)
            .with_context(|| format!("--out: cannot write {}", path.display()))?;
        writeln!(io::stdout(), "{}", path.display())?;
    }
    Ok(())
}

/// The command itself, and each of its commands under the name of its page.
fn all_pages() -> Vec<Command> {
    let mut command = cli::command();
    command.build();
    let each = command.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| {
        let name = format!("mvp-{}", command.get_name());
        command.clone().name(name)
    });
    let mut pages: Vec<Command> = each.collect();
    pages.insert(0, command);
    pages
}

/// A page. Examples keep their lines, which the library would join.
fn rendered(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("mvp").source(format!("mvp {}", VERSION));
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_help() {
        let text = text.to_string();
        let mut section = Roff::new();
        section.control("SH", ["EXAMPLES"]);
        section.control("nf", []);
        section.text([roman(text.strip_prefix("Examples:\n").unwrap_or(&text))]);
        section.control("fi", []);
        section.to_writer(&mut page)?;
    }
    Ok(page)
}

/// The command without hidden flags, which the completions would offer.
fn visible(command: &Command) -> Command {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new(command.get_name().to_owned())
        .version(VERSION)
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_version_flag(command.get_name() != "mvp")
        .args(shown.cloned())
        .subcommands(below.map(visible))
}
