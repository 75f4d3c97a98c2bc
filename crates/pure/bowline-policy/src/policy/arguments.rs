//! The file arguments of plain commands: which files they read and which they write.
//!
//! A word that may be a file counts as one. A false positive does no harm: it is evaluated as an unprotected name
//! inside the workspace. Files that a command finds by itself, below a directory or in an archive or a list, are not
//! considered.

use std::borrow::Cow;

use super::shell::ShellWord;
use super::wrappers::base_name;
use crate::paths::Access::{self, Read, Write};

/// A file given to a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileArgument<'w> {
    /// The index of the word that names it.
    pub(super) word_index: usize,
    /// The access to it.
    pub(super) access: Access,
    /// Its name, as the program gets it.
    pub(super) name: Cow<'w, str>,
    /// Whether the name is literal. Otherwise the shell replaces it with file names or a home directory.
    pub(super) is_literal: bool,
}

/// How a program uses its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperandRole {
    /// It reads each operand.
    Read,
    /// It reads each but the first, which is an expression, unless an option gives that.
    ReadAfterExpression,
    /// It writes each operand.
    Write,
    /// It reads some and writes others, or files with the same names.
    ReadWrite,
    /// It reads all but the last, and writes the last or, inside it, files with the same names.
    Copy,
    /// The same as `Copy`, and the sources are removed.
    Move,
    /// It reads those before the first that begins an expression.
    Search,
    /// Each is a setting; two of the settings name files.
    KeyValue,
    /// It reads all but the first, or writes them if an option says so.
    Edit,
    /// It uploads the files after `@`.
    Upload,
    /// It depends on the subcommand.
    Git,
}

const PROGRAM_OPERANDS: &[(&[&str], OperandRole)] = &[
    (
        &[
            "cat", "tac", "nl", "head", "tail", "less", "more", "bat", "batcat", "wc", "sort", "shuf",
            "uniq", "cut", "paste", "join", "comm", "diff", "cmp", "sdiff", "diff3", "od", "xxd", "hexdump",
            "hd", "base32", "base64", "strings", "file", "stat", "du", "ls", "tree", "rev", "fold", "fmt",
            "column", "expand", "unexpand", "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum",
            "sha512sum", "b2sum", "cksum", "sum", "zcat", "bzcat", "xzcat", "iconv", "readlink", "nm",
            "objdump", "readelf",
        ],
        OperandRole::Read,
    ),
    (
        &[
            "grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "jq", "yq", "awk", "gawk", "mawk", "nawk",
            "ugrep",
        ],
        OperandRole::ReadAfterExpression,
    ),
    (
        &[
            "tee", "touch", "mkdir", "rmdir", "rm", "unlink", "shred", "truncate", "gzip", "gunzip", "bzip2",
            "bunzip2", "xz", "unxz", "zstd", "mkfifo", "mktemp", "sponge",
        ],
        OperandRole::Write,
    ),
    // The first word of some is a mode or an owner, which never matches a protected name.
    (&["chmod", "chown", "chgrp", "setfacl", "chattr"], OperandRole::Write),
    (&["tar", "bsdtar", "gtar", "zip", "ar", "split", "csplit"], OperandRole::ReadWrite),
    (&["cp", "install", "ln", "link", "rsync", "scp"], OperandRole::Copy),
    (&["mv", "rename"], OperandRole::Move),
    (&["find"], OperandRole::Search),
    (&["dd"], OperandRole::KeyValue),
    (&["sed", "gsed"], OperandRole::Edit),
    (&["curl", "wget"], OperandRole::Upload),
    (&["git"], OperandRole::Git),
];

