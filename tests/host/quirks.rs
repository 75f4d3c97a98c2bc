//! Agents with known bugs, as the table of quirks lists them.

use bowline_host::{HostOptions, SessionOptions};
use bowline_policy::policy::Preset;
use bowline_protocol::quirks::QuirkMode;
use bowline_protocol::schema::v1::{
    Error, Implementation, ReadTextFileRequest, StopReason, WriteTextFileRequest,
};
use bowline_wire::CallError;
use expect_test::{Expect, expect};
use test_support::host_harness::{AgentTurn, HostHarness, PuppetAgent, turn_script};

use super::SUPERVISOR;

async fn try_read_file(turn: &AgentTurn, path: &str) -> String {
    match turn.client.read_text_file(ReadTextFileRequest::new(turn.session.clone(), path)).await {
        Ok(read) => format!("{:?}", read.content),
        Err(error) => error_text(error),
    }
}

async fn try_write_file(turn: &AgentTurn, path: &str, text: &str) -> String {
    match turn.client.write_text_file(WriteTextFileRequest::new(turn.session.clone(), path, text)).await {
        Ok(_) => "written".to_owned(),
        Err(error) => error_text(error),
    }
}

fn error_text(error: CallError) -> String {
    match error {
        CallError::ErrorResponse(Error { message, .. }) => message,
        other => other.to_string(),
    }
}

/// Makes an agent read a missing file and write it, and do the same with a file that appears in between.
async fn check(agent: &str, set: impl FnOnce(&mut HostOptions), expected: Expect) {
    let lab = HostHarness::open(SUPERVISOR, |settings| {
        settings.preset = Some(Preset::Full);
        set(settings);
    })
    .unwrap();
    let (new, deep, appears) = (lab.path("new.txt"), lab.path("deep/er/new.txt"), lab.path("appears.txt"));
    let (tell, told) = tokio::sync::oneshot::channel();
    let act = turn_script(move |turn: AgentTurn| async move {
        let mut lines =
            vec![try_read_file(&turn, &new).await, try_write_file(&turn, &new, "created\n").await];
        lines.push(try_read_file(&turn, &new).await);
        lines.push(try_read_file(&turn, &deep).await);
        lines.push(try_write_file(&turn, &deep, "deep\n").await);
        lines.push(try_read_file(&turn, &appears).await);
        std::fs::write(&appears, "the user's\n").unwrap();
        lines.push(try_write_file(&turn, &appears, "the agent's\n").await);
        lines.push(try_read_file(&turn, &appears).await);
        tell.send(lines.join("\n")).unwrap();
        Ok(StopReason::EndTurn)
    });
    let puppet = PuppetAgent::new(vec![act]).with_info(Implementation::new(agent, "0.61.0"));
    let connection = lab.connect_agent(puppet).await.unwrap();
    let session = connection.new_session(SessionOptions::default()).await.unwrap();
    session.prompt_text("go").await.unwrap();
    let mut told = told.await.unwrap();
    for record in lab.audit_records().unwrap() {
        if let Some(reason) = record.entry.reason.filter(|reason| reason.contains("missing file")) {
            told += &format!("\n{}: {reason}", record.entry.decision);
        }
    }
    expected.assert_eq(&told.replace(&lab.path(""), "$ROOT/"));
    assert_eq!(lab.read_file("appears.txt").unwrap(), "the user's\n");
}

#[tokio::test]
async fn gemini_creates_files_and_replaces_none_that_appear_meanwhile() {
    check("gemini-cli", |_| {}, expect![[r#"
        ""
        written
        "created\n"
        ""
        written
        ""
        $ROOT/appears.txt: the text was changed since this session read it, and both changes touch the same lines: read it again
        "the user's\n"
        failed: resource not found: $ROOT/new.txt: a missing file is read as empty text for gemini-cli: it reads a file before it creates it, and gives up on any error (BOWLINE_NO_QUIRKS=1 turns this off)
        failed: resource not found: $ROOT/deep/er/new.txt: a missing file is read as empty text for gemini-cli: it reads a file before it creates it, and gives up on any error (BOWLINE_NO_QUIRKS=1 turns this off)
        failed: resource not found: $ROOT/appears.txt: a missing file is read as empty text for gemini-cli: it reads a file before it creates it, and gives up on any error (BOWLINE_NO_QUIRKS=1 turns this off)"#]]).await;
}

#[tokio::test]
async fn without_the_table_a_missing_file_is_an_error() {
    check("gemini-cli", |settings| settings.quirk_mode = QuirkMode::Off, expect![[r#"
        Resource not found: $ROOT/new.txt
        written
        "created\n"
        Resource not found: $ROOT/deep/er/new.txt
        written
        Resource not found: $ROOT/appears.txt
        $ROOT/appears.txt: the text was changed since this session read it, and both changes touch the same lines: read it again
        "the user's\n""#]]).await;
}

#[tokio::test]
async fn for_other_agents_a_missing_file_is_an_error() {
    check("puppet", |_| {}, expect![[r#"
        Resource not found: $ROOT/new.txt
        written
        "created\n"
        Resource not found: $ROOT/deep/er/new.txt
        written
        Resource not found: $ROOT/appears.txt
        $ROOT/appears.txt: the text was changed since this session read it, and both changes touch the same lines: read it again
        "the user's\n""#]]).await;
}
