//! Tests of the quirk table: which peers it matches, and its log lines.

use std::ffi::OsStr;

use agent_client_protocol_schema::v1::Implementation;
use expect_test::expect;

use super::{PeerRole, QUIRKS, Quirk, QuirkMode, Workaround, misplaced_client_info};

#[test]
fn a_peer_is_found_by_its_role_name_and_workaround() {
    let gemini = Implementation::new("gemini-cli", "0.61.0");
    let find = |mode, role, peer| {
        let found = Quirk::find(mode, role, peer, Workaround::EmptyTextForMissingFile);
        found.map(|quirk| quirk.name)
    };
    assert_eq!(find(QuirkMode::On, PeerRole::Agent, Some(&gemini)), Some("gemini-cli"));
    assert_eq!(find(QuirkMode::Off, PeerRole::Agent, Some(&gemini)), None);
    assert_eq!(find(QuirkMode::On, PeerRole::Client, Some(&gemini)), None);
    assert_eq!(find(QuirkMode::On, PeerRole::Agent, None), None);
    let other = Implementation::new("gemini", "0.61.0");
    assert_eq!(find(QuirkMode::On, PeerRole::Agent, Some(&other)), None);
    let content =
        Quirk::find(QuirkMode::On, PeerRole::Agent, Some(&gemini), Workaround::MissingFileForNoContent);
    assert_eq!(content, None);
}

#[test]
fn a_log_line_says_what_is_done_for_whom_and_why() {
    let lines: Vec<_> = QUIRKS.iter().map(|quirk| quirk.log_line("/w/a\n.txt")).collect();
    expect![[r#"
        /w/a\n.txt: a missing file is read as empty text for gemini-cli: it reads a file before it creates it, and gives up on any error (BOWLINE_NO_QUIRKS=1 turns this off)
        /w/a\n.txt: an answer without content is taken for a missing file for Agentic.nvim: it answers with a result that has no content where it cannot open a file (BOWLINE_NO_QUIRKS=1 turns this off)
        /w/a\n.txt: empty text is taken for a missing file for toad: it answers with empty text where it cannot open a file (BOWLINE_NO_QUIRKS=1 turns this off)
        /w/a\n.txt: empty text is taken for a missing file for CodeCompanion.nvim: it answers with empty text where there is no file (BOWLINE_NO_QUIRKS=1 turns this off)"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn the_variable_turns_the_table_off_unless_it_is_empty() {
    assert_eq!(QuirkMode::from_variable(None), QuirkMode::On);
    assert_eq!(QuirkMode::from_variable(Some(OsStr::new(""))), QuirkMode::On);
    assert_eq!(QuirkMode::from_variable(Some(OsStr::new("1"))), QuirkMode::Off);
}

#[test]
fn a_name_among_the_capabilities_is_read() {
    let info = misplaced_client_info(
        r#"{"protocolVersion":1,"clientCapabilities":{"clientInfo":{"name":"Agentic.nvim","version":"0.0.1"}}}"#,
    );
    assert_eq!(info, Some(Implementation::new("Agentic.nvim", "0.0.1")));
    assert_eq!(misplaced_client_info(r#"{"clientCapabilities":{"clientInfo":7}}"#), None);
    assert_eq!(misplaced_client_info("{}"), None);
}
