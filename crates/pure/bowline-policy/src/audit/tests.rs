//! Tests of sealing and parsing lines.

use super::*;
use crate::operation::{CommandSpec, OperationTarget};
use bowline_protocol::terminal::Invocation;
use expect_test::expect;
use proptest::prelude::*;

fn full_entry() -> AuditEntry {
    let mut entry = AuditEntry::new(Timestamp(1_700_000_000_000), AuditAction::TerminalCreate);
    entry.principal = Some("laptop".to_owned());
    entry.session = Some("s1".to_owned());
    entry.turn = Some(3);
    entry.call = Some("call-7".to_owned());
    entry.subject = AuditSubject::from(&OperationTarget::Command(CommandSpec {
        invocation: Invocation::Argv(
            ["curl", "--token", "hunter2", "https://me:pw@example.org"].map(str::to_owned).into(),
        ),
        cwd: "/project".to_owned(),
        env: vec![("API_KEY".to_owned(), "hunter2".to_owned())],
        named_paths: Vec::new(),
    }));
    entry.decision = AuditDecision::Denied;
    entry.decided_by = DecisionSource::Rule("deny execute curl".to_owned());
    entry.reason = Some("two\nlines, password=hunter2".to_owned());
    entry.latency_us = Some(120);
    entry.before = Some(ContentHash::digest(b"before"));
    entry.after = Some(ContentHash::digest(b"after"));
    entry.bytes = Some(5);
    entry.exit = Some("SIGTERM".to_owned());
    entry
}

#[test]
fn a_line_has_every_field_and_no_secret() {
    let mut chain = ChainHead::EMPTY;
    let first = chain.seal_entry(&AuditEntry::new(Timestamp(1), AuditAction::SessionStart));
    let second = chain.seal_entry(&full_entry());
    expect![[r#"
        {"seq":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","at":1,"operation":"session/start","decision":"allowed","by":"nobody","hash":"6e6bdbb8d5ca0ba108e6cf2b78c26523487836dec577b0c48e83fade78e661fe"}
        {"seq":2,"prev":"6e6bdbb8d5ca0ba108e6cf2b78c26523487836dec577b0c48e83fade78e661fe","at":1700000000000,"principal":"laptop","session":"s1","turn":3,"call":"call-7","operation":"terminal/create","command":"curl --token [redacted] https://me:[redacted]@example.org","cwd":"/project","env":["API_KEY"],"decision":"denied","by":"rule: deny execute curl","reason":"two\nlines, password=[redacted]","latency_us":120,"before":"6db7d803e74f1ffa7d8f5adc0bf95b3e15bf4c8373fffadf546227cc6c6742cb","after":"f39592393ef0859cb196a52693d2cea00fb2df784b3c04ae54aa7cadb8e562f8","bytes":5,"exit":"SIGTERM","hash":"bafd82b7e263801027d73461b5fd946e87874003aabfd289b5cf8099001f1585"}"#]].assert_eq(&format!("{first}\n{second}"));
    let read = AuditRecord::parse(second.as_bytes()).unwrap();
    assert_eq!((read.seq, read.entry.decided_by), (2, full_entry().decided_by));
}

#[test]
fn fields_and_words_of_later_versions_are_read_over_and_verified() {
    let mut chain = ChainHead::EMPTY;
    let mut entry = AuditEntry::new(Timestamp(1), AuditAction::Other("quantum/leap".to_owned()));
    entry.decision = AuditDecision::Other("maybe".to_owned());
    entry.decided_by = DecisionSource::Other("oracle".to_owned());
    let line = chain.seal_entry(&entry);
    assert_eq!(AuditRecord::parse(line.as_bytes()).unwrap().entry, entry);
    let added = line.replace("\"by\":\"oracle\"", "\"by\":\"oracle\",\"new\":[1,2]");
    assert_eq!(AuditRecord::parse(added.as_bytes()).unwrap().entry, entry);
    assert!(!ChainLink::parse(added.as_bytes()).unwrap().is_intact);
}

#[test]
fn the_longest_entry_fits_into_a_line() {
    let long = "\u{1}".repeat(1_000_000);
    let mut entry = full_entry();
    entry.session = Some(long.clone());
    entry.call = Some(long.clone());
    entry.action = AuditAction::Other(long.clone());
    entry.decision = AuditDecision::Other(long.clone());
    entry.decided_by = DecisionSource::Rule(long.clone());
    entry.reason = Some(long.clone());
    entry.exit = Some(long.clone());
    entry.subject = AuditSubject::Command { line: long.clone(), cwd: long.clone(), env: vec![long; 1000] };
    let line = ChainHead::EMPTY.clone().seal_entry(&entry);
    assert!(line.len() < MAX_LINE_BYTES, "{}", line.len());
    assert!(ChainLink::parse(line.as_bytes()).unwrap().is_intact);
}

#[test]
fn an_anchor_is_read_only_as_it_was_written() {
    let anchor = AuditAnchor {
        head: ChainHead { seq: u64::MAX, hash: ContentHash::digest(b"x") },
        first_seq: u64::MAX,
        first_prev: ContentHash::digest(b"y"),
        file_number: u64::MAX,
        file_bytes: u64::MAX,
    };
    let text = anchor.encode();
    assert_eq!(text.len(), AuditAnchor::ENCODED_LEN);
    assert_eq!(AuditAnchor::decode(text.as_bytes()), Ok(anchor));
    for at in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        assert!(AuditAnchor::decode(&changed) != Ok(anchor), "byte {at}");
    }
    assert_eq!(AuditAnchor::decode(&text.as_bytes()[..100]), Err(ParseAnchorError));
    assert_eq!(AuditAnchor::decode(b""), Err(ParseAnchorError));
}

#[test]
fn findings_are_bounded() {
    let mut verifier = AuditVerifier::new(None);
    verifier.start_file("log");
    (0..1000).for_each(|_| verifier.verify_line(b"nonsense", true));
    let report = verifier.finish();
    assert_eq!((report.findings.len(), report.omitted_findings), (MAX_FINDINGS, 901));
}

proptest! {
    #[test]
    fn a_sealed_line_is_one_line_and_comes_back(texts in prop::collection::vec(any::<String>(), 4)) {
        let mut chain = ChainHead::EMPTY;
        let mut entry = AuditEntry::new(Timestamp(-1), AuditAction::Read);
        entry.session = Some(texts[0].clone());
        entry.subject = AuditSubject::Path { requested: texts[1].clone(), resolved: Some(texts[2].clone()) };
        entry.call = Some(texts[3].clone());
        let line = chain.seal_entry(&entry);
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(AuditRecord::parse(line.as_bytes()).unwrap().entry, entry);
        prop_assert_eq!(ChainHead::EMPTY.next_head(line.as_bytes()), Some(chain));
    }

    #[test]
    fn any_lines_are_verified(lines in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
        let mut verifier = AuditVerifier::new(Some(AuditAnchor::EMPTY));
        verifier.start_file("log");
        lines.iter().for_each(|line| verifier.verify_line(line, true));
        prop_assert_eq!(verifier.finish().is_intact(), lines.is_empty());
    }
}
