//! Tasks with an answer in words.

use super::{EvalTask, SeededWords, TaskSet};

pub(super) fn answer_tasks(words: &SeededWords) -> Vec<EvalTask> {
    vec![
        answer(words),
        answer_json(words),
        count(words),
        unsaved(words),
        unsaved_version(words),
        run(words),
        run_arguments(words),
        find(words),
        find_message(words),
        list(words),
    ]
}

fn answer(words: &SeededWords) -> EvalTask {
    let port = words.number("answer port", 2000, 9999);
    let file = words.pick("answer file", &["notes.md", "OPERATIONS.md", "docs/server.md", "runbook.txt"]);
    let person = words.person("answer person");
    let prompt = words.pick(
        "answer prompt",
        &[
            "Read {}. Which port does the server listen on?",
            "Which port does the server use? It is written in {}.",
            "Look into {} and tell me the server's port.",
        ],
    );
    EvalTask::new("answer", TaskSet::Tuning, "read a file and answer a question")
        .with_file(file, format!("# Notes\n\nThe server listens on port {port}. It is restarted every night.\nAsk {person} before changing it.\n"))
        .with_prompt(prompt.replace("{}", file), format!("read {file}\nsay It listens on port {port}."))
        .expect_answer(port.to_string())
}

fn answer_json(words: &SeededWords) -> EvalTask {
    let noun = words.noun("json noun");
    let size = words.number("json size", 100, 999);
    let file = words.pick("json file", &["settings.json", "config/cache.json", "app.json"]);
    let prompt = words.pick(
        "json prompt",
        &["What is the cache size in {}?", "Tell me the value of cache.size in the file {}."],
    );
    EvalTask::new("answer-json", TaskSet::HeldOut, "find a value in JSON")
        .with_file(file, format!("{{\n  \"name\": \"{noun}\",\n  \"cache\": {{\n    \"size\": {size},\n    \"path\": \"/tmp/{noun}\"\n  }},\n  \"size\": 7\n}}\n"))
        .with_prompt(prompt.replace("{}", file), format!("read {file}\nsay It is {size}."))
        .expect_answer(size.to_string())
}

fn count(words: &SeededWords) -> EvalTask {
    let people = ["Ada", "Grace", "Edsger", "Barbara", "Donald"];
    let number = words.number("count", 3, 6) as usize;
    let file = words.pick("count file", &["team.txt", "people/members.txt", "list.txt"]);
    let prompt = words.pick(
        "count prompt",
        &[
            "How many people are listed in {}? Answer with the number.",
            "Read {} and tell me how many names it has, as a number.",
        ],
    );
    EvalTask::new("count", TaskSet::Tuning, "count the lines of a file")
        .with_file(file, people[..number].iter().map(|name| format!("{name}\n")).collect::<String>())
        .with_prompt(prompt.replace("{}", file), format!("read {file}\nsay There are {number}."))
        .expect_answer(number.to_string())
}

fn unsaved(words: &SeededWords) -> EvalTask {
    let colour = words.pick("unsaved colour", &["turquoise", "crimson", "amber", "violet"]);
    let file = words.pick("unsaved file", &["colours.txt", "theme.txt", "palette/colours.txt"]);
    let prompt = words.pick(
        "unsaved prompt",
        &["What colour does the file {} give for the sky?", "Read {}: which colour is the sky there?"],
    );
    EvalTask::new("unsaved", TaskSet::Tuning, "see what is typed and not saved")
        .with_file(file, "sky: blue\ngrass: green\n")
        .with_unsaved(file, format!("sky: {colour}\ngrass: green\n"))
        .with_prompt(prompt.replace("{}", file), format!("read {file}\nsay The sky is {colour}."))
        .expect_answer(colour)
}

fn unsaved_version(words: &SeededWords) -> EvalTask {
    let (major, minor) = (words.number("version major", 2, 9), words.number("version minor", 11, 99));
    let file = words.pick("version file", &["Cargo.toml", "package.toml", "release/info.toml"]);
    let prompt =
        words.pick("version prompt", &["Which version does {} state?", "What is the version number in {}?"]);
    let text = |version: &str| format!("[package]\nname = \"demo\"\nversion = \"{version}\"\n");
    let version = format!("{major}.{minor}.0");
    EvalTask::new("unsaved-version", TaskSet::HeldOut, "see a version that is typed and not saved")
        .with_file(file, text("1.0.0"))
        .with_unsaved(file, text(&version))
        .with_prompt(prompt.replace("{}", file), format!("read {file}\nsay It is {version}."))
        .expect_answer(version)
}

