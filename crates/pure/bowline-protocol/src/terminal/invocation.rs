//! The form of a command: words or a shell line, and its text.

use std::borrow::Cow;

use bowline_text::display::quote_shell_word;

/// The form of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Invocation {
    /// A program and its arguments, passed on unchanged. Never empty.
    Argv(Vec<String>),
    /// A shell command line.
    Shell(String),
}

/// Returns a command as one text: a shell line verbatim, a program with its arguments quoted as for a shell.
#[must_use]
pub fn format_invocation(invocation: &Invocation) -> Cow<'_, str> {
    match invocation {
        Invocation::Shell(line) => line.as_str().into(),
        Invocation::Argv(words) => {
            let mut line = String::new();
            for word in words {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&quote_shell_word(word));
            }
            line.into()
        }
    }
}

/// Returns a command as a person would type it: for `sh -c line`, only the line.
#[must_use]
pub fn format_typed_command(invocation: &Invocation) -> Cow<'_, str> {
    if let Invocation::Argv(words) = invocation
        && let [shell, flag, line] = words.as_slice()
        && flag == "-c"
        && matches!(shell.rsplit('/').next(), Some("sh" | "bash" | "dash" | "zsh"))
    {
        return line.as_str().into();
    }
    format_invocation(invocation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_as_a_shell_needs_it() {
        let argv = |words: &[&str]| Invocation::Argv(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(
            format_invocation(&argv(&["git", "commit", "-m", "it's $x", ""])),
            r"git commit -m 'it'\''s $x' ''"
        );
        assert_eq!(format_invocation(&Invocation::Shell("a | b".to_owned())), "a | b");
    }
}
