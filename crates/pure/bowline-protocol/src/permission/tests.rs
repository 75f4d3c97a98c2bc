//! Tests of permission requests and answers, as data.

use super::*;
use agent_client_protocol_schema::v1::{ToolCallStatus, ToolCallUpdateFields};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

fn tracker() -> ToolCallTracker {
    let mut tracker = ToolCallTracker::new();
    let edit =
        |id| builders::start_edit(id, "Edit it", "/a", "new").content(vec![builders::text("old content")]);
    tracker.start("edit", edit).unwrap();
    tracker.start("bare", |id| builders::start_tool_call(id, "Think")).unwrap();
    tracker
        .start("done", |id| builders::start_tool_call(id, "Done").status(ToolCallStatus::Completed))
        .unwrap();
    tracker
}

fn check_request(requests: Vec<Result<RequestPermissionRequest, PermissionRequestError>>, expected: Expect) {
    let mut text = String::new();
    for request in requests {
        match request {
            Ok(request) => writeln!(text, "{}", serde_json::to_string(&request).unwrap()).unwrap(),
            Err(error) => writeln!(text, "! {error}").unwrap(),
        }
    }
    expected.assert_eq(&text);
}

/// Makes options from `id:kind` words.
fn options(words: &str) -> Vec<PermissionOption> {
    let option = |word: &str| {
        let (id, kind) = word.split_once(':').unwrap();
        let kind = serde_json::from_value(kind.into()).unwrap();
        PermissionOption::new(id.to_owned(), format!("Option {id}"), kind)
    };
    words.split_whitespace().map(option).collect()
}

