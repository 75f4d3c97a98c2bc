//! Tests of what a person sees before an operation is allowed.

use bowline_protocol::schema::v1::ContentBlock;
use bowline_protocol::terminal::Invocation;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn content_text(content: &[ToolCallContent]) -> &str {
    match content {
        [ToolCallContent::Content(content)] => match &content.content {
            ContentBlock::Text(text) => &text.text,
            other => unreachable!("{other:?}"),
        },
        other => unreachable!("{other:?}"),
    }
}

fn shell_command(line: &str, env: &[(&str, &str)]) -> CommandSpec {
    CommandSpec {
        invocation: Invocation::Shell(line.to_owned()),
        cwd: "/boat/sub".to_owned(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        named_paths: Vec::new(),
    }
}

fn check(content: &[ToolCallContent], expected: Expect) {
    expected.assert_eq(content_text(content));
}

#[test]
fn a_command_is_shown_with_its_place_and_variables() {
    check(
        &preview_command(shell_command("make *a* `x`\nrm -rf b", &[("CC", "clang\u{202e}")])),
        expect![[r#"
        ```
        run make *a* `x`\nrm -rf b
        in /boat/sub
        with CC=clang\u{202e}
        ```"#]],
    );
}

#[test]
fn nothing_in_it_ends_the_fence() {
    check(
        &preview_command(shell_command("echo '````'\n```\nharmless", &[])),
        expect![[r#"
        `````
        run echo '````'\n```\nharmless
        in /boat/sub
        `````"#]],
    );
    check(
        &preview_arguments(&json!({ "text": "```\n**safe**\u{1b}[2J", "list": [1, {}] })),
        expect![[r#"
        ````
        {
          "text": "```\n**safe**\u001b[2J",
          "list": [
            1,
            {}
          ]
        }
        ````"#]],
    );
}

#[test]
fn that_something_is_cut_is_said_first() {
    let long = format!("echo {}; touch evil; echo {}", "a".repeat(70_000), "b".repeat(70_000));
    let variables: Vec<(&str, &str)> = (0..40).map(|_| ("A", &long[..7000])).collect();
    for content in [
        preview_command(shell_command(&long, &[])),
        preview_command(shell_command("make", &[("A", &long)])),
        preview_command(shell_command("make", &variables)),
        preview_arguments(&json!({ "line": long })),
        preview_arguments(&json!(vec!["word"; 20_000])),
    ] {
        let text = content_text(&content);
        assert!(text.starts_with("Careful: "), "{}", &text[..80]);
        assert!(text.len() < 2 * MAX_PREVIEW_BYTES, "{}", text.len());
    }
    let whole = format!("echo {}; touch evil", "a".repeat(60_000));
    assert!(content_text(&preview_command(shell_command(&whole, &[]))).contains(&whole));
    assert!(content_text(&preview_arguments(&json!({ "line": whole }))).contains(&whole));
}

#[test]
fn a_text_that_replaces_one_that_is_not_known_is_shown_whole_or_said_to_be_cut() {
    let content = preview_replacement("a\u{202e}.txt", "one\n```\ntwo\u{1b}[2J\n");
    check(&content[..1], expect![[r#"Replaces all of a\u{202e}.txt:"#]]);
    check(
        &content[1..],
        expect![[r#"
            ````
            one
            ```
            two\u{1b}[2J
            ````"#]],
    );
    let long = preview_replacement("a.txt", &"line\n".repeat(MAX_PREVIEW_BYTES));
    assert!(
        content_text(&long[1..])
            .starts_with("Careful: a part of the text is not shown: it is too long.\n\n```\nline\n")
    );
}