fn run(words: &SeededWords) -> EvalTask {
    let (base, more) = (words.number("run base", 3000, 6000), words.number("run more", 101, 899));
    let file = words.pick("run file", &["version.sh", "build.sh", "scripts/number.sh"]);
    let prompt = words.pick(
        "run prompt",
        &[
            "Run `sh {}` and tell me the build number that it prints.",
            "What build number does the command `sh {}` print? Run it.",
        ],
    );
    let sum = base + more;
    EvalTask::new("run", TaskSet::Tuning, "run a command and answer a question")
        .with_file(file, format!("echo \"build $(({base} + {more}))\"\n"))
        .with_prompt(prompt.replace("{}", file), format!("run sh {file}\nsay It is build {sum}."))
        .expect_answer(sum.to_string())
}

fn run_arguments(words: &SeededWords) -> EvalTask {
    let (width, height) = (words.number("area width", 12, 99), words.number("area height", 12, 99));
    let file = words.pick("area file", &["area.sh", "bin/area.sh", "calc.sh"]);
    let prompt = words.pick(
        "area prompt",
        &[
            "Run {} with sh and the arguments {w} and {h}. What does it print?",
            "The script {} takes a width and a height. Run it with sh for {w} and {h}, and tell me the result.",
        ],
    );
    let prompt =
        prompt.replace("{}", file).replace("{w}", &width.to_string()).replace("{h}", &height.to_string());
    EvalTask::new("run-arguments", TaskSet::HeldOut, "run a script with arguments")
        .with_file(file, "echo \"area $(($1 * $2))\"\n")
        .with_prompt(prompt, format!("run sh {file} {width} {height}\nsay It is {}.", width * height))
        .expect_answer((width * height).to_string())
}

fn find(words: &SeededWords) -> EvalTask {
    let folder = words.folder("find folder");
    let (file, function) = words.pick(
        "find function",
        &[("dates.py", "parse_date"), ("money.py", "round_price"), ("names.py", "split_name")],
    );
    let prompt = words.pick(
        "find prompt",
        &[
            "In which file of this project is the function {} defined? Search for it.",
            "Where is {} defined? Search the project and name the file.",
        ],
    );
    EvalTask::new("find", TaskSet::Tuning, "find out where something is")
        .with_file(
            format!("{folder}/today.py"),
            "def today():\n    import datetime\n    return datetime.date.today()\n",
        )
        .with_file(format!("{folder}/{file}"), format!("def {function}(text):\n    return text.strip()\n"))
        .with_file(
            format!("{folder}/report.py"),
            format!("from values import {function}\n\ndef report(line):\n    return {function}(line[:10])\n"),
        )
        .with_prompt(
            prompt.replace("{}", function),
            format!("find def {function}\nsay It is defined in {folder}/{file}."),
        )
        .expect_answer(file)
}

fn find_message(words: &SeededWords) -> EvalTask {
    let noun = words.noun("message noun");
    let file = words.pick("message file", &["gate.py", "queue.py", "mailer.py"]);
    let folder = words.folder("message folder");
    let prompt = words.pick(
        "message prompt",
        &[
            "Which file prints the error \"the {} is closed\"? Search for the text.",
            "A user saw the message \"the {} is closed\". Find the file that it comes from.",
        ],
    );
    EvalTask::new("find-message", TaskSet::HeldOut, "find where a message comes from")
        .with_file(format!("{folder}/main.py"), "print(\"ready\")\n")
        .with_file(
            format!("{folder}/{file}"),
            format!("def check(open):\n    if not open:\n        print(\"the {noun} is closed\")\n"),
        )
        .with_file(format!("{folder}/util.py"), "def closed():\n    return True\n")
        .with_prompt(
            prompt.replace("{}", noun),
            format!("find the {noun} is closed\nsay It is in {folder}/{file}."),
        )
        .expect_answer(file)
}

fn list(words: &SeededWords) -> EvalTask {
    let folder = words.pick("list folder", &["docs", "manual", "guide"]);
    let noun = words.noun("list noun");
    let prompt = words.pick(
        "list prompt",
        &[
            "List the folder {}. What is the name of the markdown file in it?",
            "Which markdown file is in the folder {}?",
        ],
    );
    EvalTask::new("list", TaskSet::Tuning, "list a folder")
        .with_file(format!("{folder}/{noun}.md"), "# A page\n")
        .with_file(format!("{folder}/style.css"), "body {}\n")
        .with_file(format!("{folder}/logo.txt"), "o\n")
        .with_prompt(prompt.replace("{}", folder), format!("list {folder}\nsay It is {noun}.md."))
        .expect_answer(noun)
}
