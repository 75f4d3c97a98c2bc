//! What the texts of all crates tell a person to run exists.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::Arguments;

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() {
            sources(&path, found);
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the commands of Bowline in a text: those in backquotes or parentheses, and examples that begin a line.
fn commands(text: &str) -> Vec<String> {
    // A string that goes on in the next line.
    let joined = text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().concat();
    let mut found = Vec::new();
    for (open, close) in [("`bowline ", "`"), ("(bowline ", ")"), ("\n  bowline ", "  ")] {
        for (at, _) in joined.match_indices(open) {
            let rest = &joined[at + open.len()..];
            let end = [rest.find(close), rest.find('\n'), rest.find("\";")].into_iter().flatten().min();
            found.push(rest[..end.unwrap_or(rest.len())].replace("\\\"", "\""));
        }
    }
    found
}

/// Says what is wrong with a command that a person is told to run, if something is.
fn fault(command: &str) -> Option<String> {
    // What a shell does with its output is no part of it, nor is what stands for something else.
    let own =
        command.split([';', '|', '>', '…']).next().unwrap_or_default().trim_end_matches(['.', ',', ':']);
    let words = shlex::split(own).unwrap_or_default();
    // A command that stands for any.
    if words.first().is_some_and(|word| word == "COMMAND") {
        return None;
    }
    let words = words.into_iter().map(|word| if word.starts_with('{') { "x".to_owned() } else { word });
    let parsed =
        Arguments::command().try_get_matches_from(std::iter::once("bowline".to_owned()).chain(words));
    match parsed.map_err(|error| error.kind()) {
        // A value that stands for another need not be one, and what has to follow is left to the person.
        Err(kind @ (ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand)) => Some(kind.to_string()),
        _ => None,
    }
}

#[test]
fn every_command_that_a_text_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap().map(Result::unwrap) {
        sources(&entry.path().join("src"), &mut files);
    }
    let (mut wrong, mut right) = (Vec::new(), 0);
    for file in files {
        for command in commands(&std::fs::read_to_string(&file).unwrap()) {
            match fault(&command) {
                None => right += 1,
                Some(why) => wrong.push(format!("{}: `bowline {command}`: {why}", file.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right > 100, "{right}");
    assert!(
        fault("policy list").is_some() && fault("undo --no-such").is_some() && fault("policy show").is_none()
    );
}
