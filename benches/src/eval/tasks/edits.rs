//! Tasks that write and change files.

use super::{EvalTask, SeededWords, TaskSet};

pub(super) fn edit_tasks(words: &SeededWords) -> Vec<EvalTask> {
    vec![
        write(words),
        write_nested(words),
        write_json(words),
        edit(words),
        edit_section(words),
        insert(words),
        remove(words),
        append(words),
        copy(words),
    ]
}

fn write(words: &SeededWords) -> EvalTask {
    let noun = words.noun("write noun");
    let file = words.pick("write file", &["hello.txt", "greeting.txt", "out.txt"]);
    let prompt = words.pick(
        "write prompt",
        &[
            "Create a file {f} that contains the one line: Hello, {n}!",
            "Write the line \"Hello, {n}!\" to a new file called {f}.",
        ],
    );
    EvalTask::new("write", TaskSet::Tuning, "write a new file")
        .with_file("README.md", "# Empty\n")
        .with_prompt(
            prompt.replace("{f}", file).replace("{n}", noun),
            format!("write {file}: Hello, {noun}!"),
        )
        .expect_file(file, format!("Hello, {noun}!"))
}

fn write_nested(words: &SeededWords) -> EvalTask {
    let folder = words.pick("nested folder", &["data/new", "build/info", "notes/today"]);
    let (first, second) = (words.person("nested first"), words.noun("nested second"));
    let prompt = words.pick(
        "nested prompt",
        &[
            "Create the file {d}/list.txt with two lines: the first is {a}, the second is {b}.",
            "Make a new file {d}/list.txt. Its first line is {a} and its second line is {b}.",
        ],
    );
    let prompt = prompt.replace("{d}", folder).replace("{a}", first).replace("{b}", second);
    EvalTask::new("write-nested", TaskSet::HeldOut, "write a file in a new folder")
        .with_file("README.md", "# Empty\n")
        .with_prompt(prompt, format!("write {folder}/list.txt:\n```\n{first}\n{second}\n```"))
        .expect_file(format!("{folder}/list.txt"), format!("{first}\n{second}"))
}

fn write_json(words: &SeededWords) -> EvalTask {
    let (name, age) = (words.person("json person"), words.number("json age", 20, 90));
    let file = words.pick("write json file", &["user.json", "profile.json", "data/user.json"]);
    let prompt = words.pick(
        "write json prompt",
        &[
            "Create {f}: a JSON object with the key name set to \"{n}\" and the key age set to the number {a}.",
            "Write a JSON file {f} with name \"{n}\" and age {a} (a number).",
        ],
    );
    let prompt = prompt.replace("{f}", file).replace("{n}", name).replace("{a}", &age.to_string());
    EvalTask::new("write-json", TaskSet::Tuning, "write JSON")
        .with_file("README.md", "# Empty\n")
        .with_prompt(prompt, format!("write {file}: {{\"name\": \"{name}\", \"age\": {age}}}"))
        .with_check(move |ended| {
            let Ok(text) = ended.lab.read_file(file) else { return Some(format!("there is no {file}")) };
            let found = serde_json::from_str::<serde_json::Value>(&text).ok();
            let wanted = serde_json::json!({"name": name, "age": age});
            (found != Some(wanted)).then(|| format!("{file} holds {text:?}"))
        })
}

const CONFIG: &str = "[server]\nhost = localhost\ntimeout = 30\nretries = 3\n\n[client]\nretries = 30\n";

fn edit(words: &SeededWords) -> EvalTask {
    let seconds = words.number("edit seconds", 31, 99);
    let file = words.pick("edit file", &["config.ini", "server.ini", "etc/app.ini"]);
    let prompt = words.pick(
        "edit prompt",
        &[
            "In {f}, change timeout from 30 to {s}. Change nothing else.",
            "Set the timeout in {f} to {s} and leave the rest as it is.",
        ],
    );
    let new = format!("timeout = {seconds}");
    EvalTask::new("edit", TaskSet::Tuning, "change one place and nothing else")
        .with_file(file, CONFIG)
        .with_prompt(
            prompt.replace("{f}", file).replace("{s}", &seconds.to_string()),
            format!("replace \"timeout = 30\" with \"{new}\" in {file}"),
        )
        .expect_file(file, CONFIG.replace("timeout = 30", &new))
}