/// Options whose value is a file. A long option has it after `=` or in the next word; a short one may also be joined
/// to it.
const FILE_OPTIONS: &[(&[&str], Access, &[&str])] = &[
    (&["grep", "sed"], Read, &["-f", "--file"]),
    (&["egrep", "fgrep", "awk", "gawk"], Read, &["-f"]),
    (&["rg"], Read, &["-f", "--file", "--ignore-file"]),
    (&["jq"], Read, &["-f", "--from-file", "--slurpfile", "--rawfile"]),
    (&["sort"], Read, &["--files0-from"]),
    (&["sort"], Write, &["-T", "-o", "--output"]),
    (&["shuf"], Write, &["-o"]),
    (&["wc", "du"], Read, &["--files0-from"]),
    (&["diff"], Read, &["--from-file", "--to-file"]),
    (&["touch"], Read, &["-r", "--reference"]),
    (&["chmod", "chown"], Read, &["--reference"]),
    (&["truncate"], Read, &["-r"]),
    (&["cp", "mv", "ln", "install"], Write, &["-t", "--target-directory"]),
    (&["rsync"], Read, &["--files-from", "--password-file"]),
    (&["rsync"], Write, &["--log-file", "--backup-dir"]),
    (&["curl"], Read, &["-T", "--upload-file", "-b", "--cookie", "-E", "--cert", "--key", "--netrc-file"]),
    (&["curl"], Write, &["-o", "--output"]),
    (&["wget"], Read, &["--post-file", "--body-file", "-i", "--input-file"]),
    (&["wget"], Write, &["-O", "--output-document"]),
    (&["tar"], Write, &["-C", "--directory"]),
    (&["tar"], Read, &["-T", "--files-from"]),
    (&["tar"], Write, &["-f", "--file"]),
];

/// Files that are the same for every user.
const COMMON_DEVICES: &[&str] = &[
    "-", "/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/random", "/dev/urandom",
];

/// Returns the files given to a command, if the program is a known one.
pub(super) fn file_arguments(words: &[ShellWord]) -> Vec<FileArgument<'_>> {
    let Some(program) = words.first().map(|word| base_name(&word.text)) else { return Vec::new() };
    let Some((_, operands)) = PROGRAM_OPERANDS.iter().find(|(names, _)| names.contains(&program.as_str()))
    else {
        return Vec::new();
    };
    let mut parser = ArgumentParser { words, program: &program, arguments: Vec::new(), operands: Vec::new() };
    parser.split_options();
    parser.classify_operands(*operands);
    parser
        .arguments
        .retain(|argument| !argument.name.is_empty() && !COMMON_DEVICES.contains(&&*argument.name));
    parser.arguments
}

/// Returns whether a program's arguments are known.
pub(super) fn is_known_program(program: &str) -> bool {
    let name = base_name(program);
    PROGRAM_OPERANDS.iter().any(|(names, _)| names.contains(&name.as_str()))
}

/// Returns whether a command writes files that it does not name: those of an archive or a patch.
pub(super) fn writes_unnamed_files(words: &[ShellWord]) -> bool {
    let Some(program) = words.first().map(|word| base_name(&word.text)) else { return false };
    let options = || words.iter().skip(1).map(|word| word.text.as_str());
    let has_any = |list: &[&str]| options().any(|option| list.contains(&option));
    match program.as_str() {
        "tar" | "bsdtar" | "gtar" => {
            let first = words.get(1).map_or("", |word| word.text.as_str());
            let old_style = !first.starts_with('-') && first.contains('x');
            let is_short = |option: &str| option.starts_with('-') && !option.starts_with("--");
            old_style
                || options().any(|option| {
                    (is_short(option) && option.contains('x'))
                        || is_long_option(option, "--extract")
                        || option == "--get"
                })
        }
        "unzip" => !has_any(&["-l", "-t", "-v", "-Z"]),
        "cpio" => options().any(|option| option.starts_with('-') && option.contains(['i', 'p'])),
        "7z" | "7za" | "7zr" => has_any(&["x", "e"]),
        "unrar" => has_any(&["x", "e"]),
        "patch" => !has_any(&["--dry-run"]),
        "git" => has_any(&["apply", "am"]),
        _ => false,
    }
}

/// Returns whether a word is a long option, possibly abbreviated.
fn is_long_option(word: &str, option: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    name.len() > 2 && option.starts_with(name)
}

struct ArgumentParser<'w, 'p> {
    words: &'w [ShellWord],
    program: &'p str,
    arguments: Vec<FileArgument<'w>>,
    // The indices of the words that are not options.
    operands: Vec<usize>,
}

