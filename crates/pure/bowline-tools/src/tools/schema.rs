//! The descriptions and input schemas of tools for files and commands.

use serde_json::{Value, json};

const PATH_DESCRIPTION: &str =
    "The file: absolute, or relative to the session's directory. ~ is not expanded.";

const FILE_OR_DIRECTORY: &str =
    "The file or directory: absolute, or relative to the session's directory. ~ is not expanded.";

/// The description of the tool that reads a file.
pub const READ_DESCRIPTION: &str = "Reads a text file. The answer is a line in brackets and then the text as it is, at most 2000 lines at a \
                    time; go on with `line` where it says so.";

/// The description of the tool that writes a file.
pub const WRITE_DESCRIPTION: &str = "Writes a whole text file, and creates it if it is not there. To change a part of a file, edit it \
                     instead. What the user changed meanwhile is kept, and the answer says so.";

/// The description of the tool that edits a file.
pub const EDIT_DESCRIPTION: &str = "Edits a text file by search and replace. Each old_text has to be in the file exactly once, letter for \
                    letter with its blanks; give enough lines around the place. All edits are made on the file as it is \
                    now, all or none, so they may not overlap.";

/// The description of the tool that runs a command.
pub const RUN_DESCRIPTION: &str = "Runs a command and returns its output and exit code. Shell syntax works. A command that does not end by \
                   itself, a server for one, has to run with background set; others are ended when their time is over.";

/// The description of the tool that lists a directory.
pub const LIST_DESCRIPTION: &str = "Lists a directory of the project: its files with their sizes, and its directories. What ignore rules \
                        hide is left out.";

/// The description of the tool that describes a file.
pub const STAT_DESCRIPTION: &str = "Describes a file or directory without its content: type, size, encoding, time of the last change, whether it \
                        has unsaved text.";

/// The description of the tool that writes several files.
pub const WRITE_FILES_DESCRIPTION: &str = "Writes several whole text files at once, all or none, with one question to the user. Missing files and \
                               directories are created. What the user changed meanwhile is kept, and the answer says so.";

/// The description of the tool that appends to a file.
pub const APPEND_DESCRIPTION: &str = "Appends text to the end of a text file, and creates it if it is not there. The file need not be read first. \
                          The text starts where the file ends: begin with a line break if its last line has none.";

/// The description of the tool that deletes a file.
pub const DELETE_DESCRIPTION: &str =
    "Deletes a file or an empty directory; with `recursive`, a directory and all that is in it.";

/// The description of the tool that moves a file.
pub const MOVE_DESCRIPTION: &str = "Moves or renames a file or directory. The directory it moves to has to exist. A file at the destination is \
                        replaced only with `overwrite`.";

/// The most files of one call that writes several.
pub const MAX_WRITTEN_FILES: usize = 100;

/// Returns the input schema for describing a file.
#[must_use]
pub fn stat_schema() -> Value {
    object(&[("path", string(FILE_OR_DIRECTORY))], &[])
}

/// Returns the input schema for writing several files.
#[must_use]
pub fn write_files_schema() -> Value {
    let files =
        json!({ "type": "array", "items": write_schema(), "minItems": 1, "maxItems": MAX_WRITTEN_FILES });
    object(&[("files", files)], &[])
}

/// Returns the input schema for appending to a file.
#[must_use]
pub fn append_schema() -> Value {
    object(&[("path", string(PATH_DESCRIPTION)), ("content", string("The text to append."))], &[])
}

/// Returns the input schema for deleting a file.
#[must_use]
pub fn delete_schema() -> Value {
    let recursive = boolean("Whether a directory is deleted with all that is in it.");
    object(&[("path", string(FILE_OR_DIRECTORY))], &[("recursive", recursive)])
}

/// Returns the input schema for moving a file.
#[must_use]
pub fn move_schema() -> Value {
    object(
        &[("from", string(FILE_OR_DIRECTORY)), ("to", string("Its new path, with its name."))],
        &[("overwrite", boolean("Whether a file at the destination is replaced."))],
    )
}

/// Returns the input schema for listing a directory.
#[must_use]
pub fn list_schema() -> Value {
    object(
        &[],
        &[
            ("path", string("The directory; the session's own if left out.")),
            ("depth", integer("How many levels; 1 if left out.")),
        ],
    )
}

/// Returns the input schema for searching texts.
#[must_use]
pub fn search_schema() -> Value {
    object(
        &[("pattern", string("The text to look for, as it is written, or a regular expression."))],
        &[
            ("path", string("The directory or file to search; everything if left out.")),
            ("regex", boolean("Whether the pattern is a regular expression.")),
            (
                "case_sensitive",
                boolean(
                    "Whether upper and lower case differ; if left out, only when the pattern has upper case.",
                ),
            ),
            ("glob", string("Only files that match, like *.rs or src/**.")),
        ],
    )
}

/// Returns the input schema for reading a file.
#[must_use]
pub fn read_schema() -> Value {
    object(
        &[("path", string(PATH_DESCRIPTION))],
        &[
            ("line", integer("The first line to read, counted from 1.")),
            ("limit", integer("How many lines to read.")),
        ],
    )
}

/// Returns the input schema for writing a file.
#[must_use]
pub fn write_schema() -> Value {
    object(&[("path", string(PATH_DESCRIPTION)), ("content", string("The whole new text of the file."))], &[])
}

/// Returns the input schema for editing a file.
#[must_use]
pub fn edit_schema() -> Value {
    let edit = object(
        &[
            ("old_text", string("The text to replace, exactly as it is in the file.")),
            ("new_text", string("What takes its place.")),
        ],
        &[("replace_all", boolean("Whether every match is replaced; else there may be only one."))],
    );
    object(
        &[
            ("path", string(PATH_DESCRIPTION)),
            ("edits", json!({ "type": "array", "items": edit, "minItems": 1 })),
        ],
        &[],
    )
}

/// Returns the input schema for running a command.
#[must_use]
pub fn run_schema() -> Value {
    let strings = json!({ "type": "array", "items": { "type": "string" }, "description": "Arguments; given these, command is a program and no shell reads it." });
    let env = json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": "Variables to set." });
    object(
        &[("command", string("The command line, or a program if there are args."))],
        &[
            ("args", strings),
            ("cwd", string("Where to run it; the session's directory if left out.")),
            ("env", env),
            ("timeout_seconds", integer("How long it may take.")),
            ("background", boolean("Whether it runs on while you do something else; the answer has its id.")),
        ],
    )
}

/// Returns the schema of an object with only these fields.
#[must_use]
pub fn object(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let properties: serde_json::Map<String, Value> =
        required.iter().chain(optional).map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let required: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Returns the schema of a string.
#[must_use]
pub fn string(text: &str) -> Value {
    json!({ "type": "string", "description": text })
}

/// Returns the schema of a whole number.
#[must_use]
pub fn integer(text: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": text })
}

/// Returns the schema of a boolean.
#[must_use]
pub fn boolean(text: &str) -> Value {
    json!({ "type": "boolean", "description": text })
}

/// Returns the schema of an enumeration of strings.
#[must_use]
pub fn string_enum(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}
