//! Permission requests and the operations after them: one question covers both, and an approval covers only what was
//! shown.

use std::os::unix::fs::PermissionsExt as _;

use bowline_access::approvals::MAX_PENDING_QUESTIONS;
use bowline_policy::question::{QuestionAnswer, QuestionReply};
use bowline_wire::schema::v1::StopReason;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::host_fixture::{HostFixture, check, parse_reply, permission_options};

/// Runs one turn in a project with `a.txt`, for a user who approves the first question and is absent afterwards.
async fn check_approved_once(script: &str, expected: Expect) {
    let stage = HostFixture::new().with_file("a.txt", "one\ntwo\none\n").with_answers(&["yes"]);
    check(&stage, script, expected).await;
}

#[tokio::test]
async fn a_request_with_the_whole_diff_and_its_write_cost_one_question() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"one\ntwo\none\n","newText":"1\n"}]}
        write a.txt 1\n
        write a.txt 1\n
        read a.txt
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"one\ntwo\none\n","newText":"1\n"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 3 removed
              ?   @@ -1,3 +1 @@
              ?   -one
              ?   -two
              ?   -one
              ?   +1
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.txt 1\n
            ok
            > write a.txt 1\n
              ? puppet asks: write $ROOT/a.txt
              ?   write $ROOT/a.txt
              ?   lines: 0 added, 0 removed
              ? Asked because no rule covers it, and preset ask asks before writes
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
            > read a.txt
            "1\n"
        "#]],
    )
    .await;
}

