//! Tests of tool calls that were written as text.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn extractor() -> ToolCallExtractor {
    ToolCallExtractor::new(vec!["read".into(), "write".into()])
}

/// Extracts from a reply in pieces of every size, which must not matter, and shows the result.
fn check(reply: &str, expected: Expect) {
    let (shown, outcome) = extract(&[reply]);
    let full = format!("{shown}{}", outcome.text);
    for size in [1, 2, 3, 7] {
        let chars: Vec<char> = reply.chars().collect();
        let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let (shown, again) = extract(&pieces);
        assert_eq!(format!("{shown}{}", again.text), full, "in pieces of {size}");
        assert_eq!(again.calls, outcome.calls, "in pieces of {size}");
        assert_eq!(again.withheld, outcome.withheld, "in pieces of {size}");
    }
    let mut out = String::new();
    writeln!(out, "text: {full:?}").unwrap();
    for call in &outcome.calls {
        writeln!(out, "call: {} {}", call.name, call.input).unwrap();
    }
    expected.assert_eq(&out);
    if outcome.calls.is_empty() {
        assert_eq!(full, reply);
    } else {
        assert_eq!(format!("{full}{}", outcome.withheld), reply);
    }
}

fn extract(pieces: &[&str]) -> (String, ExtractionOutcome) {
    let mut extractor = extractor();
    let shown = pieces.iter().map(|piece| extractor.push(piece)).collect();
    (shown, extractor.finish())
}