impl<'w> ArgumentParser<'w, '_> {
    /// Separates options from operands. Values of unknown options count as operands.
    fn split_options(&mut self) {
        let mut only_operands = false;
        let mut at = 1;
        while let Some(word) = self.words.get(at) {
            let text = word.text.as_str();
            if only_operands || !text.starts_with('-') || text == "-" {
                self.operands.push(at);
            } else if text == "--" {
                only_operands = true;
            } else if let Some((access, value)) = self.file_option(text) {
                match value {
                    Some(value) => self.add(at, access, Cow::Borrowed(value)),
                    None if at + 1 < self.words.len() => {
                        at += 1;
                        self.add(at, access, Cow::Borrowed(&self.words[at].text));
                    }
                    None => {}
                }
            }
            at += 1;
        }
    }

    /// Returns the access of an option whose value is a file, and that value if it is joined to the option.
    fn file_option(&self, text: &'w str) -> Option<(Access, Option<&'w str>)> {
        let candidates = FILE_OPTIONS.iter().filter(|(programs, _, _)| programs.contains(&self.program));
        for (option, access) in
            candidates.flat_map(|(_, access, options)| options.iter().map(move |option| (option, access)))
        {
            if option.starts_with("--") {
                if is_long_option(text, option) {
                    return Some((*access, text.split_once('=').map(|(_, value)| value)));
                }
            } else if !text.starts_with("--")
                && let Some(index) = text.find(&option[1..])
            {
                // The letters before it are assumed to be flags.
                let value = &text[index + 1..];
                return Some((*access, (!value.is_empty()).then_some(value)));
            }
        }
        None
    }

    fn add(&mut self, at: usize, access: Access, name: Cow<'w, str>) {
        self.arguments.push(FileArgument {
            word_index: at,
            access,
            name,
            is_literal: self.words[at].is_literal,
        });
    }

    fn add_all(&mut self, operands: &[usize], access: Access) {
        for at in operands {
            self.add(*at, access, Cow::Borrowed(&self.words[*at].text));
        }
    }

    /// Returns whether an option has one of these letters, alone or in a cluster, or is one of these long options,
    /// possibly abbreviated.
    fn has_option(&self, letters: &str, long: &[&str]) -> bool {
        self.words.iter().skip(1).map(|word| word.text.as_str()).any(|text| match text.strip_prefix("--") {
            Some(_) => long.iter().any(|option| is_long_option(text, option)),
            None => {
                text.len() > 1 && text.starts_with('-') && text.contains(|letter| letters.contains(letter))
            }
        })
    }

    fn classify_operands(&mut self, role: OperandRole) {
        let operands = std::mem::take(&mut self.operands);
        let after_first = |has_option: bool| if has_option { 0 } else { operands.len().min(1) };
        match role {
            OperandRole::Read => self.add_all(&operands, Read),
            OperandRole::Write => self.add_all(&operands, Write),
            OperandRole::ReadAfterExpression => {
                let has_expression =
                    self.has_option("ef", &["--regexp", "--file", "--files", "--from-file", "--expression"]);
                self.add_all(&operands[after_first(has_expression)..], Read);
            }
            OperandRole::ReadWrite => {
                self.add_all(&operands, Read);
                self.add_all(&operands, Write);
            }
            OperandRole::Edit => {
                let has_expression = self.has_option("ef", &["--expression", "--file"]);
                let access = if self.has_option("i", &["--in-place"]) { Write } else { Read };
                self.add_all(&operands[after_first(has_expression)..], access);
            }
            OperandRole::Copy => self.add_copy_operands(&operands, Read),
            OperandRole::Move => self.add_copy_operands(&operands, Write),
            OperandRole::Search => {
                let is_path = |at: &&usize| !self.words[**at].text.starts_with(['-', '(', '!', ')']);
                let before = operands.iter().take_while(|at| {
                    // Words after the first expression belong to it.
                    self.words[1..**at].iter().all(|word| !word.text.starts_with('-') || word.text.len() == 2)
                });
                let operands: Vec<usize> = before.filter(is_path).copied().collect();
                self.add_all(&operands, Read);
            }
            OperandRole::KeyValue => {
                for at in operands {
                    let text = self.words[at].text.as_str();
                    let named = [("if=", Read), ("of=", Write)];
                    if let Some((name, access)) =
                        named.iter().find_map(|(key, access)| Some((text.strip_prefix(key)?, *access)))
                    {
                        self.add(at, access, Cow::Borrowed(name));
                    }
                }
            }
            OperandRole::Upload => self.add_uploads(),
            OperandRole::Git => self.add_git_operands(&operands),
        }
    }

    fn add_copy_operands(&mut self, operands: &[usize], sources: Access) {
        let target = self.arguments.iter().find(|argument| argument.access == Write);
        let target = target.map(|argument| (argument.word_index, argument.name.clone(), argument.is_literal));
        let is_remote = |name: &str| {
            matches!(self.program, "rsync" | "scp")
                && name.split('/').next().is_some_and(|host| host.contains(':'))
        };
        let local: Vec<usize> =
            operands.iter().copied().filter(|at| !is_remote(&self.words[*at].text)).collect();
        let makes_directories = self.program == "install" && self.has_option("d", &["--directory"]);
        if makes_directories {
            return self.add_all(&local, Write);
        }
        let (from, into) = match (target, local.split_last()) {
            (Some((at, name, is_literal)), _) => (local.as_slice(), Some((at, name, is_literal))),
            (None, Some((last, from))) if operands.last() == Some(last) && operands.len() > 1 => {
                let word = &self.words[*last];
                (from, Some((*last, Cow::Borrowed(word.text.as_str()), word.is_literal)))
            }
            // Every operand is sent away, or linked to in the directory itself.
            (None, _) => (local.as_slice(), None),
        };
        self.add_all(from, sources);
        if let Some((at, name, is_literal)) = &into {
            self.arguments.push(FileArgument {
                word_index: *at,
                access: Write,
                name: name.clone(),
                is_literal: *is_literal,
            });
        }
        let below = into.as_ref().map_or("", |(_, name, _)| name.trim_end_matches('/')).to_owned();
        for at in from {
            let word = &self.words[*at];
            let leaf = word.text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let name = if into.is_some() { format!("{below}/{leaf}") } else { leaf.to_owned() };
            if !matches!(leaf, "" | "." | "..") && (into.is_some() || self.program == "ln") {
                self.arguments.push(FileArgument {
                    word_index: *at,
                    access: Write,
                    name: Cow::Owned(name),
                    is_literal: word.is_literal,
                });
            }
        }
    }

    fn add_uploads(&mut self) {
        for (at, word) in self.words.iter().enumerate().skip(1) {
            let text = word.text.as_str();
            // A URL may have a user name before its host.
            let is_address = text.contains("://") && !text.contains("=@");
            let sent = ["=@", "=<"].iter().find_map(|separator| text.split_once(separator));
            let sent = sent.or_else(|| text.split_once('@').filter(|_| !is_address));
            if let Some((_, name)) = sent {
                let name = name.split(';').next().unwrap_or(name);
                self.arguments.push(FileArgument {
                    word_index: at,
                    access: Read,
                    name: Cow::Borrowed(name),
                    is_literal: word.is_literal,
                });
            }
        }
    }

    fn add_git_operands(&mut self, operands: &[usize]) {
        let find_operand = |name: &str| operands.iter().position(|at| self.words[*at].text == name);
        if self.words.iter().any(|word| is_long_option(&word.text, "--no-index")) {
            return self.add_all(operands, Read);
        }
        for (subcommand, access) in [("add", Read), ("stage", Read), ("hash-object", Read)] {
            if let Some(at) = find_operand(subcommand) {
                return self.add_all(&operands[at + 1..], access);
            }
        }
        for subcommand in ["mv", "rm"] {
            if let Some(at) = find_operand(subcommand) {
                return self.add_all(&operands[at + 1..], Write);
            }
        }
    }
}
