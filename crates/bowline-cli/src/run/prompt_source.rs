//! The source of a run's prompt: the command line, a file, or stdin.

use std::io::{IsTerminal as _, Read as _};

use anyhow::Context as _;
use bowline_text::display::quote;

use super::RunArguments;
use bowline_client::error::CliError;
use bowline_client::prompt::PromptPart;

/// The maximum size of a prompt, in bytes.
const MAX_PROMPT: u64 = 8 << 20;
/// Where the prompt came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptSource {
    Stdin,
    Other,
}

/// Reads the prompt.
pub(super) fn read_prompt(arguments: &RunArguments) -> Result<(Vec<PromptPart>, PromptSource), CliError> {
    let stdin = || read_text(std::io::stdin(), "stdin").map(PromptPart::Read);
    let (parts, source) = match (&arguments.file, arguments.prompt.as_slice()) {
        (Some(file), _) if file == "-" => (vec![stdin()?], PromptSource::Stdin),
        (Some(file), _) => {
            let opened = std::fs::File::open(file).and_then(|opened| match opened.metadata()?.is_dir() {
                // Opening a directory succeeds, and reading it would fail later with the same error.
                true => Err(std::io::ErrorKind::IsADirectory.into()),
                false => Ok(opened),
            });
            let opened = opened.map_err(|error| {
                CliError::Usage(format!("cannot read the prompt {}: {error}", quote(file)))
            })?;
            (vec![PromptPart::Read(read_text(opened, &quote(file))?)], PromptSource::Other)
        }
        (None, []) if std::io::stdin().is_terminal() => {
            let message = "what should the agent do? Give it a prompt, as in: bowline run 'read README.md'";
            return Err(CliError::Usage(message.to_owned()));
        }
        (None, []) => (vec![stdin()?], PromptSource::Stdin),
        (None, words) => match words.iter().filter(|word| *word == "-").count() {
            0 => (vec![PromptPart::Typed(words.join(" "))], PromptSource::Other),
            1 => {
                let index = words.iter().position(|word| word == "-").unwrap_or_default();
                let [before, after] =
                    [&words[..index], &words[index + 1..]].map(|words| PromptPart::Typed(words.join(" ")));
                (vec![before, stdin()?, after], PromptSource::Stdin)
            }
            _ => return Err(CliError::Usage("stdin can be read once: give one - only".to_owned())),
        },
    };
    if parts.iter().all(|part| part.text().trim().is_empty()) {
        return Err(CliError::Usage("the prompt is empty: say what the agent should do".to_owned()));
    }
    Ok((parts, source))
}

fn read_text(reader: impl std::io::Read, name: &str) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    reader.take(MAX_PROMPT + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(CliError::Usage(format!(
            "{name} has more than {MAX_PROMPT} bytes: mention files as @FILE instead"
        )));
    }
    String::from_utf8(bytes).map_err(|_| CliError::Usage(format!("{name} is not UTF-8")))
}