fn edit_section(words: &SeededWords) -> EvalTask {
    let level = words.pick("level", &["debug", "trace", "error"]);
    let file = words.pick("section file", &["logging.yaml", "conf/log.yaml", "log.yaml"]);
    let prompt = words.pick(
        "section prompt",
        &[
            "In {f}, set the level of file to {l}. The level of console stays info.",
            "Change only the level under file in {f}: it shall be {l}.",
        ],
    );
    let text = |level: &str| {
        format!("console:\n  level: info\n  colour: true\nfile:\n  level: {level}\n  path: app.log\n")
    };
    EvalTask::new("edit-section", TaskSet::HeldOut, "change one of two places that look alike")
        .with_file(file, text("info"))
        .with_prompt(
            prompt.replace("{f}", file).replace("{l}", level),
            format!("write {file}:\n```\n{}```", text(level)),
        )
        .expect_file(file, text(level))
}

fn insert(words: &SeededWords) -> EvalTask {
    let (after, new) = (
        words.pick("insert after", &["milk", "bread"]),
        words.pick("insert new", &["butter", "honey", "salt"]),
    );
    let file = words.pick("insert file", &["shopping.txt", "lists/shopping.txt", "todo.txt"]);
    let prompt = words.pick(
        "insert prompt",
        &[
            "In {f}, add the line {n} after the line {a}. Keep the other lines.",
            "Insert a line \"{n}\" right after \"{a}\" in {f}, and keep the rest.",
        ],
    );
    let before = "milk\nbread\napples\n";
    EvalTask::new("insert", TaskSet::Tuning, "insert a line")
        .with_file(file, before)
        .with_prompt(
            prompt.replace("{f}", file).replace("{n}", new).replace("{a}", after),
            format!("replace \"{after}\" with \"{after}\\n{new}\" in {file}"),
        )
        .expect_file(file, before.replace(after, &format!("{after}\n{new}")))
}

fn remove(words: &SeededWords) -> EvalTask {
    let gone = words.pick("remove line", &["beta", "gamma", "delta"]);
    let file = words.pick("remove file", &["servers.txt", "hosts/list.txt", "names.txt"]);
    let prompt = words.pick(
        "remove prompt",
        &[
            "Remove the line {g} from {f}. Keep the other lines.",
            "Delete the line \"{g}\" in {f} and nothing else.",
        ],
    );
    let before = "alpha\nbeta\ngamma\ndelta\nomega\n";
    EvalTask::new("remove", TaskSet::HeldOut, "remove a line")
        .with_file(file, before)
        .with_prompt(
            prompt.replace("{f}", file).replace("{g}", gone),
            format!("replace \"{gone}\\n\" with \"\" in {file}"),
        )
        .expect_file(file, before.replace(&format!("{gone}\n"), ""))
}

fn append(words: &SeededWords) -> EvalTask {
    let noun = words.noun("append noun");
    let file = words.pick("append file", &["CHANGES.md", "log.md", "docs/history.md"]);
    let prompt = words.pick(
        "append prompt",
        &["Add the line \"- {n}\" at the end of {f}.", "Append one line to {f}: - {n}"],
    );
    let before = "# Changes\n\n- first\n- second\n";
    EvalTask::new("append", TaskSet::Tuning, "add a line at the end")
        .with_file(file, before)
        .with_prompt(
            prompt.replace("{f}", file).replace("{n}", noun),
            format!("replace \"- second\" with \"- second\\n- {noun}\" in {file}"),
        )
        .expect_file(file, format!("{before}- {noun}"))
}

fn copy(words: &SeededWords) -> EvalTask {
    let noun = words.noun("copy noun");
    let (from, to) = words
        .pick("copy files", &[("a.txt", "b.txt"), ("page.md", "page-copy.md"), ("draft.txt", "final.txt")]);
    let prompt =
        words.pick("copy prompt", &["Copy {a} to {b}.", "Make a copy of the file {a} and call it {b}."]);
    let text = format!("one {noun}\ntwo\n");
    EvalTask::new("copy", TaskSet::Tuning, "copy a file")
        .with_file(from, text.clone())
        .with_prompt(prompt.replace("{a}", from).replace("{b}", to), format!("run cp {from} {to}"))
        .expect_file(to, text)
}
