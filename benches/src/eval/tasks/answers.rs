//! Tasks that are answered with words.

use super::{Challenge, Set, Words};

pub(super) fn all(words: &Words) -> Vec<Challenge> {
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

fn answer(words: &Words) -> Challenge {
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
    Challenge::new("answer", Set::Tuning, "read a file and answer a question")
        .file(file, format!("# Notes\n\nThe server listens on port {port}. It is restarted every night.\nAsk {person} before changing it.\n"))
        .asks(prompt.replace("{}", file), format!("read {file}\nsay It listens on port {port}."))
        .says(port.to_string())
}

fn answer_json(words: &Words) -> Challenge {
    let noun = words.noun("json noun");
    let size = words.number("json size", 100, 999);
    let file = words.pick("json file", &["settings.json", "config/cache.json", "app.json"]);
    let prompt = words.pick(
        "json prompt",
        &["What is the cache size in {}?", "Tell me the value of cache.size in the file {}."],
    );
    Challenge::new("answer-json", Set::HeldOut, "find a value in JSON")
        .file(file, format!("{{\n  \"name\": \"{noun}\",\n  \"cache\": {{\n    \"size\": {size},\n    \"path\": \"/tmp/{noun}\"\n  }},\n  \"size\": 7\n}}\n"))
        .asks(prompt.replace("{}", file), format!("read {file}\nsay It is {size}."))
        .says(size.to_string())
}

fn count(words: &Words) -> Challenge {
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
    Challenge::new("count", Set::Tuning, "count the lines of a file")
        .file(file, people[..number].iter().map(|name| format!("{name}\n")).collect::<String>())
        .asks(prompt.replace("{}", file), format!("read {file}\nsay There are {number}."))
        .says(number.to_string())
}

fn unsaved(words: &Words) -> Challenge {
    let colour = words.pick("unsaved colour", &["turquoise", "crimson", "amber", "violet"]);
    let file = words.pick("unsaved file", &["colours.txt", "theme.txt", "palette/colours.txt"]);
    let prompt = words.pick(
        "unsaved prompt",
        &["What colour does the file {} give for the sky?", "Read {}: which colour is the sky there?"],
    );
    Challenge::new("unsaved", Set::Tuning, "see what is typed and not saved")
        .file(file, "sky: blue\ngrass: green\n")
        .unsaved(file, format!("sky: {colour}\ngrass: green\n"))
        .asks(prompt.replace("{}", file), format!("read {file}\nsay The sky is {colour}."))
        .says(colour)
}

fn unsaved_version(words: &Words) -> Challenge {
    let (major, minor) = (words.number("version major", 2, 9), words.number("version minor", 11, 99));
    let file = words.pick("version file", &["Cargo.toml", "package.toml", "release/info.toml"]);
    let prompt =
        words.pick("version prompt", &["Which version does {} state?", "What is the version number in {}?"]);
    let text = |version: &str| format!("[package]\nname = \"demo\"\nversion = \"{version}\"\n");
    let version = format!("{major}.{minor}.0");
    Challenge::new("unsaved-version", Set::HeldOut, "see a version that is typed and not saved")
        .file(file, text("1.0.0"))
        .unsaved(file, text(&version))
        .asks(prompt.replace("{}", file), format!("read {file}\nsay It is {version}."))
        .says(version)
}

fn run(words: &Words) -> Challenge {
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
    Challenge::new("run", Set::Tuning, "run a command and answer a question")
        .file(file, format!("echo \"build $(({base} + {more}))\"\n"))
        .asks(prompt.replace("{}", file), format!("run sh {file}\nsay It is build {sum}."))
        .says(sum.to_string())
}

fn run_arguments(words: &Words) -> Challenge {
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
    Challenge::new("run-arguments", Set::HeldOut, "run a script with arguments")
        .file(file, "echo \"area $(($1 * $2))\"\n")
        .asks(prompt, format!("run sh {file} {width} {height}\nsay It is {}.", width * height))
        .says((width * height).to_string())
}

fn find(words: &Words) -> Challenge {
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
    Challenge::new("find", Set::Tuning, "find out where something is")
        .file(
            format!("{folder}/today.py"),
            "def today():\n    import datetime\n    return datetime.date.today()\n",
        )
        .file(format!("{folder}/{file}"), format!("def {function}(text):\n    return text.strip()\n"))
        .file(
            format!("{folder}/report.py"),
            format!("from values import {function}\n\ndef report(line):\n    return {function}(line[:10])\n"),
        )
        .asks(
            prompt.replace("{}", function),
            format!("find def {function}\nsay It is defined in {folder}/{file}."),
        )
        .says(file)
}

fn find_message(words: &Words) -> Challenge {
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
    Challenge::new("find-message", Set::HeldOut, "find where a message comes from")
        .file(format!("{folder}/main.py"), "print(\"ready\")\n")
        .file(
            format!("{folder}/{file}"),
            format!("def check(open):\n    if not open:\n        print(\"the {noun} is closed\")\n"),
        )
        .file(format!("{folder}/util.py"), "def closed():\n    return True\n")
        .asks(prompt.replace("{}", noun), format!("find the {noun} is closed\nsay It is in {folder}/{file}."))
        .says(file)
}

fn list(words: &Words) -> Challenge {
    let folder = words.pick("list folder", &["docs", "manual", "guide"]);
    let noun = words.noun("list noun");
    let prompt = words.pick(
        "list prompt",
        &[
            "List the folder {}. What is the name of the markdown file in it?",
            "Which markdown file is in the folder {}?",
        ],
    );
    Challenge::new("list", Set::Tuning, "list a folder")
        .file(format!("{folder}/{noun}.md"), "# A page\n")
        .file(format!("{folder}/style.css"), "body {}\n")
        .file(format!("{folder}/logo.txt"), "o\n")
        .asks(prompt.replace("{}", folder), format!("list {folder}\nsay It is {noun}.md."))
        .says(noun)
}
