//! The tasks: what lies in the project, what the agent is asked, and how the outcome is judged.

use anyhow::{Result, bail};
use test_support::lab::Lab;

/// What is there when the agent has ended its turn.
pub(super) struct Ended<'a> {
    /// The project.
    pub(super) lab: &'a Lab,
    /// What the agent said.
    pub(super) said: &'a str,
}

/// A task.
pub(super) struct Challenge {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The project's files.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// A file that an editor has open, and what was typed into it and not saved.
    pub(super) unsaved: Option<(&'static str, &'static str)>,
    /// What a model is asked.
    pub(super) prompt: &'static str,
    /// What the offline model is told, which knows commands only.
    pub(super) by_hand: &'static str,
    /// Returns what is wrong with the outcome.
    pub(super) judge: fn(&Ended<'_>) -> Option<String>,
    /// A command that must then succeed.
    pub(super) command: Option<&'static str>,
}

const NOTES: &str =
    "# Notes\n\nThe server listens on port 8417. It is restarted every night.\nAsk Ada before changing it.\n";

const SUM: &str = "#!/bin/sh\n# Prints the sum of two numbers.\necho $(($1 - $2))\n";
const SUM_TEST: &str = "got=$(sh sum.sh 2 3)\nif [ \"$got\" != 5 ]; then\n  echo \"sum.sh 2 3 printed $got, expected 5\"\n  exit 1\nfi\necho ok\n";

const CONFIG: &str = "[server]\nhost = localhost\ntimeout = 30\nretries = 3\n\n[client]\nretries = 30\n";

const GREET: &str = "greet() {\n  echo \"Hello, $1!\"\n}\n";
const GREET_MAIN: &str = ". ./lib.sh\ngreet Ada\ngreet Grace\n";
const GREET_TEST: &str = ". ./lib.sh\n[ \"$(greet Bob)\" = 'Hello, Bob!' ] && echo ok\n";

const TODAY: &str = "def today():\n    import datetime\n    return datetime.date.today()\n";
const DATES: &str = "def parse_date(text):\n    year, month, day = text.split('-')\n    return int(year), int(month), int(day)\n";
const REPORT: &str = "from dates import parse_date\n\ndef report(line):\n    return parse_date(line[:10])\n";

/// Every task, the simplest first.
const ALL: &[Challenge] = &[
    Challenge {
        name: "answer",
        about: "read a file and answer a question",
        files: &[("notes.md", NOTES)],
        unsaved: None,
        prompt: "Read notes.md. Which port does the server listen on?",
        by_hand: "read notes.md\nsay It listens on port 8417.",
        judge: |ended| says(ended, "8417"),
        command: None,
    },
    Challenge {
        name: "unsaved",
        about: "see what is typed and not saved",
        files: &[("colours.txt", "sky: blue\ngrass: green\n")],
        unsaved: Some(("colours.txt", "sky: turquoise\ngrass: green\n")),
        prompt: "What colour does the file colours.txt give for the sky?",
        by_hand: "find turquoise\nread colours.txt\nsay The sky is turquoise.",
        judge: |ended| says(ended, "turquoise"),
        command: None,
    },
    Challenge {
        name: "run",
        about: "run a command and answer a question",
        files: &[("version.sh", "echo \"build $((4000 + 713))\"\n")],
        unsaved: None,
        prompt: "Run `sh version.sh` and tell me the build number that it prints.",
        by_hand: "run sh version.sh\nsay It is build 4713.",
        judge: |ended| says(ended, "4713"),
        command: None,
    },
    Challenge {
        name: "find",
        about: "find out where something is",
        files: &[("src/today.py", TODAY), ("src/dates.py", DATES), ("src/report.py", REPORT)],
        unsaved: None,
        prompt: "In which file of this project is the function parse_date defined? Search for it.",
        by_hand: "find def parse_date\nsay It is defined in src/dates.py.",
        judge: |ended| says(ended, "dates.py"),
        command: None,
    },
    Challenge {
        name: "write",
        about: "write a new file",
        files: &[("README.md", "# Empty\n")],
        unsaved: None,
        prompt: "Create a file hello.txt that contains the one line: Hello, harbour!",
        by_hand: "write hello.txt: Hello, harbour!",
        judge: |ended| holds(ended, "hello.txt", "Hello, harbour!"),
        command: None,
    },
    Challenge {
        name: "edit",
        about: "change one place and nothing else",
        files: &[("config.ini", CONFIG)],
        unsaved: None,
        prompt: "In config.ini, change timeout from 30 to 90. Change nothing else.",
        by_hand: "replace \"timeout = 30\" with \"timeout = 90\" in config.ini",
        judge: |ended| holds(ended, "config.ini", CONFIG.replace("timeout = 30", "timeout = 90").trim_end()),
        command: None,
    },
    Challenge {
        name: "fix",
        about: "make a failing test pass",
        files: &[("sum.sh", SUM), ("test.sh", SUM_TEST)],
        unsaved: None,
        prompt: "`sh test.sh` fails. Find the bug in sum.sh and fix it, then run the test again. \
                 Do not change test.sh.",
        by_hand: "run sh test.sh || true\nread sum.sh\nreplace \"$1 - $2\" with \"$1 + $2\" in sum.sh\nrun sh test.sh",
        judge: |ended| holds(ended, "test.sh", SUM_TEST.trim_end()),
        command: Some("sh test.sh && [ \"$(sh sum.sh 20 30)\" = 50 ]"),
    },
    Challenge {
        name: "rename",
        about: "rename a function in every file",
        files: &[("lib.sh", GREET), ("main.sh", GREET_MAIN), ("test.sh", GREET_TEST)],
        unsaved: None,
        prompt: "Rename the shell function greet to welcome. It is defined in lib.sh and used in main.sh and \
                 test.sh: change all three files.",
        by_hand: "replace \"greet()\" with \"welcome()\" in lib.sh\n\
                  replace \"greet Ada\" with \"welcome Ada\" in main.sh\n\
                  replace \"greet Grace\" with \"welcome Grace\" in main.sh\n\
                  replace \"greet Bob\" with \"welcome Bob\" in test.sh",
        judge: |ended| {
            let left = ["lib.sh", "main.sh", "test.sh"].into_iter().find_map(|name| {
                let text = ended.lab.get(name).ok()?;
                text.contains("greet").then(|| format!("greet is still in {name}"))
            });
            left.or_else(|| holds(ended, "lib.sh", GREET.replace("greet", "welcome").trim_end()))
        },
        command: Some("[ \"$(sh main.sh)\" = \"$(printf 'Hello, Ada!\\nHello, Grace!')\" ] && sh test.sh"),
    },
];

/// Returns the tasks, or only the one of this name.
pub(super) fn named(only: Option<&str>) -> Result<Vec<&'static Challenge>> {
    let Some(only) = only else { return Ok(ALL.iter().collect()) };
    let found: Vec<_> = ALL.iter().filter(|challenge| challenge.name == only).collect();
    if found.is_empty() {
        let names: Vec<_> = ALL.iter().map(|challenge| challenge.name).collect();
        bail!("no task `{only}`; there are: {}", names.join(", "));
    }
    Ok(found)
}

fn says(ended: &Ended<'_>, word: &str) -> Option<String> {
    (!ended.said.contains(word)).then(|| format!("the answer does not name {word}"))
}

/// A file's text, but for spaces and line ends after it.
fn holds(ended: &Ended<'_>, name: &str, text: &str) -> Option<String> {
    match ended.lab.get(name) {
        Ok(found) if found.trim_end() == text => None,
        Ok(found) => Some(format!("{name} holds {found:?}")),
        Err(_) => Some(format!("there is no {name}")),
    }
}
