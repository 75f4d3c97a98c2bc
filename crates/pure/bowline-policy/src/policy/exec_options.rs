//! Options that make ordinary programs run others, or write to a given file.

use super::shell::ShellWord;
use super::wrappers::{InnerCommand, UNMATCHABLE};

/// Options that make an ordinary program run another, or write to a given file. The second element is the start of
/// the option; one that ends in `=` takes its value after that or in the next word, and is not joined to others.
const EXEC_OPTIONS: &[(&str, &str)] = &[
    ("find", "-ok"),
    ("find", "-delete"),
    ("find", "-fprint"),
    ("find", "-fls"),
    ("fd", "-x"),
    ("fd", "-X"),
    ("fd", "--exec"),
    ("fdfind", "-x"),
    ("fdfind", "-X"),
    ("fdfind", "--exec"),
    ("rg", "--pre"),
    ("rg", "--hostname-bin"),
    ("tar", "--checkpoint-action"),
    ("tar", "--use-compress-program"),
    ("tar", "--to-command"),
    ("tar", "--rsh-command"),
    ("tar", "--info-script"),
    ("tar", "--new-volume-script"),
    ("tar", "-I"),
    ("tar", "-F"),
    ("sort", "--compress-prog"),
    ("rsync", "-e"),
    ("rsync", "--rsh"),
    ("rsync", "--rsync-path"),
    ("git", "--config-env"),
    ("git", "--git-dir"),
    ("git", "--exec-path"),
    ("git", "--upload-pack"),
    ("git", "--receive-pack"),
    ("git", "--ext-diff"),
    ("git", "--open-files-in-pager"),
    ("git", "-O"),
    ("git", "--exec"),
    ("git", "-x"),
    ("git", "--extcmd"),
    ("git", "--textconv"),
    ("cargo", "--config"),
    ("go", "-exec"),
    ("go", "-toolexec"),
    ("go", "-vettool"),
    ("go", "--exec"),
    ("go", "--toolexec"),
    ("printf", "-v"),
    ("test", "-v"),
    ("[", "-v"),
    ("scp", "-o"),
    ("scp", "-S"),
    ("sftp", "-o"),
    ("sftp", "-S"),
    ("curl", "-K"),
    ("curl", "--config"),
    ("wget", "--use-askpass"),
    ("wget", "-e"),
    ("zip", "-TT"),
    ("zip", "--unzip-command"),
    ("npm", "--script-shell"),
    ("npm", "--node-options"),
    ("git", "ext::"),
    ("git", "--output"),
    ("git", "fd::"),
    ("sort", "-o"),
    ("sort", "--output"),
    ("shuf", "-o"),
    ("shuf", "--output"),
    ("split", "--filter"),
    ("man", "-P"),
    ("man", "--pager"),
    ("man", "-H"),
    ("man", "--html"),
    ("man", "-C"),
    ("man", "--config-file"),
    ("less", "+"),
    ("less", "-o"),
    ("less", "-O"),
    ("less", "-k"),
    ("less", "--log-file"),
    ("less", "--LOG-FILE"),
    ("less", "--lesskey"),
    ("more", "+"),
    ("bat", "--pager"),
    ("batcat", "--pager"),
    ("delta", "--pager"),
    ("tree", "-o"),
    ("iconv", "-o"),
    ("iconv", "--output"),
    ("file", "-C"),
    ("file", "--compile"),
    ("yq", "-i"),
    ("yq", "--inplace"),
    ("curl", "-o"),
    ("curl", "-O"),
    ("curl", "-D"),
    ("curl", "-c"),
    ("curl", "--output"),
    ("curl", "--remote-name"),
    ("curl", "--dump-header"),
    ("curl", "--cookie-jar"),
    ("curl", "--trace"),
    ("curl", "--libcurl"),
    ("curl", "--stderr"),
    ("wget", "-O"),
    ("wget", "-P"),
    ("wget", "-o"),
    ("wget", "-a"),
    ("wget", "--output"),
    ("wget", "--append-output"),
    ("wget", "--directory-prefix"),
    ("wget", "--config"),
    ("openssl", "-out"),
    ("openssl", "-engine"),
    ("openssl", "-provider"),
    ("tar", "--rmt-command"),
    ("go", "-o="),
    ("go", "--o="),
    ("go", "-overlay"),
    ("go", "-modfile"),
    ("go", "-ldflags"),
    ("go", "-coverprofile"),
    ("go", "-cpuprofile"),
    ("go", "-memprofile"),
];
/// The same for options, or words, of a subcommand.
const SUBCOMMAND_EXEC_OPTIONS: &[(&str, &str, &str)] = &[
    ("git", "clone", "-u"),
    ("git", "clone", "-c"),
    ("git", "clone", "--config"),
    ("git", "clone", "--template"),
    ("git", "init", "--template"),
    ("git", "archive", "-o"),
    ("git", "format-patch", "-o"),
    ("git", "branch", "--edit-description"),
    ("git", "bisect", "run"),
    ("git", "submodule", "foreach"),
    ("git", "filter-branch", "--"),
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
    let program_options =
        EXEC_OPTIONS.iter().filter(|(program, _)| *program == name).map(|(_, option)| *option);
    let subcommand_options = SUBCOMMAND_EXEC_OPTIONS.iter().filter(|(program, subcommand, _)| {
        *program == name && words.iter().skip(1).any(|word| word.text == *subcommand)
    });
    let hooks: Vec<&str> = program_options.chain(subcommand_options.map(|(_, _, option)| *option)).collect();
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
