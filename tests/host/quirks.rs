//! Agents with a known fault, as the table of quirks has them.

use bowline_host::{SessionOptions, Settings};
use bowline_state::policy::Preset;
use bowline_state::quirks::QuirkMode;
use bowline_state::schema::v1::{
    Error, Implementation, ReadTextFileRequest, StopReason, WriteTextFileRequest,
};
use bowline_wire::CallError;
use expect_test::{Expect, expect};
use test_support::lab::{Lab, Puppet, Turn, boxed};

use super::SUPERVISOR;

async fn read(turn: &Turn, path: &str) -> String {
    match turn.client.read_text_file(ReadTextFileRequest::new(turn.session.clone(), path)).await {
        Ok(read) => format!("{:?}", read.content),
        Err(error) => refused(error),
    }
}

async fn write(turn: &Turn, path: &str, text: &str) -> String {
    match turn.client.write_text_file(WriteTextFileRequest::new(turn.session.clone(), path, text)).await {
        Ok(_) => "written".to_owned(),
        Err(error) => refused(error),
    }
}

fn refused(error: CallError) -> String {
    match error {
        CallError::Refused(Error { message, .. }) => message,
        other => other.to_string(),
    }
}

/// Lets an agent read a file that is missing and write it; and one that appears between the two.
async fn check(agent: &str, set: impl FnOnce(&mut Settings), expected: Expect) {
    let lab = Lab::open(SUPERVISOR, |settings| {
        settings.preset = Some(Preset::Full);
        set(settings);
    })
    .unwrap();
    let (new, deep, appears) = (lab.path("new.txt"), lab.path("deep/er/new.txt"), lab.path("appears.txt"));
    let (tell, told) = tokio::sync::oneshot::channel();
    let act = boxed(move |turn: Turn| async move {
        let mut lines = vec![read(&turn, &new).await, write(&turn, &new, "created\n").await];
        lines.push(read(&turn, &new).await);
        lines.push(read(&turn, &deep).await);
        lines.push(write(&turn, &deep, "deep\n").await);
        lines.push(read(&turn, &appears).await);
        std::fs::write(&appears, "the user's\n").unwrap();
        lines.push(write(&turn, &appears, "the agent's\n").await);
        lines.push(read(&turn, &appears).await);
        tell.send(lines.join("\n")).unwrap();
        Ok(StopReason::EndTurn)
    });
    let puppet = Puppet::new(vec![act]).named(Implementation::new(agent, "0.61.0"));
    let connection = lab.connect_agent(puppet).await.unwrap();
    let session = connection.new_session(SessionOptions::default()).await.unwrap();
    session.prompt_text("go").await.unwrap();
    let mut told = told.await.unwrap();
    for record in lab.log().unwrap() {
        if let Some(reason) = record.entry.reason.filter(|reason| reason.contains("missing file")) {
            told += &format!("\n{}: {reason}", record.entry.decision);
        }
    }
    expected.assert_eq(&told.replace(&lab.path(""), "$ROOT/"));
    assert_eq!(lab.get("appears.txt").unwrap(), "the user's\n");
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
    check("gemini-cli", |settings| settings.quirks = QuirkMode::Off, expect![[r#"
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
