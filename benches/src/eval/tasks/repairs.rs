//! Tasks of several steps: programs that must work afterwards.

use super::{EvalTask, SeededWords, TaskSet, check_file};

pub(super) fn repair_tasks(words: &SeededWords) -> Vec<EvalTask> {
    vec![fix_operator(words), fix_name(words), fix_message(words), rename(words), rename_key(words)]
}

fn test_script(call: &str, expected: &str) -> String {
    format!(
        "got=$({call})\nif [ \"$got\" != \"{expected}\" ]; then\n  echo \"{call} printed $got, expected {expected}\"\n  exit 1\nfi\necho ok\n"
    )
}

fn fix_operator(words: &SeededWords) -> EvalTask {
    let (name, wrong, right, result) = words
        .pick("operator", &[("sum.sh", "-", "+", 5), ("product.sh", "+", "*", 6), ("sum.sh", "*", "+", 5)]);
    let prompt = words.pick(
        "operator prompt",
        &[
            "`sh test.sh` fails. Find the bug in {} and fix it, then run the test again. Do not change test.sh.",
            "The test `sh test.sh` fails because of a bug in {}. Fix the bug, do not change test.sh.",
        ],
    );
    let (bad, good) = (format!("$1 {wrong} $2"), format!("$1 {right} $2"));
    let test = test_script(&format!("sh {name} 2 3"), &result.to_string());
    let unchanged = test.clone();
    let check = if right == "+" { (20, 30, 50) } else { (20, 30, 600) };
    EvalTask::new("fix-operator", TaskSet::Tuning, "make a failing test pass")
        .with_file(name, format!("#!/bin/sh\n# Prints the {} of two numbers.\necho $(({bad}))\n", name.trim_end_matches(".sh")))
        .with_file("test.sh", test)
        .with_prompt(
            prompt.replace("{}", name),
            format!("run sh test.sh || true\nread {name}\nreplace \"{bad}\" with \"{good}\" in {name}\nrun sh test.sh"),
        )
        .with_check(move |ended| check_file(ended, "test.sh", &unchanged))
        .expect_success(format!("sh test.sh && [ \"$(sh {name} {} {})\" = {} ]", check.0, check.1, check.2))
}

fn fix_name(words: &SeededWords) -> EvalTask {
    let (right, wrong) = words.pick("misspelt", &[("total", "totl"), ("name", "nmae"), ("count", "cuont")]);
    let value = words.number("misspelt value", 10, 99);
    let prompt = words.pick(
        "misspelt prompt",
        &[
            "`sh show.sh` should print the number {v}, but a variable is misspelt. Fix show.sh.",
            "show.sh prints nothing because a variable's name is misspelt. Correct it, so that `sh show.sh` prints {v}.",
        ],
    );
    EvalTask::new("fix-name", TaskSet::HeldOut, "correct a misspelt variable")
        .with_file("show.sh", format!("{right}={value}\necho \"${wrong}\"\n"))
        .with_prompt(
            prompt.replace("{v}", &value.to_string()),
            format!("replace \"${wrong}\" with \"${right}\" in show.sh"),
        )
        .expect_success(format!("[ \"$(sh show.sh)\" = {value} ]"))
}

fn fix_message(words: &SeededWords) -> EvalTask {
    let noun = words.noun("fix noun");
    let prompt = words.pick(
        "message fix prompt",
        &[
            "`sh test.sh` fails: run it to see what it expects, then change greet.sh so that it passes.",
            "Make `sh test.sh` pass by changing greet.sh. Run the test first to see what is wrong.",
        ],
    );
    let test = test_script("sh greet.sh", &format!("Hello, {noun}"));
    let unchanged = test.clone();
    EvalTask::new("fix-message", TaskSet::Tuning, "see what a test expects, and do it")
        .with_file("greet.sh", "echo \"Hello, nobody\"\n")
        .with_file("test.sh", test)
        .with_prompt(
            prompt,
            format!("run sh test.sh || true\nreplace \"nobody\" with \"{noun}\" in greet.sh\nrun sh test.sh"),
        )
        .with_check(move |ended| check_file(ended, "test.sh", &unchanged))
        .expect_success("sh test.sh")
}

fn rename(words: &SeededWords) -> EvalTask {
    let (old, new) =
        words.pick("rename", &[("greet", "welcome"), ("shout", "announce"), ("print_all", "show_all")]);
    let (one, two) = (words.person("rename one"), words.noun("rename two"));
    let prompt = words.pick(
        "rename prompt",
        &[
            "Rename the shell function {o} to {n}. It is defined in lib.sh and used in main.sh and test.sh: change all three files.",
            "The function {o} in lib.sh shall be called {n}. main.sh and test.sh use it: change them, too.",
        ],
    );
    let lib = |name: &str| format!("{name}() {{\n  echo \"Hello, $1!\"\n}}\n");
    let renamed = lib(new);
    let steps = [
        ("lib.sh", "()".to_owned()),
        ("main.sh", format!(" {one}")),
        ("main.sh", format!(" {two}")),
        ("test.sh", " Bob".to_owned()),
    ];
    let by_hand: Vec<String> = steps
        .iter()
        .map(|(file, rest)| format!("replace \"{old}{rest}\" with \"{new}{rest}\" in {file}"))
        .collect();
    EvalTask::new("rename", TaskSet::Tuning, "rename a function in every file")
        .with_file("lib.sh", lib(old))
        .with_file("main.sh", format!(". ./lib.sh\n{old} {one}\n{old} {two}\n"))
        .with_file("test.sh", format!(". ./lib.sh\n[ \"$({old} Bob)\" = 'Hello, Bob!' ] && echo ok\n"))
        .with_prompt(prompt.replace("{o}", old).replace("{n}", new), by_hand.join("\n"))
        .with_check(move |ended| {
            let left = ["lib.sh", "main.sh", "test.sh"].into_iter().find_map(|name| {
                let text = ended.lab.read_file(name).ok()?;
                text.contains(old).then(|| format!("{old} is still in {name}"))
            });
            left.or_else(|| check_file(ended, "lib.sh", &renamed))
        })
        .expect_success(format!(
            "[ \"$(sh main.sh)\" = \"$(printf 'Hello, {one}!\\nHello, {two}!')\" ] && sh test.sh"
        ))
}

fn rename_key(words: &SeededWords) -> EvalTask {
    let (old, new) = words.pick("key", &[("PORT", "SERVER_PORT"), ("USER", "ACCOUNT"), ("COLOUR", "TINT")]);
    let value = words.number("key value", 1000, 9999);
    let prompt = words.pick(
        "key prompt",
        &[
            "Rename the setting {o} in settings.conf to {n}, and use the new name in start.sh, which reads it.",
            "The setting {o} shall be called {n}: change settings.conf and start.sh.",
        ],
    );
    EvalTask::new("rename-key", TaskSet::Tuning, "rename a setting where it is set and where it is read")
        .with_file("settings.conf", format!("{old}={value}\n"))
        .with_file("start.sh", format!(". ./settings.conf\necho \"using ${old}\"\n"))
        .with_prompt(
            prompt.replace("{o}", old).replace("{n}", new),
            format!("replace \"{old}=\" with \"{new}=\" in settings.conf\nreplace \"${old}\" with \"${new}\" in start.sh"),
        )
        .expect_file("settings.conf", format!("{new}={value}"))
        .expect_success(format!("[ \"$(sh start.sh)\" = 'using {value}' ]"))
}
