//! Bowline's agent with Bowline's host, two programs over pipes: the agent's text, the questions to the user, and the
//! content of the journal and the audit log.

use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionReply};
use expect_test::expect;
use test_support::host_harness::HostHarness;

use crate::agent_run::PeerAgentRun;
use crate::program::bowline_path;

const SUPERVISOR: &str = env!("CARGO_BIN_EXE_supervisor");

async fn begin_visit(lab: HostHarness, arguments: &[&str]) -> PeerAgentRun {
    let mut command = vec![bowline_path().display().to_string(), "agent".to_owned()];
    command.extend(arguments.iter().map(ToString::to_string));
    PeerAgentRun::start(lab, &command, &[]).await
}

fn new_harness() -> HostHarness {
    let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
    lab.user.answer_with(|_| QuestionReply::allow());
    lab.write_file("a.txt", "one\ntwo\nthree\nfour\nfive\n").unwrap();
    lab
}

/// Removes the durations of commands.
fn strip_durations(told: &str) -> String {
    let line = |line: &str| match (line.rfind(", "), line.ends_with(" s]")) {
        (Some(at), true) => format!("{}, … s]\n", &line[..at]),
        _ => format!("{line}\n"),
    };
    told.lines().map(line).collect()
}

#[tokio::test]
async fn unsaved_text_is_read_and_an_edit_costs_one_question() {
    let lab = new_harness();
    let path = lab.path("a.txt");
    let document = lab.host.workspace().open_document(&path).unwrap();
    let typed = "one\ntwo\nthree\nfour\nFIVE\n";
    lab.host.workspace().change_document(&path, typed.to_owned(), document.revision).unwrap();
    let mut visit = begin_visit(lab, &[]).await;
    let told = visit.turn("read a.txt\nreplace \"two\" with \"2\" in a.txt").await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          `a.txt`:

          ```txt
          [a.txt: all of it, 5 lines, read through the editor]
          one
          two
          three
          four
          FIVE
          ```
        says
          Changed `a.txt`.
        call Read Completed: Read a.txt
        call Edit Completed: Edit a.txt
        question
          Bowline asks: write $BASE/project/a.txt
            write $BASE/project/a.txt
            lines: 1 added, 1 removed
            @@ -1,5 +1,5 @@
             one
            -two
            +2
             three
             four
             FIVE
          Asked because no rule covers it, and preset ask asks before writes
        journal: wrote $BASE/project/a.txt by no session
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
    assert_eq!(visit.lab.read_file("a.txt").unwrap(), "one\n2\nthree\nfour\nFIVE\n");
}

