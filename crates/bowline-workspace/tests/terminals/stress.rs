//! Stress tests with many commands and much output: all resources are released.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

use bowline_workspace::terminals::{CommandRequest, MAX_RELEASED_TERMINALS};
use expect_test::expect;

use super::fixture::{MAX_WAIT, TerminalFixture, exit_code, shell_request};

/// A test that finds this variable set runs alone in its process, so that it can count the process's resources.
const ALONE_VARIABLE: &str = "BOWLINE_TEST_ALONE";

/// Runs a test in a process of its own. Returns whether this is that process.
fn run_in_own_process(test: &str) -> bool {
    if env::var_os(ALONE_VARIABLE).is_some() {
        return true;
    }
    let run = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE_VARIABLE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{stdout}{stderr}");
    false
}

/// The resources of this process.
#[derive(Debug, PartialEq, Eq)]
struct ProcessResources {
    descriptors: usize,
    threads: usize,
    children: String,
}

fn process_resources() -> ProcessResources {
    let count = |directory: &str| fs::read_dir(directory).unwrap().count();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let children =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap()).collect();
    ProcessResources { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"), children }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let used = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    used.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_thousand_short_commands_lose_nothing_and_leave_nothing() {
    if !run_in_own_process("stress::a_thousand_short_commands_lose_nothing_and_leave_nothing") {
        return;
    }
    let lab = TerminalFixture::new();
    // By now the runtime has opened what it needs, and two supervisors are idle.
    let (one, other) = (lab.start("sleep 1000").await, lab.start("sleep 1000").await);
    lab.terminals.release(&one).await.unwrap();
    lab.terminals.release(&other).await.unwrap();
    let before = process_resources();
    let mut settled = 0;
    for round in 0..125 {
        // By now the maximum number of snapshots is kept.
        if round == MAX_RELEASED_TERMINALS / 4 {
            settled = resident_bytes();
        }
        let mut ids = Vec::new();
        for number in 0..8 {
            ids.push(lab.start(&format!("echo begin {round}; echo end {number}; exit {number}")).await);
        }
        for (number, id) in ids.iter().enumerate() {
            let exit = lab.wait(id).await;
            let shown = lab.terminals.output(id).await.unwrap();
            assert_eq!(shown.text, format!("begin {round}\nend {number}\n"));
            assert_eq!(Some(exit), exit_code(i32::try_from(number).unwrap()));
        }
        for id in &ids {
            lab.terminals.release(id).await.unwrap();
        }
    }
    let after = process_resources();
    assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
    assert_eq!(after.children.split_whitespace().count(), 2);
    lab.terminals.release_all().await;
    assert_eq!(process_resources().children, "");
    let grown = resident_bytes().saturating_sub(settled);
    assert!(grown < 4 * 1024 * 1024, "{grown}");
}

#[tokio::test]
async fn only_the_last_released_terminals_can_be_shown() {
    let lab = TerminalFixture::new();
    let mut ids = Vec::new();
    for number in 0..=MAX_RELEASED_TERMINALS {
        let id = lab.start(&format!("echo {number}")).await;
        lab.wait(&id).await;
        lab.terminals.release(&id).await.unwrap();
        ids.push(id);
    }
    assert_eq!(lab.terminals.last_snapshot(&ids[0]).await, None);
    assert_eq!(lab.terminals.last_snapshot(&ids[1]).await.unwrap().text, "1\n");
    assert_eq!(lab.terminals.last_snapshot(&ids[MAX_RELEASED_TERMINALS]).await.unwrap().text, "64\n");
}

#[tokio::test]
async fn gigabytes_of_output_take_no_memory() {
    if !run_in_own_process("stress::gigabytes_of_output_take_no_memory") {
        return;
    }
    let lab = TerminalFixture::new();
    let line = "head -c 2G /dev/zero; yes $(printf '%08000d' 7) | head -c 100M; echo the end";
    lab.run("echo warm").await;
    let before = resident_bytes();
    let asked = CommandRequest { output_limit: Some(1000), ..shell_request(line) };
    let id = lab.terminals.start(lab.terminals.prepare(asked).unwrap()).await.unwrap();
    // A subscriber that never reads blocks nothing.
    let idle = lab.terminals.subscribe(&id).await.unwrap();
    assert_eq!(Some(lab.wait(&id).await), exit_code(0));
    let shown = lab.terminals.output(&id).await.unwrap();
    assert!(shown.truncated && shown.text.len() == 1000 && shown.text.ends_with("0the end\n"), "{shown:?}");
    let taken = resident_bytes().saturating_sub(before);
    assert!(taken < 16 * 1024 * 1024, "{taken}");
    drop(idle);
}

#[tokio::test]
async fn sequences_without_end_take_no_memory_and_are_not_shown() {
    if !run_in_own_process("stress::sequences_without_end_take_no_memory_and_are_not_shown") {
        return;
    }
    let lab = TerminalFixture::new();
    lab.run("echo warm").await;
    let before = resident_bytes();
    // The clipboard, a link, a title, a device control string, an application command.
    for begin in ["]52;c;", "]8;;", "]0;", "P$q", "_"] {
        let line = format!("echo before; printf '\\033{begin}'; head -c 50M /dev/zero | tr '\\0' A");
        let asked = CommandRequest { output_limit: Some(1000), ..shell_request(&line) };
        assert_eq!(lab.run_request(asked).await.text, "before\n", "{begin}");
    }
    assert_eq!(lab.run("printf 'a\\033[999999999bc\\n'").await.text, "ac\n");
    let taken = resident_bytes().saturating_sub(before);
    assert!(taken < 16 * 1024 * 1024, "{taken}");
}

#[tokio::test]
async fn a_flood_without_end_does_not_drown_others() {
    let lab = TerminalFixture::new();
    let flood = lab.start("yes").await;
    lab.wait_for_output(&flood, "y\ny\n").await;
    assert_eq!(lab.run("echo heard").await.text, "heard\n");
    let shown = lab.terminals.output(&flood).await.unwrap();
    assert_eq!(shown.exit, None);
    tokio::time::timeout(MAX_WAIT, lab.terminals.release(&flood)).await.unwrap().unwrap();
}

#[tokio::test]
async fn noise_is_shown_as_text() {
    let lab = TerminalFixture::new();
    let every_byte: String = (0..=255).map(|byte| format!("\\{byte:03o}")).collect();
    let shown = lab.run(&format!("printf '{every_byte}{every_byte}'; echo; echo the end")).await;
    expect![[r#"\t\n\r123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~�������������������������������������������������������������������������������������������������������������������������������\t\n\r123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~�������������������������������������������������������������������������������������������������������������������������������\nthe end\n"#]].assert_eq(&shown.text.escape_debug().to_string());
    // Regardless of the amount.
    let line = "head -c 3000000 /dev/urandom; printf '\\030the end\\n'";
    let shown = lab.run_request(CommandRequest { output_limit: Some(1000), ..shell_request(line) }).await;
    assert!(shown.text.len() <= 1000 && shown.text.ends_with("the end\n"), "{:?}", shown.text);
    assert!(!shown.text.chars().any(|c| c.is_control() && !"\n\r\t".contains(c)), "{:?}", shown.text);
}
