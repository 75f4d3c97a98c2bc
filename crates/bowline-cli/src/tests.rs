//! Tests that every command named in a text of any crate exists.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::Cli;

fn collect_sources(directory: &Path, sources: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

/// Returns the Bowline commands in a text: those in backquotes or parentheses, and examples at the start of a line.
fn find_commands(text: &str) -> Vec<String> {
    // Joins strings that continue on the next line.
    let joined = text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().concat();
    let mut commands = Vec::new();
    for (open, close) in [("`bowline ", "`"), ("(bowline ", ")"), ("\n  bowline ", "  ")] {
        for (index, _) in joined.match_indices(open) {
            let rest = &joined[index + open.len()..];
            let end = [rest.find(close), rest.find('\n'), rest.find("\";")].into_iter().flatten().min();
            commands.push(rest[..end.unwrap_or(rest.len())].replace("\\\"", "\""));
        }
    }
    commands
}

/// Returns what is wrong with a command, if anything.
fn command_error(command: &str) -> Option<String> {
    // Shell redirections and ellipses are not part of the command.
    let text =
        command.split([';', '|', '>', '…']).next().unwrap_or_default().trim_end_matches(['.', ',', ':']);
    let words = shlex::split(text).unwrap_or_default();
    // A placeholder for any command.
    if words.first().is_some_and(|word| word == "COMMAND") {
        return None;
    }
    let words = words.into_iter().map(|word| if word.starts_with('{') { "x".to_owned() } else { word });
    let parsed = Cli::command().try_get_matches_from(std::iter::once("bowline".to_owned()).chain(words));
    match parsed.map_err(|error| error.kind()) {
        // Placeholder values need not be valid, and missing arguments are left to the user.
        Err(kind @ (ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand)) => Some(kind.to_string()),
        _ => None,
    }
}

#[test]
fn every_command_that_a_text_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for directory in [crates.to_owned(), crates.join("pure")] {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path().join("src"));
        entries.filter(|sources| sources.is_dir()).for_each(|sources| collect_sources(&sources, &mut files));
    }
    let (mut errors, mut valid) = (Vec::new(), 0);
    for file in files {
        for command in find_commands(&std::fs::read_to_string(&file).unwrap()) {
            match command_error(&command) {
                None => valid += 1,
                Some(error) => errors.push(format!("{}: `bowline {command}`: {error}", file.display())),
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(valid > 100, "{valid}");
    assert!(
        command_error("policy list").is_some()
            && command_error("undo --no-such").is_some()
            && command_error("policy show").is_none()
    );
}
