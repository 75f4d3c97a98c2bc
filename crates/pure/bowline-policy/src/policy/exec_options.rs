//! Options that make ordinary programs run others, or write to a given file.

use super::shell::ShellWord;
use super::wrappers::{InnerCommand, UNMATCHABLE};

/// Options that make an ordinary program run another, or write to a given file. The second element has the starts
/// of the options; one that ends in `=` takes its value after that or in the next word, and is not joined to others.
const EXEC_OPTIONS: &[(&[&str], &[&str])] = &[
    (&["find"], &["-ok", "-delete", "-fprint", "-fls"]),
    (&["fd", "fdfind"], &["-x", "-X", "--exec"]),
    (&["rg"], &["--pre", "--hostname-bin"]),
    (
        &["tar"],
        &[
            "--checkpoint-action", "--use-compress-program", "--to-command", "--rsh-command",
            "--info-script", "--new-volume-script", "-I", "-F", "--rmt-command",
        ],
    ),
    (&["sort"], &["--compress-prog", "-o", "--output"]),
    (&["rsync"], &["-e", "--rsh", "--rsync-path"]),
    (
        &["git"],
        &[
            "--config-env", "--git-dir", "--exec-path", "--upload-pack", "--receive-pack", "--ext-diff",
            "--open-files-in-pager", "-O", "--exec", "-x", "--extcmd", "--textconv", "ext::", "--output",
            "fd::",
        ],
    ),
    (&["cargo"], &["--config"]),
    (
        &["go"],
        &[
            "-exec", "-toolexec", "-vettool", "--exec", "--toolexec", "-o=", "--o=", "-overlay", "-modfile",
            "-ldflags", "-coverprofile", "-cpuprofile", "-memprofile",
        ],
    ),
    (&["printf", "test", "["], &["-v"]),
    (&["scp", "sftp"], &["-o", "-S"]),
    (
        &["curl"],
        &[
            "-K", "--config", "-o", "-O", "-D", "-c", "--output", "--remote-name", "--dump-header",
            "--cookie-jar", "--trace", "--libcurl", "--stderr",
        ],
    ),
    (
        &["wget"],
        &[
            "--use-askpass", "-e", "-O", "-P", "-o", "-a", "--output", "--append-output",
            "--directory-prefix", "--config",
        ],
    ),
    (&["zip"], &["-TT", "--unzip-command"]),
    (&["npm"], &["--script-shell", "--node-options"]),
    (&["shuf", "iconv"], &["-o", "--output"]),
    (&["split"], &["--filter"]),
    (&["man"], &["-P", "--pager", "-H", "--html", "-C", "--config-file"]),
    (&["less"], &["+", "-o", "-O", "-k", "--log-file", "--LOG-FILE", "--lesskey"]),
    (&["more"], &["+"]),
    (&["bat", "batcat", "delta"], &["--pager"]),
    (&["tree"], &["-o"]),
    (&["file"], &["-C", "--compile"]),
    (&["yq"], &["-i", "--inplace"]),
    (&["openssl"], &["-out", "-engine", "-provider"]),
];
/// The same for options, or words, of git's subcommands.
const GIT_SUBCOMMAND_EXEC_OPTIONS: &[(&[&str], &[&str])] = &[
    (&["clone"], &["-u", "-c", "--config", "--template"]),
    (&["init"], &["--template"]),
    (&["archive", "format-patch"], &["-o"]),
    (&["branch"], &["--edit-description"]),
    (&["bisect"], &["run"]),
    (&["submodule"], &["foreach"]),
    (&["filter-branch"], &["--"]),
];
/// Programs that write to their second operand.
const SECOND_OPERAND_WRITERS: &[&str] = &["uniq", "xxd"];

/// Returns an ordinary program's inner command: none, unless an option makes it run another; then a rule has to cover
/// that option's value.
pub(super) fn exec_option_command(name: &str, words: &[ShellWord]) -> InnerCommand {
    // Before the subcommand, git's `-c` is a setting, and settings name programs; after it, `-c` belongs to the
    // subcommand.
    if name == "git" {
        let options = words.iter().skip(1).take_while(|word| word.text.starts_with('-'));
        if let Some(at) = options.enumerate().find(|(_, word)| word.text.starts_with("-c")).map(|(at, _)| at)
        {
            return InnerCommand::Hidden { min_prefix_len: at + 3 };
        }
        // Settings written by `git config` name programs that other git commands run. Options before the subcommand
        // take values.
        let has_options = words.get(1).is_some_and(|word| word.text.starts_with('-'));
        let mut candidates = words.iter().enumerate().skip(1).filter(|(at, _)| *at == 1 || has_options);
        if let Some((at, _)) = candidates.find(|(_, word)| word.text == "config") {
            return InnerCommand::Hidden { min_prefix_len: at + 2 };
        }
    }
    let program_options = EXEC_OPTIONS.iter().filter(|(programs, _)| programs.contains(&name));
    let subcommand_options = GIT_SUBCOMMAND_EXEC_OPTIONS.iter().filter(|(subcommands, _)| {
        name == "git" && words.iter().skip(1).any(|word| subcommands.contains(&word.text.as_str()))
    });
    let hooks: Vec<&str> =
        program_options.chain(subcommand_options).flat_map(|(_, options)| *options).copied().collect();
    let writes_second = SECOND_OPERAND_WRITERS.contains(&name);
    if hooks.is_empty() && !writes_second {
        return InnerCommand::None;
    }
    // A pattern may expand to a file whose name is such an option.
    if words.iter().any(|word| !word.is_literal && word.text.starts_with(['*', '?', '['])) {
        return UNMATCHABLE;
    }
    if writes_second {
        let mut operands = words.iter().enumerate().skip(1).filter(|(_, word)| !word.text.starts_with('-'));
        return operands
            .nth(1)
            .map_or(InnerCommand::None, |(at, _)| InnerCommand::Hidden { min_prefix_len: at + 1 });
    }
    let is_hook = |text: &str| hooks.iter().any(|hook| matches_option(text, hook));
    // The first word of tar may be options without a dash.
    let old_style = (name == "tar").then(|| words.get(1).map(|word| format!("-{}", word.text))).flatten();
    if old_style.is_some_and(|options| is_hook(&options)) {
        return UNMATCHABLE;
    }
    let last = words.iter().rposition(|word| is_hook(&word.text));
    last.map_or(InnerCommand::None, |at| InnerCommand::Hidden { min_prefix_len: at + 2 })
}

/// Returns whether a word is an option, or may be: programs accept abbreviated long options and joined short ones.
fn matches_option(word: &str, option: &str) -> bool {
    if let Some(valued) = option.strip_suffix('=') {
        return word == valued || word.starts_with(option);
    }
    if let Some(long) = option.strip_prefix("--") {
        let Some(name) = word.strip_prefix("--") else { return false };
        let name = name.split('=').next().unwrap_or_default();
        return !name.is_empty() && (name.starts_with(long) || long.starts_with(name));
    }
    match option.strip_prefix('-').and_then(|letters| letters.chars().next()) {
        // Short options may be joined to preceding ones and to their value.
        Some(letter) if option.len() == 2 => word
            .strip_prefix('-')
            .is_some_and(|cluster| !cluster.starts_with('-') && cluster.contains(letter)),
        _ => word.starts_with(option),
    }
}
