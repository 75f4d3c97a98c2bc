//! The command that resumes a session, ready to paste into a shell.

use std::path::Path;

use bowline_client::ClientArguments;
use bowline_client::arguments::RemoteArguments;

/// Returns the command that reopens a session with the options of this one. The workspace path is absolute, because the
/// command may be pasted elsewhere.
pub(super) fn resume_command(arguments: &ClientArguments, session: &str) -> String {
    // Destructured, so that a new option cannot be forgotten here.
    let ClientArguments {
        agent,
        remote: RemoteArguments { connect, token_file, insecure },
        cwd,
        add_dir,
        open,
        model,
        base_url,
        window,
        mode,
        approve,
        policy,
        no_fs,
        no_terminal,
        read_only,
        confine,
        mcp,
        session: _,
        auth,
        timeout,
        trace,
    } = arguments;
    let mut words: Vec<String> = vec!["bowline".to_owned(), "chat".to_owned()];
    let mut push_option = |option: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([option.to_owned(), value]);
        }
    };
    push_option("--agent", agent.clone());
    push_option("--connect", connect.clone());
    push_option("--token-file", token_file.as_deref().map(absolute_path));
    push_option("--cwd", cwd.as_deref().map(absolute_path));
    for text in add_dir {
        let (directory, suffix) = text.strip_suffix(":ro").map_or((text.as_str(), ""), |path| (path, ":ro"));
        push_option("--add-dir", Some(absolute_path(Path::new(directory)) + suffix));
    }
    open.iter().for_each(|text| push_option("--open", Some(text.clone())));
    push_option("--model", model.clone());
    push_option("--base-url", base_url.clone());
    push_option("--window", window.map(|window| window.to_string()));
    push_option("--mode", mode.clone());
    let approve = approve.and_then(|approve| clap::ValueEnum::to_possible_value(&approve));
    push_option("--approve", approve.map(|value| value.get_name().to_owned()));
    push_option("--policy", policy.as_deref().map(absolute_path));
    mcp.iter().for_each(|text| push_option("--mcp", Some(text.clone())));
    push_option("--auth", auth.clone());
    push_option("--timeout", timeout.map(|time| time.as_secs_f64().to_string()));
    push_option("--trace", trace.as_deref().map(absolute_path));
    let flags = [
        ("--insecure", insecure),
        ("--no-fs", no_fs),
        ("--no-terminal", no_terminal),
        ("--read-only", read_only),
        ("--confine", confine),
    ];
    words.extend(flags.into_iter().filter(|(_, is_set)| **is_set).map(|(flag, _)| flag.to_owned()));
    words.extend(["--session".to_owned(), session.to_owned()]);
    let quoted = words.iter().map(|word| match shlex::try_quote(word) {
        Ok(quoted) => bowline_text::display::escape_line(&quoted, usize::MAX),
        // An argument cannot contain a NUL byte.
        Err(_) => String::new(),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn absolute_path(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ResumeTestCli {
        #[command(flatten)]
        client: ClientArguments,
    }

    fn check(arguments: &[&str], expected: &str) {
        let line = std::iter::once("chat").chain(arguments.iter().copied());
        let client = ResumeTestCli::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).client;
        assert_eq!(resume_command(&client, "s 1"), expected);
        // The printed command parses to the same arguments.
        let words = shlex::split(expected).unwrap();
        let reparsed =
            ResumeTestCli::try_parse_from(&words[1..]).unwrap_or_else(|error| panic!("{error}")).client;
        assert_eq!(resume_command(&reparsed, "s 1"), expected);
    }

    #[test]
    fn the_command_has_all_that_the_session_was_opened_with() {
        check(&[], "bowline chat --session 's 1'");
        check(
            &["--agent", "gemini --acp", "--cwd", "/my dir", "--session", "last"],
            "bowline chat --agent 'gemini --acp' --cwd '/my dir' --session 's 1'",
        );
        check(
            &["--read-only", "--approve", "edits", "--model", "a/b", "--mcp", "x=y z", "--add-dir", "/d:ro"],
            "bowline chat --add-dir /d:ro --model a/b --approve edits --mcp 'x=y z' --read-only --session 's 1'",
        );
        check(
            &["--connect", "https://h", "--token-file", "/t", "--insecure"],
            "bowline chat --connect https://h --token-file /t --insecure --session 's 1'",
        );
        check(&["--timeout", "5", "--no-fs"], "bowline chat --timeout 5 --no-fs --session 's 1'");
    }
}