#[test]
fn a_request_describes_the_tracked_call_and_offers_the_default_options() {
    let broker = PermissionBroker::new("s1");
    let ask = PermissionRequestDetails {
        description: Some("It changes the settings.".to_owned()),
        content: vec![builders::diff("/a", Some("old"), "new")],
        ..PermissionRequestDetails::default()
    };
    check_request(
        vec![
            broker.build_request_for(&tracker(), "edit", PermissionRequestDetails::default()),
            broker.build_request_for(&tracker(), "edit", ask.clone()),
            broker.build_request_for(&tracker(), "bare", ask),
            broker.build_request_for(&tracker(), "bare", PermissionRequestDetails::default()),
        ],
        expect![[r#"
            {"sessionId":"s1","toolCall":{"toolCallId":"call_1","kind":"edit","status":"pending","title":"Edit it","content":[{"type":"content","content":{"type":"text","text":"old content"}}],"locations":[{"path":"/a"}],"rawInput":{"path":"/a","content":"new"}},"options":[{"optionId":"approve","name":"Approve","kind":"allow_once"},{"optionId":"approve_for_session","name":"Approve for session","kind":"allow_always"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}
            {"sessionId":"s1","toolCall":{"toolCallId":"call_1","kind":"edit","status":"pending","title":"Edit it","content":[{"type":"content","content":{"type":"text","text":"old content"}},{"type":"diff","path":"/a","oldText":"old","newText":"new"},{"type":"content","content":{"type":"text","text":"It changes the settings."}}],"locations":[{"path":"/a"}],"rawInput":{"path":"/a","content":"new"}},"options":[{"optionId":"approve","name":"Approve","kind":"allow_once"},{"optionId":"approve_for_session","name":"Approve for session","kind":"allow_always"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}
            {"sessionId":"s1","toolCall":{"toolCallId":"call_2","kind":"other","status":"pending","title":"Think","content":[{"type":"diff","path":"/a","oldText":"old","newText":"new"},{"type":"content","content":{"type":"text","text":"It changes the settings."}}]},"options":[{"optionId":"approve","name":"Approve","kind":"allow_once"},{"optionId":"approve_for_session","name":"Approve for session","kind":"allow_always"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}
            {"sessionId":"s1","toolCall":{"toolCallId":"call_2","kind":"other","status":"pending","title":"Think"},"options":[{"optionId":"approve","name":"Approve","kind":"allow_once"},{"optionId":"approve_for_session","name":"Approve for session","kind":"allow_always"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}
        "#]],
    );
}

#[test]
fn a_request_may_name_its_own_call_and_its_own_options() {
    let call = || builders::update_tool_call("t9", ToolCallUpdateFields::new().title("Mine"));
    let ask = |words| PermissionRequestDetails {
        options: Some(options(words)),
        ..PermissionRequestDetails::default()
    };
    let broker = PermissionBroker::with_options("s1", options("yes:allow_once no:reject_always")).unwrap();
    check_request(
        vec![
            broker.build_request(call(), PermissionRequestDetails::default()),
            broker.build_request(call(), ask("ok:allow_always")),
        ],
        expect![[r#"
            {"sessionId":"s1","toolCall":{"toolCallId":"t9","title":"Mine"},"options":[{"optionId":"yes","name":"Option yes","kind":"allow_once"},{"optionId":"no","name":"Option no","kind":"reject_always"}]}
            {"sessionId":"s1","toolCall":{"toolCallId":"t9","title":"Mine"},"options":[{"optionId":"ok","name":"Option ok","kind":"allow_always"}]}
        "#]],
    );
}

#[test]
fn a_request_that_cannot_be_answered_is_not_made() {
    let broker = PermissionBroker::new("s1");
    let ask = |words| PermissionRequestDetails {
        options: Some(options(words)),
        ..PermissionRequestDetails::default()
    };
    check_request(
        vec![
            broker.build_request_for(&tracker(), "missing", PermissionRequestDetails::default()),
            broker.build_request_for(&tracker(), "done", PermissionRequestDetails::default()),
            broker.build_request_for(&tracker(), "edit", ask("")),
            broker.build_request_for(&tracker(), "edit", ask(":allow_once no:reject_once")),
            broker.build_request_for(&tracker(), "edit", ask("x:allow_once y:reject_once x:reject_once")),
        ],
        expect![[r#"
            ! no tool call is tracked as missing
            ! the tool call tracked as done is already Completed
            ! a permission request needs an option
            ! the permission option named Option  has an empty id
            ! two permission options have the id x
        "#]],
    );
    let error = PermissionBroker::with_options("s1", Vec::new()).unwrap_err();
    assert_eq!(error, PermissionRequestError::NoOption);
}

fn check_verdicts(offered: &str, outcomes: &str, expected: Expect) {
    let mut text = String::new();
    for line in outcomes.lines().filter(|line| !line.is_empty()) {
        let outcome: RequestPermissionOutcome = match serde_json::from_str(line) {
            Ok(outcome) => outcome,
            Err(_) => {
                writeln!(text, "! is no outcome: {line}").unwrap();
                continue;
            }
        };
        match PermissionVerdict::from_outcome(&options(offered), &outcome) {
            Ok(verdict) if verdict.is_approved() => writeln!(text, "may go on: {verdict:?}").unwrap(),
            Ok(verdict) => writeln!(text, "may not: {verdict:?}").unwrap(),
            Err(violation) => writeln!(text, "! {violation}").unwrap(),
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn only_an_offered_option_that_allows_is_an_approval() {
    check_verdicts(
        "a:allow_once b:allow_always c:reject_once d:reject_always twice:allow_once twice:reject_once",
        r#"
{"outcome":"selected","optionId":"a"}
{"outcome":"selected","optionId":"b"}
{"outcome":"selected","optionId":"c"}
{"outcome":"selected","optionId":"d"}
{"outcome":"selected","optionId":"A"}
{"outcome":"selected","optionId":"allow_once"}
{"outcome":"selected","optionId":""}
{"outcome":"selected","optionId":"twice"}
{"outcome":"selected"}
{"outcome":"cancelled"}
{"outcome":"approved","optionId":"a"}
"#,
        expect![[r#"
            may go on: Approved { lifetime: Once, option_id: PermissionOptionId("a") }
            may go on: Approved { lifetime: Always, option_id: PermissionOptionId("b") }
            may not: Rejected { lifetime: Once, option_id: PermissionOptionId("c") }
            may not: Rejected { lifetime: Always, option_id: PermissionOptionId("d") }
            ! permission option A was not offered
            ! permission option allow_once was not offered
            ! permission option  was not offered
            ! permission option twice was offered more than once
            ! is no outcome: {"outcome":"selected"}
            may not: Cancelled
            ! is no outcome: {"outcome":"approved","optionId":"a"}
        "#]],
    );
}

fn check_answers(offers: &[&str], expected: Expect) {
    let mut text = String::new();
    for offered in offers {
        writeln!(text, "offered {}", if offered.is_empty() { "nothing" } else { offered }).unwrap();
        for decision in DECISIONS {
            match choose_outcome(&options(offered), decision) {
                Ok(outcome) => {
                    writeln!(text, "  {decision:?} {}", serde_json::to_string(&outcome).unwrap()).unwrap()
                }
                Err(error) => writeln!(text, "  {decision:?} ! {error}").unwrap(),
            }
        }
    }
    expected.assert_eq(&text);
}

const DECISIONS: [PermissionDecision; 5] = [
    PermissionDecision::Allow(ChoiceLifetime::Once),
    PermissionDecision::Allow(ChoiceLifetime::Always),
    PermissionDecision::Deny(ChoiceLifetime::Once),
    PermissionDecision::Deny(ChoiceLifetime::Always),
    PermissionDecision::Cancel,
];

#[test]
fn an_answer_says_what_was_decided_and_grants_no_more() {
    check_answers(
        &[
            "always:allow_always once:allow_once never:reject_always no:reject_once",
            "once:allow_once no:reject_once",
            "always:allow_always never:reject_always",
            "once:allow_once always:allow_always",
            "no:reject_once",
            "x:allow_once x:reject_once",
            "x:allow_once x:reject_once y:allow_once z:reject_once",
            "",
        ],
        expect![[r#"
            offered always:allow_always once:allow_once never:reject_always no:reject_once
              Allow(Once) {"outcome":"selected","optionId":"once"}
              Allow(Always) {"outcome":"selected","optionId":"always"}
              Deny(Once) {"outcome":"selected","optionId":"no"}
              Deny(Always) {"outcome":"selected","optionId":"never"}
              Cancel {"outcome":"cancelled"}
            offered once:allow_once no:reject_once
              Allow(Once) {"outcome":"selected","optionId":"once"}
              Allow(Always) {"outcome":"selected","optionId":"once"}
              Deny(Once) {"outcome":"selected","optionId":"no"}
              Deny(Always) {"outcome":"selected","optionId":"no"}
              Cancel {"outcome":"cancelled"}
            offered always:allow_always never:reject_always
              Allow(Once) ! the agent offers no option to allow once
              Allow(Always) {"outcome":"selected","optionId":"always"}
              Deny(Once) {"outcome":"selected","optionId":"never"}
              Deny(Always) {"outcome":"selected","optionId":"never"}
              Cancel {"outcome":"cancelled"}
            offered once:allow_once always:allow_always
              Allow(Once) {"outcome":"selected","optionId":"once"}
              Allow(Always) {"outcome":"selected","optionId":"always"}
              Deny(Once) {"outcome":"cancelled"}
              Deny(Always) {"outcome":"cancelled"}
              Cancel {"outcome":"cancelled"}
            offered no:reject_once
              Allow(Once) ! the agent offers no option to allow once
              Allow(Always) ! the agent offers no option to allow
              Deny(Once) {"outcome":"selected","optionId":"no"}
              Deny(Always) {"outcome":"selected","optionId":"no"}
              Cancel {"outcome":"cancelled"}
            offered x:allow_once x:reject_once
              Allow(Once) ! the agent offers no option to allow once
              Allow(Always) ! the agent offers no option to allow
              Deny(Once) {"outcome":"cancelled"}
              Deny(Always) {"outcome":"cancelled"}
              Cancel {"outcome":"cancelled"}
            offered x:allow_once x:reject_once y:allow_once z:reject_once
              Allow(Once) {"outcome":"selected","optionId":"y"}
              Allow(Always) {"outcome":"selected","optionId":"y"}
              Deny(Once) {"outcome":"selected","optionId":"z"}
              Deny(Always) {"outcome":"selected","optionId":"z"}
              Cancel {"outcome":"cancelled"}
            offered nothing
              Allow(Once) ! the agent offers no option to allow once
              Allow(Always) ! the agent offers no option to allow
              Deny(Once) {"outcome":"cancelled"}
              Deny(Always) {"outcome":"cancelled"}
              Cancel {"outcome":"cancelled"}
        "#]],
    );
}

proptest! {
    #[test]
    fn no_answer_is_understood_as_more_than_was_decided(
        offered in proptest::collection::vec((0..4u8, 0..4u8), 0..6),
        decision in proptest::sample::select(&DECISIONS[..]),
    ) {
        let kinds = ["allow_once", "allow_always", "reject_once", "reject_always"];
        let words: Vec<String> =
            offered.iter().map(|(id, kind)| format!("{id}:{}", kinds[usize::from(*kind)])).collect();
        let offered = options(&words.join(" "));
        if let Ok(outcome) = choose_outcome(&offered, decision) {
            let verdict = PermissionVerdict::from_outcome(&offered, &outcome);
            let expected = match decision {
                PermissionDecision::Allow(ChoiceLifetime::Once) => {
                    matches!(verdict, Ok(PermissionVerdict::Approved { lifetime: ChoiceLifetime::Once, .. }))
                }
                PermissionDecision::Allow(ChoiceLifetime::Always) => matches!(verdict, Ok(PermissionVerdict::Approved { .. })),
                PermissionDecision::Deny(_) => matches!(verdict, Ok(PermissionVerdict::Rejected { .. } | PermissionVerdict::Cancelled)),
                PermissionDecision::Cancel => verdict == Ok(PermissionVerdict::Cancelled),
            };
            prop_assert!(expected, "{:?} was understood as {:?}", decision, verdict);
        }
    }
}