#[test]
fn a_fenced_call_is_a_call() {
    check(
        "I will look.\n\n```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```\n",
        expect![[r#"
            text: "I will look.\n\n"
            call: read {"path":"a"}
        "#]],
    );
}

#[test]
fn the_closing_fence_may_be_missing() {
    check(
        "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}",
        expect![[r#"
            text: ""
            call: read {"path":"a"}
        "#]],
    );
}

#[test]
fn bare_objects_and_tags_are_calls() {
    check(
        "{\"name\":\"read\",\"parameters\":{\"path\":\"a\"}}",
        expect![[r#"
            text: ""
            call: read {"path":"a"}
        "#]],
    );
    check(
        "<tool_call>\n{\"name\":\"read\",\"input\":{}}\n</tool_call>\n<tool_call>{\"name\":\"write\",\"args\":null}</tool_call>",
        expect![[r#"
            text: ""
            call: read {}
            call: write {}
        "#]],
    );
}

#[test]
fn tags_of_every_name_enclose_calls_closed_or_not() {
    let call = r#"{"name":"read","arguments":"{\"path\":\"a\"}"}"#;
    for open in ["<tools>", "<tool_call>", "<tool_calls>", "<function_call>", "<function_calls>"] {
        for close in ["", "\n", "</tools>", "</tool_call>\n", "</function_call>", "\n</tool_ca", "<", "</"] {
            let expected = expect![[r#"
                text: "So:\n"
                call: read {"path":"a"}
            "#]];
            check(&format!("So:\n{open}{call}{close}"), expected);
        }
    }
}

#[test]
fn several_tags_in_a_row_and_several_calls_in_one() {
    check(
        "<tools>\n{\"name\":\"read\",\"arguments\":{}}\n{\"name\":\"write\",\"arguments\":{}}\n</tools>\n\n<tools>[{\"name\":\"read\",\"arguments\":{\"b\":1}}]</tools><function_call>{\"name\":\"write\",\"arguments\":{\"c\":2}}",
        expect![[r#"
            text: ""
            call: read {}
            call: write {}
            call: read {"b":1}
            call: write {"c":2}
        "#]],
    );
    check(
        "<tool_call>\n```json\n{\"name\":\"read\",\"arguments\":{}}\n```\n</tool_call>",
        expect![[r#"
            text: ""
            call: read {}
        "#]],
    );
}

#[test]
fn a_call_in_tags_that_is_only_quoted_is_not_run() {
    for reply in [
        "You write <tools>{\"name\":\"read\",\"arguments\":{}}</tools> to read.\n",
        "<tools>{\"name\":\"read\",\"arguments\":{}}</tools>\nThat is how a call looks.",
        "```xml\n<tools>{\"name\":\"read\",\"arguments\":{}}</tools>\n```\n",
        "```\n<tool_call>{\"name\":\"read\",\"arguments\":{}}</tool_call>\n```",
        "<tools>{\"name\":\"delete\",\"arguments\":{}}</tools>",
        "<tools>{\"name\":\"read\",\"arguments\":{}} and more</tools>",
        "<tools>{\"name\":\"read\",\"arguments\":{}",
        "<tools>{\"name\":\"read\",\"arguments\":{}}</b",
        "<tool_call>```json\n{\"name\":\"read\",\"arguments\":{}}\n",
        "<tools></tools>",
        "<tools>",
        "<toolset>",
    ] {
        let (shown, outcome) = extract(&[reply]);
        assert_eq!((format!("{shown}{}", outcome.text), outcome.calls), (reply.to_owned(), vec![]));
    }
}

#[test]
fn several_calls_in_all_their_shapes() {
    check(
        r#"
```
[{"name":"read","arguments":"{\"path\":\"a\"}"},{"function":{"name":"functions.write","arguments":{}}}]
```
```tool_code
{"tool_calls":[{"type":"function","function":{"name":"read","arguments":{}}}]}
{"tool":"write","input":{"x":1}}
```
"#,
        expect![[r#"
            text: "\n"
            call: read {"path":"a"}
            call: write {}
            call: read {}
            call: write {"x":1}
        "#]],
    );
}

#[test]
fn line_breaks_in_strings_are_forgiven() {
    check(
        "```json\n{\"name\": \"write\", \"arguments\": {\"text\": \"a\n\tb\"}}\n```",
        expect![[r#"
            text: ""
            call: write {"text":"a\n\tb"}
        "#]],
    );
}

#[test]
fn escapes_that_json_does_not_know_are_forgiven() {
    check(
        r#"{"name": "write", "arguments": {"text": "echo \$(( \$1 )) it\'s \d \\ \"q\" \u00e9"}}"#,
        expect![[r#"
            text: ""
            call: write {"text":"echo \\$(( \\$1 )) it's \\d \\ \"q\" é"}
        "#]],
    );
}

#[test]
fn what_a_model_makes_up_after_its_call_is_not_shown() {
    for made_up in [
        "<tool_response>\nhello\n</tool_response>\nIt says hello.",
        "```tool_output\nhello\n```\n{\"name\":\"write\",\"arguments\":{}}",
        "**Observation:** hello",
        "Result: hello\n",
    ] {
        let expected = expect![[r#"
            text: "Now:\n"
            call: read {}
        "#]];
        check(&format!("Now:\n{{\"name\":\"read\",\"arguments\":{{}}}}\n{made_up}"), expected);
    }
}

#[test]
fn only_what_a_reply_ends_with_is_a_call() {
    let call = "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```\n";
    for behind in ["That is an example; do not run it.", "x", "```rust\nlet a = 1;\n```\n", "[1, 2]\n\n"] {
        let reply = format!("The file says:\n{call}\n{behind}");
        let (shown, outcome) = extract(&[&reply]);
        assert_eq!((format!("{shown}{}", outcome.text), outcome.calls), (reply, vec![]));
    }
    check(
        &format!("First:\n{call}Then:\n{}  \n", call.replace("\"a\"", "\"b\"")),
        expect![[r#"
            text: "First:\n```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```\nThen:\n"
            call: read {"path":"b"}
        "#]],
    );
}

#[test]
fn what_a_model_was_told_is_a_quote() {
    let reply = "It says:\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}";
    for (prompt_text, calls) in [
        ("x\n  {\n  \"name\": \"read\",\n  \"arguments\": {\"path\": \"a\"}\n}\ny", 0),
        ("{\"name\": \"read\", \"arguments\": {\"path\": \"b\"}}", 1),
    ] {
        let mut extractor = extractor().with_prompt_texts([prompt_text.to_owned()]);
        let shown = extractor.push(reply);
        let outcome = extractor.finish();
        assert_eq!(outcome.calls.len(), calls, "{prompt_text}");
        assert_eq!(format!("{shown}{}{}", outcome.text, outcome.withheld), reply);
    }
}

#[test]
fn blanks_behind_a_call_are_no_burden() {
    let mut extractor = extractor();
    assert_eq!(extractor.push("{\"name\":\"read\",\"arguments\":{}}\n"), "");
    for _ in 0..100_000 {
        extractor.push("\n");
    }
    assert_eq!(extractor.finish().calls.len(), 1);
}

#[test]
fn code_and_other_json_is_text() {
    for reply in [
        "```rust\n{\n\"name\"\n}\n```\nand `{\"name\":\"read\",\"arguments\":{}}` is code\n",
        "```json\n{\"name\": \"Ada\", \"arguments\": {}}\n```\n",
        "```json\n{\"name\": \"read\"}\n```\n",
        "```json\n{\"name\": \"read\", \"arguments\": [1]}\n```\n",
        "```json\nfirst {\"name\": \"read\", \"arguments\": {}}\n```\n",
        "```rust\nlet a = 1;\n{\"name\":\"read\",\"arguments\":{}}\n```\n",
        "{ a: 1 }\n",
        "[1, 2]\n",
        "[link](x) {\"name\":\"read\",\"arguments\":{}}\n",
        "{\"name\":\"read\",\"arguments\":{}",
        "<tool_call>nonsense</tool_call>",
        "<tool_calling>",
        "``",
        "   ",
        "",
        "~~~\n{}\n~~~~\nend",
    ] {
        let (shown, outcome) = extract(&[reply]);
        assert_eq!((format!("{shown}{}", outcome.text), outcome.calls), (reply.to_owned(), vec![]));
    }
}

#[test]
fn text_passes_at_once_and_only_what_may_be_a_call_waits() {
    let mut extractor = extractor();
    let mut out = String::new();
    for piece in [
        "Hello", " wor", "ld\n", "  ", "{", "\"na", "me\":1}", " x\n``", "`py\nif", " a:\n", "`", "``\n",
        "end",
    ] {
        writeln!(out, "{piece:?} -> {:?}", extractor.push(piece)).unwrap();
    }
    expect![[r#"
        "Hello" -> "Hello"
        " wor" -> " wor"
        "ld\n" -> "ld\n"
        "  " -> ""
        "{" -> ""
        "\"na" -> ""
        "me\":1}" -> "  {\"name\":1}"
        " x\n``" -> " x\n"
        "`py\nif" -> "```py\nif"
        " a:\n" -> " a:\n"
        "`" -> ""
        "``\n" -> "```\n"
        "end" -> "end"
    "#]]
    .assert_eq(&out);
}

#[test]
fn what_never_ends_is_let_go() {
    let mut extractor = extractor();
    let mut shown = extractor.push("```json\n{\"a\": \"");
    for _ in 0..1100 {
        shown.push_str(&extractor.push(&"x".repeat(1024)));
    }
    assert!(shown.len() > MAX_HELD_BYTES, "{}", shown.len());
}

#[test]
fn many_small_pieces_are_no_burden() {
    let mut extractor = extractor();
    assert_eq!(extractor.push("<tool_call>{\"a\": \"<"), "");
    for _ in 0..100_000 {
        extractor.push("x");
    }
    assert!(extractor.finish().calls.is_empty());
}

#[test]
fn many_short_lines_at_once_are_no_burden() {
    let lines = "\n".repeat(200_000);
    let mut extractor = extractor();
    assert_eq!(extractor.push(&lines).len(), lines.len());
    assert_eq!(extractor.push("```json\n{"), "");
    let shown = extractor.push(&lines).len() + extractor.push(&lines).len() + extractor.push(&lines).len();
    assert_eq!(shown + extractor.finish().text.len(), 3 * lines.len() + 9);
}

#[test]
fn a_fence_has_the_same_length_in_pieces() {
    let pieces = ["```", "```", "json\n", "```", "\n", "{\"name\":\"read\",\"arguments\":{}}"];
    assert_eq!(extract(&pieces), extract(&[&pieces.concat()]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_is_lost_however_it_comes(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("```".to_owned()), Just("json\n".to_owned()), Just("\n".to_owned()), Just("{".to_owned()),
                Just("{\"name\":\"read\",\"arguments\":{}}".to_owned()), Just("<tool_call>".to_owned()),
                Just("</tool_call>".to_owned()), Just("[".to_owned()), Just("~~~".to_owned()), "[ -~é\n]{0,6}",
            ],
            0..24,
        ),
    ) {
        let reply = pieces.concat();
        let (shown, outcome) = extract(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(format!("{shown}{}{}", outcome.text, outcome.withheld), reply.clone());
        let (shown_at_once, at_once) = extract(&[&reply]);
        prop_assert_eq!(format!("{shown_at_once}{}", at_once.text), format!("{shown}{}", outcome.text));
        prop_assert_eq!(at_once.calls, outcome.calls);
    }
}

#[test]
fn elements_with_attributes_are_calls() {
    check(
        "<tools><function name=\"read\" arguments='{\"path\": \"it\\u0027s\"}'/></tools>",
        expect![[r#"
            text: ""
            call: read {"path":"it's"}
        "#]],
    );
    check(
        "<tool_call>\n<function=write>{\"path\": \"a\", \"content\": \"1 > 0\"}</function>\n</tool_call>",
        expect![[r#"
            text: ""
            call: write {"path":"a","content":"1 > 0"}
        "#]],
    );
    check(
        "<tools><function name=\"other\" arguments='{}'/></tools>",
        expect![[r#"
        text: "<tools><function name=\"other\" arguments='{}'/></tools>"
    "#]],
    );
    check(
        "<tools><function name=\"read\"/></tools>",
        expect![[r#"
        text: "<tools><function name=\"read\"/></tools>"
    "#]],
    );
}

#[test]
fn an_element_may_hold_text_as_it_is() {
    check(
        "<tool_call><function=write>{\"path\": \"a\", \"content\": \"1\n2\"}</function></tool_call>",
        expect![[r#"
            text: ""
            call: write {"path":"a","content":"1\n2"}
        "#]],
    );
}

#[test]
fn a_fence_that_was_never_opened_is_nothing() {
    check(
        "{\"name\":\"read\",\"input\":{\"path\":\"a\"}}\n```\n```\n",
        expect![[r#"
        text: ""
        call: read {"path":"a"}
    "#]],
    );
    check(
        "{\"name\":\"read\",\"input\":{\"path\":\"a\"}}\n```\nis how to read.",
        expect![[r#"
        text: "{\"name\":\"read\",\"input\":{\"path\":\"a\"}}\n```\nis how to read."
    "#]],
    );
}

/// Extracts from a reply of a model with text instructions, in pieces of every size, and shows the result.
fn extract_text_instructed(reply: &str) -> String {
    let chars: Vec<char> = reply.chars().collect();
    let extract_chunks = |size: usize| {
        let mut extractor = extractor().with_text_instructions();
        let shown: String =
            chars.chunks(size).map(|piece| extractor.push(&piece.iter().collect::<String>())).collect();
        let finished = extractor.is_finished();
        let outcome = extractor.finish();
        let calls: String =
            outcome.calls.iter().map(|call| format!(" {} {}", call.name, call.input)).collect();
        let finished = if finished { " and is over" } else { "" };
        format!("{:?}{calls}{finished}\n", format!("{shown}{}", outcome.text))
    };
    let expected = extract_chunks(chars.len());
    for size in [1, 3] {
        assert_eq!(extract_chunks(size), expected, "in pieces of {size}");
    }
    expected
}

#[test]
fn by_words_the_first_block_of_calls_counts() {
    let call = |path: &str| format!("{{\"name\":\"read\",\"arguments\":{{\"path\":\"{path}\"}}}}");
    let (a, b, c) = (call("a"), call("b"), call("c"));
    let replies = [
        // One after the other.
        format!("Both:\n{a}\n{b}\n"),
        format!("```json\n{a}\n{b}\n```\n"),
        // As if it had seen results.
        format!("{a}\n```\n{b}\n```\n{c}\n"),
        format!("```json\n{a}\n```\n```json\n{b}\n```\nBoth."),
        format!("{a}\n{b}\n{a}\n{c}\n"),
        format!("{a}\nResult: fine\nDone."),
        format!("{a}\nResult of read:\nfine"),
        // An unknown tool is called all the same; the model then gets an error.
        "```json\n{\"name\": \"ask\", \"arguments\": {\"whom\": \"Ada\"}}\n```".to_owned(),
        "{\"name\": \"ask\", \"input\": {}}".to_owned(),
        // Calls followed by prose about them do not count.
        format!("```json\n{a}\n```\nreads a file."),
        format!("```json\n{a}\n```\nreads a file."),
        format!("For example:\n```json\n{a}\n```\n```json\n{b}\n```\nThese read files."),
    ];
    let out: String = replies.iter().map(|reply| extract_text_instructed(reply)).collect();
    expect![[r#"
        "Both:\n" read {"path":"a"} read {"path":"b"}
        "" read {"path":"a"} read {"path":"b"}
        "" read {"path":"a"} and is over
        "" read {"path":"a"} and is over
        "" read {"path":"a"} read {"path":"b"} and is over
        "" read {"path":"a"} and is over
        "" read {"path":"a"} and is over
        "" ask {"whom":"Ada"}
        "{\"name\": \"ask\", \"input\": {}}"
        "```json\n{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}\n```\nreads a file."
        "```json\n{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}\n```\nreads a file."
        "For example:\n```json\n{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}\n```\n```json\n{\"name\":\"read\",\"arguments\":{\"path\":\"b\"}}\n```\nThese read files."
    "#]]
    .assert_eq(&out);
}
