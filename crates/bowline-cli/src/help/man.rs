//! `bowline man`: the manual pages, made from the same definitions as `--help`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_client::common::console::{escape_line, pluralize, print, print_note};
use bowline_client::error::CliError;
use clap::{Args, Command, CommandFactory as _};

use super::completions::without_hidden_commands;
use crate::Cli;

const EXAMPLES: &str = "\
Examples:
  bowline man | man -l -                          read the main page
  bowline man undo | man -l -                     read the page of a command
  bowline man --output ~/.local/share/man/man1    install all pages, for `man bowline-undo`";

/// Which pages to print or write.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArguments {
    /// The command, such as `undo` or `sessions show` (default: the main page)
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    command: Vec<String>,
    /// Write all pages to this directory, which is created if necessary
    #[arg(long, short, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &ManArguments) -> Result<(), CliError> {
    let program = without_hidden_commands(&Cli::command());
    if let Some(directory) = &arguments.output {
        return write_pages(&program, directory);
    }
    let mut command = &program;
    let mut name = vec!["bowline"];
    for word in &arguments.command {
        command = command.find_subcommand(word).ok_or_else(|| {
            let shown = escape_line(word);
            CliError::Usage(format!("`{}` has no command {shown}: see `bowline --help`", name.join(" ")))
        })?;
        name.push(command.get_name());
    }
    print(&render_page(command, &name.join("-"))?)
}

fn write_pages(program: &Command, directory: &Path) -> Result<(), CliError> {
    let shown = escape_line(&directory.to_string_lossy());
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {shown}"))?;
    let mut pages = Vec::new();
    collect_pages(program, "bowline", &mut pages)?;
    for (name, page) in &pages {
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, page)
            .with_context(|| format!("cannot write {}", escape_line(&path.to_string_lossy())))?;
    }
    print_note(&format!("wrote {} to {shown}", pluralize(pages.len(), "page", "pages")));
    Ok(())
}

/// Collects the pages of a command and its subcommands.
fn collect_pages(command: &Command, name: &str, pages: &mut Vec<(String, String)>) -> Result<(), CliError> {
    pages.push((name.to_owned(), render_page(command, name)?));
    let visible = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    // `help` repeats the other commands.
    for subcommand in visible.filter(|subcommand| subcommand.get_name() != "help") {
        collect_pages(subcommand, &format!("{name}-{}", subcommand.get_name()), pages)?;
    }
    Ok(())
}

fn render_page(command: &Command, name: &str) -> Result<String, CliError> {
    let command = command.clone().display_name(name).bin_name(name.replace('-', " "));
    let source = concat!("Bowline ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command).title(name).source(source);
    let mut text = Vec::new();
    page.render(&mut text).context("cannot write the page")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