/// kimi-code 2.1.0 announces a call with its input as text, asks about it with a sentence, and runs commands through a
/// shell that changes to the directory first.
#[tokio::test]
async fn each_operation_of_kimi_costs_one_question() {
    let stage = HostFixture::new().with_file("a.txt", "one\ntwo\n").with_answers(&["yes", "yes", "yes"]);
    check(
        &stage,
        r#"
        update {"sessionUpdate":"tool_call","toolCallId":"0:call_1","title":"Edit","kind":"edit","status":"pending","content":[{"type":"content","content":{"type":"text","text":"{\"path\": \"$ROOT/a.txt\", \"old_string\": \"two\", \"new_string\": \"2\"}"}}]}
        ask {"toolCallId":"0:call_1","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"},{"type":"content","content":{"type":"text","text":"Requesting approval to Editing $ROOT/a.txt"}}]}
        write a.txt one\n2\n
        update {"sessionUpdate":"tool_call","toolCallId":"0:call_2","title":"Write","kind":"edit","status":"pending","content":[{"type":"content","content":{"type":"text","text":"{\"path\": \"$ROOT/new.txt\", \"content\": \"new\\n\"}"}}]}
        ask {"toolCallId":"0:call_2","title":"Write","content":[{"type":"content","content":{"type":"text","text":"Requesting approval to Writing $ROOT/new.txt"}}]}
        write new.txt new\n
        update {"sessionUpdate":"tool_call","toolCallId":"0:call_3","title":"Bash","kind":"execute","status":"pending","content":[{"type":"content","content":{"type":"text","text":"{\"command\": \"echo made > made.txt\"}"}}]}
        ask {"toolCallId":"0:call_3","title":"Bash","content":[{"type":"content","content":{"type":"text","text":"Requesting approval to Running: echo made > made.txt"}}]}
        argv ["/bin/bash","-c","cd '$ROOT' && echo made > made.txt"]
        argv ["/bin/bash","-c","cd '$ROOT/..' && echo made > made.txt"]
        "#,
        expect![[r#"
            > update {"sessionUpdate":"tool_call","toolCallId":"0:call_1","title":"Edit","kind":"edit","status":"pending","content":[{"type":"content","content":{"type":"text","text":"{\"path\": \"$ROOT/a.txt\", \"
            > ask {"toolCallId":"0:call_1","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"},{"type":"content","content":{"type":"text","text":"Requesting approval to Edit
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1,2 +1,2 @@
              ?    one
              ?   -two
              ?   +2
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.txt one\n2\n
            ok
            > update {"sessionUpdate":"tool_call","toolCallId":"0:call_2","title":"Write","kind":"edit","status":"pending","content":[{"type":"content","content":{"type":"text","text":"{\"path\": \"$ROOT/new.txt\",
            > ask {"toolCallId":"0:call_2","title":"Write","content":[{"type":"content","content":{"type":"text","text":"Requesting approval to Writing $ROOT/new.txt"}}]}
              ? puppet asks: Write
              ?   write $ROOT/new.txt
              ?   new file, lines: 1
              ?   @@ -0,0 +1 @@
              ?   +new
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write new.txt new\n
            ok
            > update {"sessionUpdate":"tool_call","toolCallId":"0:call_3","title":"Bash","kind":"execute","status":"pending","content":[{"type":"content","content":{"type":"text","text":"{\"command\": \"echo made >
            > ask {"toolCallId":"0:call_3","title":"Bash","content":[{"type":"content","content":{"type":"text","text":"Requesting approval to Running: echo made > made.txt"}}]}
              ? puppet asks: Bash
              ?   run echo made > made.txt
              ?   in $ROOT
              ? Asked because `made.txt`: no rule covers it, and preset ask asks before writes
            selected once
            > argv ["/bin/bash","-c","cd '$ROOT' && echo made > made.txt"]
            "" exit 0
            > argv ["/bin/bash","-c","cd '$ROOT/..' && echo made > made.txt"]
              ? puppet asks: run cd '$ROOT/..' && echo made > made.txt
              ?   run cd '$ROOT/..' && echo made > made.txt
              ?   in $ROOT
              ? Asked because `cd '$ROOT/..'`: no rule covers it, and preset ask asks before commands
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_request_with_a_part_of_the_text_covers_the_write_of_the_whole() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"}]}
        write a.txt one\n2\none\n
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1,3 +1,3 @@
              ?    one
              ?   -two
              ?   +2
              ?    one
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.txt one\n2\none\n
            ok
        "#]],
    )
    .await;
}

#[tokio::test]
async fn other_content_than_was_shown_is_asked_about_again() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"}]}
        write a.txt one\nthree\none\n
        read a.txt
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1,3 +1,3 @@
              ?    one
              ?   -two
              ?   +2
              ?    one
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.txt one\nthree\none\n
              ? puppet is about to act, and it is not what was approved: write $ROOT/a.txt
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1,3 +1,3 @@
              ?    one
              ?   -two
              ?   +three
              ?    one
              ? Asked because no rule covers it, and preset ask asks before writes
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
            > read a.txt
            "one\ntwo\none\n"
        "#]],
    )
    .await;
}

#[tokio::test]
async fn another_file_than_was_shown_is_asked_about_again() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","newText":"2"}]}
        write b.txt 2
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","newText":"2"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 3 removed
              ?   @@ -1,3 +1 @@
              ?   -one
              ?   -two
              ?   -one
              ?   +2
              ?   \ No newline at end of file
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write b.txt 2
              ? puppet asks: write $ROOT/b.txt
              ?   write $ROOT/b.txt
              ?   new file, lines: 1
              ?   @@ -0,0 +1 @@
              ?   +2
              ?   \ No newline at end of file
              ? Asked because no rule covers it, and preset ask asks before writes
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_file_that_was_edited_since_it_was_shown_is_asked_about_again() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"one\ntwo\none\n","newText":"2"}]}
        put a.txt mine\n
        write a.txt 2
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"one\ntwo\none\n","newText":"2"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 3 removed
              ?   @@ -1,3 +1 @@
              ?   -one
              ?   -two
              ?   -one
              ?   +2
              ?   \ No newline at end of file
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > put a.txt mine\n
            > write a.txt 2
              ? puppet is about to act, and it is not what was approved: write $ROOT/a.txt
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1 +1 @@
              ?   -mine
              ?   +2
              ?   \ No newline at end of file
              ? Asked because no rule covers it, and preset ask asks before writes
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_command_is_covered_however_it_is_given() {
    let ways = [
        (r#"{"command":"echo hi"}"#, r#"run echo hi"#),
        (r#"{"command":"echo hi"}"#, r#"argv ["echo","hi"]"#),
        (r#"{"command":["echo","hi"]}"#, r#"argv ["echo","hi"]"#),
        (r#"{"command":["bash","-lc","echo hi"]}"#, r#"argv ["bash","-lc","echo hi"]"#),
        (r#"{"command":"echo","args":["hi"],"cwd":"$ROOT"}"#, r#"argv ["echo","hi"]"#),
        (r#"{"command":"echo hi","cwd":"$ROOT/sub"}"#, r#"run echo hi"#),
        (r#"{"command":"echo hi"}"#, r#"run echo ho"#),
        (r#"{"command":"echo hi"}"#, r#"run echo hi; rm a"#),
        (r#"{"command":"echo 'a b'"}"#, r#"argv ["echo","a","b"]"#),
    ];
    let mut text = String::new();
    for (input, act) in ways {
        let stage = HostFixture::new().with_file("sub/a", "").with_answers(&["yes"]);
        let script = format!(
            "ask {{\"toolCallId\":\"c1\",\"kind\":\"execute\",\"title\":\"Run\",\"rawInput\":{input}}}\n{act}"
        );
        let all = stage.play_turns(&[&script]).await;
        let asked = all.lines().filter(|line| line.starts_with("  ? puppet")).count();
        let done = if all.ends_with("exit 0\n") { "done" } else { "not done" };
        text += &format!("{input} | {act} | questions {asked} | {done}\n");
    }
    expect![[r#"
        {"command":"echo hi"} | run echo hi | questions 1 | done
        {"command":"echo hi"} | argv ["echo","hi"] | questions 1 | done
        {"command":["echo","hi"]} | argv ["echo","hi"] | questions 1 | done
        {"command":["bash","-lc","echo hi"]} | argv ["bash","-lc","echo hi"] | questions 1 | done
        {"command":"echo","args":["hi"],"cwd":"$ROOT"} | argv ["echo","hi"] | questions 1 | done
        {"command":"echo hi","cwd":"$ROOT/sub"} | run echo hi | questions 2 | not done
        {"command":"echo hi"} | run echo ho | questions 2 | not done
        {"command":"echo hi"} | run echo hi; rm a | questions 2 | not done
        {"command":"echo 'a b'"} | argv ["echo","a","b"] | questions 2 | not done
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn a_request_with_only_a_call_id_uses_the_announced_call() {
    check_approved_once(
        r#"
        update {"sessionUpdate":"tool_call","toolCallId":"c1","title":"Greet","kind":"execute","rawInput":{"command":"echo hi"}}
        ask {"toolCallId":"c1"}
        run echo hi
        "#,
        expect![[r#"
            > update {"sessionUpdate":"tool_call","toolCallId":"c1","title":"Greet","kind":"execute","rawInput":{"command":"echo hi"}}
            > ask {"toolCallId":"c1"}
              ? puppet asks: Greet
              ?   run echo hi
              ?   in $ROOT
              ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
            selected once
            > run echo hi
            "hi\n" exit 0
        "#]],
    )
    .await;
}

#[tokio::test]
async fn relative_paths_in_tool_input_start_from_the_cwd() {
    let stage = HostFixture::new();
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","title":"Read","kind":"read","rawInput":{"path":"a.txt"}}
        ask {"toolCallId":"c2","title":"Read","kind":"read","rawInput":{"path":"../a.txt"}}
        ask {"toolCallId":"c3","title":"Read","kind":"read","rawInput":{"path":"~/a.txt"}}
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","title":"Read","kind":"read","rawInput":{"path":"a.txt"}}
            selected once
            > ask {"toolCallId":"c2","title":"Read","kind":"read","rawInput":{"path":"../a.txt"}}
            selected never
            > ask {"toolCallId":"c3","title":"Read","kind":"read","rawInput":{"path":"~/a.txt"}}
            selected never
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_new_request_for_a_call_takes_the_place_of_the_old() {
    let stage = HostFixture::new().with_answers(&["yes", "no"]);
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo ho"}}
        run echo hi
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
              ? puppet asks: Run
              ?   run echo hi
              ?   in $ROOT
              ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
            selected once
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo ho"}}
              ? puppet asks: Run
              ?   run echo ho
              ?   in $ROOT
              ? Asked because `echo ho`: no rule covers it, and preset ask asks before commands
            selected never
            > run echo hi
              ? puppet asks: run echo hi
              ?   run echo hi
              ?   in $ROOT
              ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_approval_ends_with_its_turn() {
    let stage = HostFixture::new().with_answers(&["yes"]);
    let text = stage
        .play_turns(&[
            r#"ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}"#,
            "run echo hi",
        ])
        .await;
    expect![[r#"
        > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
          ? puppet asks: Run
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        selected once
        --
        > run echo hi
          ? puppet asks: run echo hi
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn approval_of_a_part_does_not_cover_losing_the_rest() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"}]}
        write a.txt 2
        read a.txt
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"two","newText":"2"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1,3 +1,3 @@
              ?    one
              ?   -two
              ?   +2
              ?    one
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.txt 2
              ? puppet is about to act, and it is not what was approved: write $ROOT/a.txt
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 3 removed
              ?   @@ -1,3 +1 @@
              ?   -one
              ?   -two
              ?   -one
              ?   +2
              ?   \ No newline at end of file
              ? Asked because no rule covers it, and preset ask asks before writes
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
            > read a.txt
            "one\ntwo\none\n"
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_empty_old_text_hides_nothing_of_a_file_that_is_there() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"","newText":"2"}]}
        write a.txt 2
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"","newText":"2"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 3 removed
              ?   @@ -1,3 +1 @@
              ?   -one
              ?   -two
              ?   -one
              ?   +2
              ?   \ No newline at end of file
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.txt 2
            ok
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_request_for_a_new_file_covers_its_write() {
    check_approved_once(
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/new/b.txt","oldText":"","newText":"2\n"}]}
        write new/b.txt 2\n
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/new/b.txt","oldText":"","newText":"2\n"}]}
              ? puppet asks: Edit
              ?   write $ROOT/new/b.txt
              ?   new file, lines: 1
              ?   @@ -0,0 +1 @@
              ?   +2
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write new/b.txt 2\n
            ok
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_file_that_becomes_a_link_while_it_is_asked_about_is_not_written() {
    for elsewhere in ["outside", "project/b.txt"] {
        let stage = HostFixture::new().with_file("a.txt", "a\n").with_file("b.txt", "b\n");
        let base = stage.lab.base().to_owned();
        std::fs::write(base.join("outside"), "secret\n").unwrap();
        let (its, mut times) = (base.clone(), 0);
        let stage = stage.with_person(move |_| {
            times += 1;
            if times == 1 {
                std::fs::remove_file(its.join("project/a.txt")).unwrap();
                std::os::unix::fs::symlink(its.join(elsewhere), its.join("project/a.txt")).unwrap();
                return QuestionReply::allow();
            }
            QuestionReply::deny()
        });
        let text = stage.play_turns(&["write a.txt new\\n"]).await;
        assert_eq!(std::fs::read_to_string(base.join("outside")).unwrap(), "secret\n");
        assert_eq!(stage.lab.read_file("b.txt").unwrap(), "b\n");
        let expected = match elsewhere {
            "outside" => expect![[r#"
                > write a.txt new\n
                  ? puppet asks: write $ROOT/a.txt
                  ?   write $ROOT/a.txt
                  ?   lines: 1 added, 1 removed
                  ?   @@ -1 +1 @@
                  ?   -a
                  ?   +new
                  ? Asked because no rule covers it, and preset ask asks before writes
                ! -32602 $ROOT/a.txt is outside the session's directories {"reason":"outside","path":"$ROOT/a.txt"}
            "#]],
            _ => expect![[r#"
                > write a.txt new\n
                  ? puppet asks: write $ROOT/a.txt
                  ?   write $ROOT/a.txt
                  ?   lines: 1 added, 1 removed
                  ?   @@ -1 +1 @@
                  ?   -a
                  ?   +new
                  ? Asked because no rule covers it, and preset ask asks before writes
                  ? puppet asks: write $ROOT/a.txt
                  ? ! $ROOT/a.txt leads to $ROOT/b.txt
                  ?   write $ROOT/a.txt (leads to $ROOT/b.txt)
                  ?   lines: 1 added, 1 removed
                  ?   @@ -1 +1 @@
                  ?   -b
                  ?   +new
                  ? Asked because no rule covers it, and preset ask asks before writes
                ! -32030 permission denied: the user said no {"why":"the user said no"}
            "#]],
        };
        expected.assert_eq(&text);
    }
}

#[tokio::test]
async fn a_file_that_is_edited_while_it_is_asked_about_is_shown_again() {
    let stage = HostFixture::new().with_file("a.txt", "a\n");
    let (path, mut times) = (stage.lab.path("a.txt"), 0);
    let stage = stage.with_person(move |_| {
        times += 1;
        if times == 1 {
            std::fs::write(&path, "mine\n").unwrap();
        }
        QuestionReply::allow()
    });
    check(
        &stage,
        "write a.txt new\\n",
        expect![[r#"
        > write a.txt new\n
          ? puppet asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   lines: 1 added, 1 removed
          ?   @@ -1 +1 @@
          ?   -a
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
          ? puppet asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   lines: 1 added, 1 removed
          ?   @@ -1 +1 @@
          ?   -mine
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
        ok
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_file_that_never_rests_is_given_up() {
    let stage = HostFixture::new().with_file("a.txt", "a\n");
    let (path, mut times) = (stage.lab.path("a.txt"), 0);
    let stage = stage.with_person(move |_| {
        times += 1;
        std::fs::write(&path, format!("mine {times}\n")).unwrap();
        QuestionReply::allow()
    });
    let text = stage.play_turns(&["write a.txt new\\n"]).await;
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "mine 3\n");
    expect!["! -32603 $ROOT/a.txt keeps changing, try again"].assert_eq(text.lines().last().unwrap());
}

#[tokio::test]
async fn an_answer_selects_an_option_of_its_kind_or_cancels() {
    let offers = [
        json!([["a", "allow_always"], ["b", "allow_once"], ["c", "reject_once"]]),
        json!([["a", "allow_always"], ["b", "allow_once"], ["c", "reject_always"]]),
        json!([["a", "allow_always"], ["b", "allow_once"]]),
        json!([["a", "allow_always"], ["c", "reject_once"]]),
        json!([["c", "reject_once"]]),
        json!([]),
        json!([["a", "allow_once"], ["a", "reject_once"]]),
        json!([["a", "allow_once"], ["a", "allow_once"], ["c", "reject_once"]]),
        json!([["a", "_later"], ["c", "reject_once"]]),
        json!([["a", "_later"]]),
    ];
    let mut text = String::new();
    let answers = ["yes", "yes session", "no", "no session", "unavailable"];
    let mut replies = answers.into_iter().cycle();
    let stage = HostFixture::new().with_person(move |_| parse_reply(replies.next().unwrap()));
    for offer in offers {
        let options: Vec<Value> = { offer.as_array().unwrap().iter() }
            .map(|pair| json!({"optionId": pair[0], "name": "x", "kind": pair[1]}))
            .collect();
        text += &format!("{offer}:");
        for answer in answers {
            let call = json!({"toolCallId": "c1", "title": "Look", "kind": "other"});
            let options = json!(options);
            stage
                .play_custom_turn(|actor| async move {
                    let outcome = actor.request_permission(call, options).await;
                    actor.record(&outcome);
                    StopReason::EndTurn
                })
                .await
                .lines()
                .filter(|line| !line.starts_with("  ?"))
                .for_each(|line| text += &format!(" {answer}: {line};"));
        }
        text.push('\n');
    }
    expect![[r#"
        [["a","allow_always"],["b","allow_once"],["c","reject_once"]]: yes: selected b; yes session: selected b; no: selected c; no session: selected c; unavailable: selected c;
        [["a","allow_always"],["b","allow_once"],["c","reject_always"]]: yes: selected b; yes session: selected b; no: selected c; no session: selected c; unavailable: selected c;
        [["a","allow_always"],["b","allow_once"]]: yes: selected b; yes session: selected b; no: cancelled; no session: cancelled; unavailable: cancelled;
        [["a","allow_always"],["c","reject_once"]]: yes: selected a; yes session: selected a; no: selected c; no session: selected c; unavailable: selected c;
        [["c","reject_once"]]: yes: selected c; yes session: selected c; no: selected c; no session: selected c; unavailable: selected c;
        []: yes: cancelled; yes session: cancelled; no: cancelled; no session: cancelled; unavailable: cancelled;
        [["a","allow_once"],["a","reject_once"]]: yes: cancelled; yes session: cancelled; no: cancelled; no session: cancelled; unavailable: cancelled;
        [["a","allow_once"],["a","allow_once"],["c","reject_once"]]: yes: selected c; yes session: selected c; no: selected c; no session: selected c; unavailable: selected c;
        [["a","_later"],["c","reject_once"]]: yes: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; yes session: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; no: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; no session: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; unavailable: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115;
        [["a","_later"]]: yes: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; yes session: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; no: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; no session: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115; unavailable: ! -32602 the params of session/request_permission are wrong: expected one of `allow_once`, `allow_always`, `reject_once`, `reject_always` at column 115;
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn the_selected_option_reaches_the_agent() {
    let options = json!([
        {"optionId": "a", "name": "Plan A", "kind": "allow_once"},
        {"optionId": "b", "name": "Plan B: also delete everything", "kind": "allow_once"},
        {"optionId": "c", "name": "Not yet", "kind": "reject_once"},
        {"optionId": "d", "name": "Never", "kind": "reject_always"},
    ]);
    let mut number = 0..;
    let stage = HostFixture::new().with_person(move |question| {
        let offer = &question.selectable_options()[number.next().unwrap()];
        QuestionReply::Answered(QuestionAnswer::from_agent_option(offer))
    });
    let mut text = String::new();
    for _ in 0..4 {
        let call = json!({"toolCallId": "c1", "title": "Ready?", "kind": "switch_mode", "rawInput": {"plan": "all of it"}});
        let options = options.clone();
        text += &stage
            .play_custom_turn(|actor| async move {
                let outcome = actor.request_permission(call, options).await;
                actor.record(&outcome);
                StopReason::EndTurn
            })
            .await;
    }
    let ends: Vec<&str> = text.lines().filter(|line| !line.starts_with("  ?")).collect();
    assert_eq!(ends, ["selected a", "selected b", "selected c", "selected d"], "{text}");
    let first: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("  ? ")).collect();
    expect![[r#"
        puppet asks: Ready?
          a change of its mode in its own words: Ready?
          with │ {
               │   "plan": "all of it"
               │ }
        The agent offers
          1 Plan A (yes)
          2 Plan B: also delete everything (yes)
          3 Not yet (no)
          4 Never (no, always)
        Asked because the agent only describes what it does"#]]
    .assert_eq(&first.join("\n"));
}

#[tokio::test]
async fn a_diff_that_does_not_match_the_file_is_reported() {
    let stage = HostFixture::new().with_file("a.txt", "1\n2\n11\n").with_answers(&["no", "no"]);
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"1\n","newText":"X\n"}]}
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"7\n","newText":"X\n"}]}
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"1\n","newText":"X\n"}]}
              ? puppet asks: Edit
              ? ! $ROOT/a.txt does not have the text that would be replaced, or has it more than once
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1 +1 @@
              ?   -1
              ?   +X
              ? Asked because no rule covers it, and preset ask asks before writes
            selected never
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","oldText":"7\n","newText":"X\n"}]}
              ? puppet asks: Edit
              ? ! $ROOT/a.txt does not have the text that would be replaced, or has it more than once
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -1 +1 @@
              ?   -7
              ?   +X
              ? Asked because no rule covers it, and preset ask asks before writes
            selected never
        "#]],
    )
    .await;
}

#[tokio::test]
async fn the_question_mentions_a_removed_setuid_bit() {
    let stage = HostFixture::new().with_file("a.sh", "1\n").with_answers(&["yes"]);
    std::fs::set_permissions(stage.lab.path("a.sh"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.sh","oldText":"1\n","newText":"2\n"}]}
        write a.sh 2\n
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.sh","oldText":"1\n","newText":"2\n"}]}
              ? puppet asks: Edit
              ? ! the file has setuid or setgid, and runs as its owner or group: the write removes that
              ?   write $ROOT/a.sh
              ?   lines: 1 added, 1 removed
              ?   @@ -1 +1 @@
              ?   -1
              ?   +2
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > write a.sh 2\n
            {"_meta":{"bowline":{"notes":["the file had setuid or setgid, which the write removed"],"kept":[]}}}
        "#]],
    )
    .await;
}

/// Makes the user never answer.
fn with_silent_person(stage: HostFixture) -> HostFixture {
    stage.lab.user.answer_with_async(|_| Box::pin(std::future::pending()));
    stage
}

#[tokio::test]
async fn a_cancelled_turn_cancels_every_question_of_it() {
    let stage = with_silent_person(HostFixture::new().with_file("a.txt", "a\n"));
    let act = stage.custom_turn(|actor| async move {
        let call = |id| json!({"toolCallId": id, "title": "Look", "kind": "other"});
        let (one, two, write, run) = tokio::join!(
            actor.request_permission(call("c1"), permission_options()),
            actor.request_permission(call("c2"), permission_options()),
            actor.call_text("fs/write_text_file", json!({"path": "$ROOT/a.txt", "content": "b"})),
            actor.call_text("terminal/create", json!({"command": "echo hi"})),
        );
        // Requests after the cancellation do not reach the user.
        let late = actor.request_permission(call("c3"), permission_options()).await;
        [one, two, write, run, late].iter().for_each(|answer| actor.record(answer));
        StopReason::Cancelled
    });
    let (connection, session) = stage.open_session(vec![act]).await;
    let cancel = async {
        stage.lab.user.wait_until(|asked, _| asked.len() == 4).await;
        session.cancel();
    };
    let (end, ()) = tokio::join!(session.prompt_text("go"), cancel);
    assert_eq!(end.unwrap().stop_reason, StopReason::Cancelled);
    connection.close_session(&session).await.unwrap();
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a\n");
    assert_eq!(stage.lab.user.questions().len(), 4);
    expect![[r#"
        cancelled
        cancelled
        ! -32800 Request cancelled
        ! -32800 Request cancelled
        cancelled
    "#]]
    .assert_eq(&stage.take_text());
    let log = stage.audit_table();
    let mut log: Vec<&str> = log.lines().collect();
    log.sort_unstable();
    expect![[r#"
        fs/write $ROOT/a.txt turn 1: cancelled by nobody (request cancelled)
        permission Text("Look") turn 1 call c1: cancelled by nobody
        permission Text("Look") turn 1 call c2: cancelled by nobody
        permission Text("Look") turn 1 call c3: cancelled by nobody
        session/end: allowed by nobody
        session/start: allowed by nobody
        terminal/create Command { line: "echo hi", cwd: "$ROOT", env: [] } turn 1: cancelled by nobody (request cancelled)
        turn/end turn 1: cancelled by nobody (Cancelled)
        turn/start turn 1: allowed by nobody"#]].assert_eq(&log.join("\n"));
}

#[tokio::test]
async fn an_approval_is_void_once_its_turn_is_cancelled() {
    let stage = HostFixture::new().with_answers(&["yes"]);
    let (asked, was_asked) = tokio::sync::oneshot::channel();
    let act = stage.custom_turn(move |actor| async move {
        let call = json!({"toolCallId": "c1", "title": "Run", "kind": "execute", "rawInput": {"command": "echo hi"}});
        actor.record(&actor.request_permission(call, permission_options()).await);
        asked.send(()).unwrap();
        actor.turn.cx.cancelled().await;
        actor.record(&actor.run_command(json!({"command": "echo hi"})).await);
        StopReason::Cancelled
    });
    let (connection, session) = stage.open_session(vec![act, stage.scripted_turn("run echo hi")]).await;
    let cancel = async {
        was_asked.await.unwrap();
        session.cancel();
    };
    let (end, ()) = tokio::join!(session.prompt_text("go"), cancel);
    end.unwrap();
    session.prompt_text("go").await.unwrap();
    connection.close_session(&session).await.unwrap();
    expect![[r#"
          ? puppet asks: Run
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        selected once
        ! -32800 Request cancelled
        > run echo hi
          ? puppet asks: run echo hi
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
    "#]].assert_eq(&stage.take_text());
}

#[tokio::test]
async fn a_request_that_the_agent_takes_back_is_answered_as_cancelled() {
    let stage = with_silent_person(HostFixture::new().with_file("a.txt", "a\n"));
    let desk = stage.lab.user.clone();
    stage
        .play_custom_turn(move |actor| async move {
            let call = json!({"toolCallId": "c1", "title": "Look", "kind": "other"});
            let asking = actor.request_permission(call, permission_options());
            tokio::select! {
                answer = asking => panic!("{answer}"),
                () = desk.wait_until(|asked, _| asked.len() == 1) => {}
            }
            let writing =
                actor.call_text("fs/write_text_file", json!({"path": "$ROOT/a.txt", "content": "b"}));
            tokio::select! {
                answer = writing => panic!("{answer}"),
                () = desk.wait_until(|asked, _| asked.len() == 2) => {}
            }
            // The response to a later request shows that the earlier ones were cancelled, because it comes after
            // theirs.
            actor.record(&actor.call_text("fs/read_text_file", json!({"path": "$ROOT/a.txt"})).await);
            StopReason::EndTurn
        })
        .await;
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a\n");
    let log = stage.audit_table();
    let cancelled: Vec<&str> = log.lines().filter(|line| line.contains("cancelled")).collect();
    expect![[r#"
        permission Text("Look") turn 1 call c1: cancelled by nobody (request cancelled)
        fs/write $ROOT/a.txt turn 1: cancelled by nobody (request cancelled)"#]]
    .assert_eq(&cancelled.join("\n"));
}

#[tokio::test]
async fn a_lasting_answer_applies_to_waiting_questions() {
    for (keep, next_turn, file) in [
        ("turn", "asked", false),
        ("session", "not asked", false),
        ("project", "not asked", true),
        ("always", "not asked", true),
    ] {
        let stage = HostFixture::new();
        let (sender, release) = tokio::sync::watch::channel(false);
        let mut times = 0;
        stage.lab.user.answer_with_async(move |_| {
            times += 1;
            let (mut release, number) = (release.clone(), times);
            Box::pin(async move {
                if number != 1 {
                    std::future::pending::<()>().await;
                }
                release.wait_for(|go| *go).await.unwrap();
                parse_reply(&format!("yes {keep}"))
            })
        });
        let act = stage.custom_turn(|actor| async move {
            let run = || actor.run_command(json!({"command": "echo hi"}));
            let (one, two) = tokio::join!(run(), run());
            assert_eq!((one.as_str(), two.as_str()), (r#""hi\n" exit 0"#, r#""hi\n" exit 0"#));
            StopReason::EndTurn
        });
        let (connection, session) = stage.open_session(vec![act, stage.scripted_turn("run echo hi")]).await;
        let desk = stage.lab.user.clone();
        let wait = async {
            desk.wait_until(|asked, _| asked.len() == 2).await;
            sender.send(true).unwrap();
        };
        let (end, ()) = tokio::join!(session.prompt_text("go"), wait);
        end.unwrap();
        tokio::select! {
            end = session.prompt_text("go") => { end.unwrap(); assert_eq!(next_turn, "not asked", "{keep}"); }
            () = desk.wait_until(|asked, _| asked.len() == 3) => assert_eq!(next_turn, "asked", "{keep}"),
        }
        connection.close_session(&session).await.unwrap();
        let rules = std::fs::read_to_string(stage.lab.paths().policy).unwrap_or_default();
        assert_eq!(rules.contains("echo"), file, "{keep}: {rules}");
    }
}

#[tokio::test]
async fn a_rule_that_denies_beats_an_approval() {
    let stage = HostFixture::new();
    let policy = stage.lab.paths().policy;
    stage.lab.write_rules("preset = \"ask\"\n").unwrap();
    let stage = stage.with_person(move |_| {
        std::fs::write(&policy, "[[rules]]\neffect = \"deny\"\ncommand = \"echo\"\n").unwrap();
        QuestionReply::allow()
    });
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
        run echo hi
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
              ? puppet asks: Run
              ?   run echo hi
              ?   in $ROOT
              ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
            selected never
            > run echo hi
            ! -32030 permission denied: a rule of the user's denies it {"why":"a rule of the user's denies it"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_rule_that_denies_later_voids_what_was_approved() {
    let stage = HostFixture::new().with_answers(&["yes"]);
    stage.lab.write_rules("preset = \"ask\"\n").unwrap();
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
        put $BASE/config/policy.toml [[rules]]\neffect = "deny"\ncommand = "echo"\n
        run echo hi
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
              ? puppet asks: Run
              ?   run echo hi
              ?   in $ROOT
              ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
            selected once
            > put $BASE/config/policy.toml [[rules]]\neffect = "deny"\ncommand = "echo"\n
            > run echo hi
            ! -32030 permission denied: a rule of the user's denies it {"why":"a rule of the user's denies it"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn without_a_person_and_a_rule_nothing_is_done() {
    let stage = HostFixture::new().with_file("a.txt", "a\n");
    check(
        &stage,
        r#"
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
        run echo hi
        write a.txt b
        read a.txt
        read .env
        "#,
        expect![[r#"
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
            selected never
            > run echo hi
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
            > write a.txt b
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
            > read a.txt
            "a\n"
            > read .env
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_flood_of_requests_is_refused_as_busy_and_others_are_served() {
    const FLOOD: usize = 10_000;
    let stage = with_silent_person(HostFixture::new().with_file("a.txt", "a\n"));
    let act = stage.custom_turn(|actor| async move {
        let mut asking = tokio::task::JoinSet::new();
        let mut refused = 0;
        for number in 0..FLOOD {
            let actor = actor.clone();
            asking.spawn(async move {
                actor
                    .request_permission(
                        json!({"toolCallId": format!("c{number}"), "title": "x", "kind": "other"}),
                        permission_options(),
                    )
                    .await
            });
            // The maximum of concurrent requests in a connection.
            while asking.len() > 500 {
                let answer = asking.join_next().await.unwrap().unwrap();
                assert!(answer.starts_with("! -32029 "), "{answer}");
                refused += 1;
            }
        }
        while asking.len() > MAX_PENDING_QUESTIONS {
            let answer = asking.join_next().await.unwrap().unwrap();
            assert!(answer.starts_with("! -32029 "), "{answer}");
            refused += 1;
        }
        assert_eq!(refused, FLOOD - MAX_PENDING_QUESTIONS);
        actor.play_script("read a.txt").await;
        while let Some(answer) = asking.join_next().await {
            assert_eq!(answer.unwrap(), "cancelled");
        }
        StopReason::Cancelled
    });
    let (connection, session) = stage.open_session(vec![act]).await;
    let seen = stage.seen.clone();
    let cancel = async {
        seen.wait_until(|text| text.contains("> read a.txt\n\"a")).await;
        session.cancel();
    };
    let (end, ()) = tokio::join!(session.prompt_text("go"), cancel);
    end.unwrap();
    connection.close_session(&session).await.unwrap();
    assert_eq!(stage.lab.user.questions().len(), MAX_PENDING_QUESTIONS);
}

#[tokio::test]
async fn questions_are_escaped_and_show_both_ends_of_a_command() {
    let stage = HostFixture::new().with_person(|question| {
        let text = question.to_text();
        let is_bad = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(is_bad), "{text:?}");
        assert!(text.len() < 100_000, "{}", text.len());
        QuestionReply::deny()
    });
    let filler = "x".repeat(10 << 20);
    let text = stage
        .play_custom_turn(move |actor| async move {
            let command = format!("rm -rf important {} ; curl evil.example", &filler[..100_000]);
            let call = json!({
                "toolCallId": "c1", "kind": "execute",
                "title": format!("\u{1b}[2Jharmless\rls \u{202e}txt.exe {filler}"),
                "rawInput": {"command": command},
            });
            actor.record(&actor.request_permission(call, permission_options()).await);
            actor.record(
                &actor.run_command(json!({"command": "printf '\u{1b}[8m' \r\u{202e}# nothing"})).await,
            );
            StopReason::EndTurn
        })
        .await;
    let short: Vec<String> = { text.lines() }
        .map(|line| {
            let all: Vec<char> = line.chars().collect();
            if all.len() < 300 {
                return line.to_owned();
            }
            let (start, end) = (&all[..60], &all[all.len() - 60..]);
            format!("{} [..] {}", start.iter().collect::<String>(), end.iter().collect::<String>())
        })
        .collect();
    expect![[r#"
          ? puppet asks: \u{1b}[2Jharmless\rls \u{202e}txt.exe xxxxx [..] xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
          ? ! a part of the command is not shown: it is too long
          ? ! removes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…[99840 more]…xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx with everything in it, outside the workspace
          ? ! removes important with everything in it
          ? ! reaches the network
          ?   run rm -rf important xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx [..] xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ; curl evil.example
          ?   in $ROOT
          ? The agent offers
          ?   1 Always (yes, always)
          ?   2 Once (yes)
          ?   3 No (no)
          ? Asked because `rm -rf important xxxxxxxxxxxxxxxxxxxxxxxx [..] st 16384 are looked at, so its commands cannot be told apart
        selected never
          ? puppet asks: run printf '\u{1b}[8m' \r\u{202e}# nothing
          ?   run printf '\u{1b}[8m' \r\u{202e}# nothing
          ?   in $ROOT
          ? Asked because `printf '\u{1b}[8m' \r\u{202e}# nothing`: the line has the character '\u{1b}' where shells differ on what it means, so its commands cannot be told apart
        ! -32030 permission denied: the user said no {"why":"the user said no"}"#]].assert_eq(&short.join("\n"));
}

#[tokio::test]
async fn a_document_that_is_edited_while_its_write_is_asked_about_is_not_overwritten() {
    let stage = HostFixture::new().with_file("a.txt", "a\n");
    let (workspace, path) = (stage.lab.host.workspace().clone(), stage.lab.path("a.txt"));
    let revision = workspace.open_document(&path).unwrap().revision;
    let (its, its_path, mut times) = (workspace.clone(), path.clone(), 0);
    let stage = stage.with_person(move |_| {
        times += 1;
        if times > 1 {
            return QuestionReply::deny();
        }
        its.change_document(&its_path, "unsaved\n".to_owned(), revision).unwrap();
        QuestionReply::allow()
    });
    check(&stage, "write a.txt new\\n", expect![[r#"
        > write a.txt new\n
          ? puppet asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   lines: 1 added, 1 removed
          ?   @@ -1 +1 @@
          ?   -a
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
        ! -32602 $ROOT/a.txt: the text was changed since this session read it, and both changes touch the same lines: read it again {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"a\n","ours":"unsaved\n","theirs":"new\n"}]}
    "#]]).await;
    assert_eq!(workspace.document(&path).unwrap().unwrap().text.as_str(), "unsaved\n");
}

#[tokio::test]
async fn a_file_replaced_during_the_question_is_not_read() {
    let stage = HostFixture::new().with_file(".env", "shown\n").with_file("id_rsa", "private\n");
    let project = stage.lab.base().join("project");
    let stage = stage.with_person(move |_| {
        std::fs::remove_file(project.join(".env")).unwrap();
        std::os::unix::fs::symlink("id_rsa", project.join(".env")).unwrap();
        QuestionReply::allow()
    });
    check(
        &stage,
        "read .env",
        expect![[r#"
            > read .env
              ? puppet asks: read $ROOT/.env
              ? ! holds secrets ($ROOT/.env)
              ?   read $ROOT/.env
              ? Asked because it holds secrets; only a rule that names it allows it
            ! -32602 $ROOT/.env is another file than the one that was approved: nothing was read, ask again
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_while_a_command_is_asked_about_is_not_followed() {
    let stage = HostFixture::new().with_file("sub/here", "");
    let base = stage.lab.base().to_owned();
    let its = base.clone();
    let stage = stage.with_person(move |_| {
        std::fs::rename(its.join("project/sub"), its.join("project/moved")).unwrap();
        std::os::unix::fs::symlink(&its, its.join("project/sub")).unwrap();
        QuestionReply::allow()
    });
    let text = stage
        .play_custom_turn(|actor| async move {
            actor.record(&actor.run_command(json!({"command": "touch ran; ls", "cwd": "$ROOT/sub"})).await);
            StopReason::EndTurn
        })
        .await;
    assert!(!base.join("ran").exists());
    expect![[r#"
          ? puppet asks: run touch ran; ls
          ?   run touch ran; ls
          ?   in $ROOT/sub
          ? Asked because `touch ran`: no rule covers it, and preset ask asks before commands
        ! -32602 $ROOT/sub is another directory by now: ask again
    "#]]
    .assert_eq(&text);
}
