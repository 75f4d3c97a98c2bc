//! The command that goes on with a session, as a person can paste it into a shell.

use std::path::Path;

use crate::client::ClientArguments;

/// Returns the command that opens a session again as this one was opened. The workspace is named whole: the command may be
/// pasted elsewhere.
pub(super) fn command(arguments: &ClientArguments, session: &str) -> String {
    // An option that is added has to be thought of here.
    let ClientArguments {
        agent,
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
    let mut with = |option: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([option.to_owned(), value]);
        }
    };
    with("--agent", agent.clone());
    with("--cwd", cwd.as_deref().map(whole));
    for text in add_dir {
        let (directory, end) = text.strip_suffix(":ro").map_or((text.as_str(), ""), |path| (path, ":ro"));
        with("--add-dir", Some(whole(Path::new(directory)) + end));
    }
    open.iter().for_each(|text| with("--open", Some(text.clone())));
    with("--model", model.clone());
    with("--base-url", base_url.clone());
    with("--window", window.map(|window| window.to_string()));
    with("--mode", mode.clone());
    let approve = approve.and_then(|approve| clap::ValueEnum::to_possible_value(&approve));
    with("--approve", approve.map(|value| value.get_name().to_owned()));
    with("--policy", policy.as_deref().map(whole));
    mcp.iter().for_each(|text| with("--mcp", Some(text.clone())));
    with("--auth", auth.clone());
    with("--timeout", timeout.map(|time| time.as_secs_f64().to_string()));
    with("--trace", trace.as_deref().map(whole));
    let flags = [
        ("--no-fs", no_fs),
        ("--no-terminal", no_terminal),
        ("--read-only", read_only),
        ("--confine", confine),
    ];
    words.extend(flags.into_iter().filter(|(_, is_set)| **is_set).map(|(flag, _)| flag.to_owned()));
    words.extend(["--session".to_owned(), session.to_owned()]);
    let quoted = words.iter().map(|word| match shlex::try_quote(word) {
        Ok(quoted) => bowline_state::display::line(&quoted, usize::MAX),
        // No argument has a zero in it.
        Err(_) => String::new(),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn whole(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        client: ClientArguments,
    }

    fn check(arguments: &[&str], expected: &str) {
        let line = std::iter::once("chat").chain(arguments.iter().copied());
        let client = Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).client;
        assert_eq!(command(&client, "s 1"), expected);
        // What is printed means the same.
        let words = shlex::split(expected).unwrap();
        let again = Line::try_parse_from(&words[1..]).unwrap_or_else(|error| panic!("{error}")).client;
        assert_eq!(command(&again, "s 1"), expected);
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
        check(&["--timeout", "5", "--no-fs"], "bowline chat --timeout 5 --no-fs --session 's 1'");
    }
}