#[tokio::test]
async fn a_no_reaches_the_model_with_its_reason() {
    let lab = new_harness();
    lab.user.answer_with(|_: &Question| {
        let mut reply = QuestionReply::answer(AnswerChoice::Deny, AnswerLifetime::Once);
        if let QuestionReply::Answered(answer) = &mut reply {
            answer.reason = Some("use the other file".to_owned());
        }
        reply
    });
    let mut visit = begin_visit(lab, &[]).await;
    let told = visit.turn("write a.txt: new").await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          Writing `a.txt` did not work:

          ```
          nothing was written: a.txt: permission denied: the user said no: use the other file
          ```
        call Edit Failed: Write a.txt
        question
          Bowline asks: write $BASE/project/a.txt
            write $BASE/project/a.txt
            lines: 1 added, 5 removed
            @@ -1,5 +1 @@
            -one
            -two
            -three
            -four
            -five
            +new
            \ No newline at end of file
          Asked because no rule covers it, and preset ask asks before writes
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/write denied by person $BASE/project/a.txt
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn commands_run_in_the_hosts_terminals_and_what_they_change_is_found() {
    let mut visit = begin_visit(new_harness(), &["--shell"]).await;
    let told = strip_durations(&visit.turn("run echo made > made.txt; echo hi; exit 3").await);
    expect![[r#"
        turn 1 ended: EndTurn
        says
          Running `echo made > made.txt; echo hi; exit 3` did not work:

          ```
          [`echo made > made.txt; echo hi; exit 3` failed with exit code 3, through the editor, … s]
          hi
          ```
        call Execute Failed: Run echo made > made.txt; echo hi; exit 3
        question
          Bowline asks: run echo made > made.txt; echo hi; exit 3
            run echo made > made.txt; echo hi; exit 3
            in $BASE/project
          Asked because `made.txt`: no rule covers it, and preset ask asks before writes
        journal: found $BASE/project/made.txt by $SESSION in turn 1 with /bin/sh -c 'echo made > made.txt; echo hi; exit 3'
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: terminal/create allowed by person /bin/sh -c 'echo made > made.txt; echo hi; exit 3'
        audit: terminal/release allowed by nobody the terminal
        audit: turn/end allowed by nobody
        audit: observed allowed by nobody $BASE/project/made.txt
        audit: terminal/exit allowed by person /bin/sh -c 'echo made > made.txt; echo hi; exit 3': 3
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn in_mode_full_the_agent_does_not_ask_but_the_host_does() {
    let mut visit = begin_visit(new_harness(), &["--mode", "full"]).await;
    let told = visit.turn("write b.txt: new").await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          Wrote `b.txt`.
        call Edit Completed: Write b.txt
        question
          Bowline asks: write $BASE/project/b.txt
            write $BASE/project/b.txt
            new file, lines: 1
            @@ -0,0 +1 @@
            +new
            \ No newline at end of file
          Asked because no rule covers it, and preset ask asks before writes
        journal: wrote $BASE/project/b.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read failed by preset: ask $BASE/project/b.txt
        audit: fs/write allowed by person $BASE/project/b.txt
        audit: fs/write allowed by person $BASE/project/b.txt
        audit: fs/read allowed by preset: ask $BASE/project/b.txt
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn several_files_change_through_the_host_with_one_question_each_call() {
    let lab = new_harness();
    lab.write_file("old.txt", "old\n").unwrap();
    let script = lab.path("script.jsonl");
    let steps = r#"
{"calls": [{"name": "read_text_file", "input": {"path": "a.txt"}}]}
{"expect": "five", "calls": [{"name": "write_files", "input": {"files": [{"path": "a.txt", "content": "1\ntwo\n"}, {"path": "docs/b.txt", "content": "b\n"}]}}]}
{"expect": "Created docs/b.txt (1 line)", "calls": [{"name": "append_file", "input": {"path": "a.txt", "content": "three\n"}}]}
{"expect": "Appended 1 line to a.txt, through the editor", "calls": [{"name": "move_file", "input": {"from": "a.txt", "to": "docs/a.txt"}}]}
{"expect": "Moved a.txt to docs/a.txt, through the editor", "calls": [{"name": "delete_file", "input": {"path": "old.txt"}}]}
{"expect": "Deleted old.txt, through the editor", "calls": [{"name": "stat_file", "input": {"path": "docs/a.txt"}}]}
{"expect": "docs/a.txt is a file of 12 bytes, text in UTF-8", "calls": [{"name": "delete_file", "input": {"path": "old.txt"}}]}
{"expect": "old.txt does not exist", "text": "Done."}
"#;
    std::fs::write(&script, steps).unwrap();
    let root = lab.path("");
    let mut visit = begin_visit(lab, &["--mode", "full", "--model", &format!("script:{script}")]).await;
    let told = visit.turn("go").await;
    expect![[r#"
        turn 1 ended: EndTurn
        says
          Done.
        call Read Completed: Read a.txt
        call Edit Completed: Write 2 files
        call Edit Completed: Append to a.txt
        call Move Completed: Move a.txt to docs/a.txt
        call Delete Completed: Delete old.txt
        call Read Completed: Look at docs/a.txt
        call Delete Failed: Delete old.txt
        question
          Bowline asks: change files, 2 operations at once
            write $BASE/project/a.txt
            lines: 1 added, 4 removed
            @@ -1,5 +1,2 @@
            -one
            +1
             two
            -three
            -four
            -five
            write $BASE/project/docs/b.txt
            new file, lines: 1
            @@ -0,0 +1 @@
            +b
          Asked because no rule covers it, and preset ask asks before writes
        question
          Bowline asks: write $BASE/project/a.txt
            write $BASE/project/a.txt
            lines: 1 added, 0 removed
            @@ -1,2 +1,3 @@
             1
             two
            +three
          Asked because no rule covers it, and preset ask asks before writes
        question
          Bowline asks: move $BASE/project/a.txt to $BASE/project/docs/a.txt
            write $BASE/project/docs/a.txt
            new file, lines: 3
            @@ -0,0 +1,3 @@
            +1
            +two
            +three
            delete $BASE/project/a.txt
            lines: 0 added, 3 removed
            @@ -1,3 +0,0 @@
            -1
            -two
            -three
          Asked because no rule covers it, and preset ask asks before writes
        question
          Bowline asks: delete $BASE/project/old.txt
          ! deletes $BASE/project/old.txt
            delete $BASE/project/old.txt
            lines: 0 added, 1 removed
            @@ -1 +0,0 @@
            -old
          Asked because no rule covers it, and preset ask asks before deletions
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        journal: wrote $BASE/project/docs/b.txt by $SESSION in turn 1
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        journal: wrote $BASE/project/docs/a.txt by $SESSION in turn 1
        journal: wrote $BASE/project/a.txt by $SESSION in turn 1
        journal: wrote $BASE/project/old.txt by $SESSION in turn 1
        audit: session/start allowed by nobody
        audit: turn/start allowed by nobody
        audit: fs/read failed by preset: ask $BASE/project/AGENTS.md
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read failed by preset: ask $BASE/project/docs/b.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/docs/b.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/docs/b.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/a.txt
        audit: fs/read failed by preset: ask $BASE/project/docs/a.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/write allowed by person $BASE/project/docs/a.txt
        audit: fs/write allowed by person $BASE/project/docs/a.txt
        audit: fs/write allowed by person $BASE/project/a.txt
        audit: fs/read allowed by preset: ask $BASE/project/old.txt
        audit: fs/write allowed by person $BASE/project/old.txt
        audit: fs/write allowed by person $BASE/project/old.txt
        audit: fs/read allowed by preset: ask $BASE/project/docs/a.txt
        audit: fs/read failed by preset: ask $BASE/project/old.txt
        audit: turn/end allowed by nobody
    "#]]
    .assert_eq(&told);
    let read = |name: &str| std::fs::read_to_string(format!("{root}/{name}")).ok();
    assert_eq!((read("a.txt"), read("docs/a.txt").as_deref()), (None, Some("1\ntwo\nthree\n")));
    assert_eq!((read("old.txt"), read("docs/b.txt").as_deref()), (None, Some("b\n")));
}
