//! Tests of the offline model: a prompt and tool results in, the user's view out.

use std::fmt::Write as _;
use std::time::Duration;

use expect_test::{Expect, expect};
use futures_util::StreamExt as _;

use super::*;
use crate::model::tests::request;

const ALL_TOOLS: &[&str] = &[
    "read_text_file", "write_text_file", "edit_text_file", "list_directory", "search_text", "execute",
    "update_plan",
];

/// Runs a turn to its end; `answers` are the tools' results, with a leading `!` for a failure.
async fn check(prompt: &str, tools: &[&str], answers: &[&str], expected: Expect) {
    let model = OfflineModel::new();
    let mut messages = vec![ConversationMessage::from_text(MessageRole::User, prompt)];
    let mut answers = answers.iter();
    let mut out = String::new();
    loop {
        let mut message = ConversationMessage { role: MessageRole::Assistant, parts: Vec::new() };
        let mut reply = model.stream_reply(request(messages.clone(), tools));
        let mut text = String::new();
        while let Some(event) = reply.next().await {
            match event.unwrap() {
                ReplyEvent::Text(chunk) => text.push_str(&chunk),
                ReplyEvent::Thought { text, .. } => writeln!(out, "(thinks {text:?})").unwrap(),
                ReplyEvent::Call(call) => message.parts.push(MessagePart::Call(call)),
                ReplyEvent::Usage(_) | ReplyEvent::Retrying { .. } => (),
                ReplyEvent::End(stop) => assert_eq!(stop, ReplyStop::Done),
            }
        }
        if !text.is_empty() {
            writeln!(out, "{text}").unwrap();
            message.parts.push(MessagePart::Text { text });
        }
        let Some(call) = message.tool_uses().next().cloned() else { break };
        let ToolUseInput::Value(input) = &call.input else { panic!("broken") };
        writeln!(out, "> {} {} {input}", call.id, call.name).unwrap();
        let answer = answers.next().copied().unwrap_or("ok");
        let result = match answer.strip_prefix('!') {
            Some(error) => ToolResult::failure(&call, error),
            None => ToolResult::success(&call, answer),
        };
        messages.push(message);
        messages
            .push(ConversationMessage { role: MessageRole::Tool, parts: vec![MessagePart::Result(result)] });
    }
    expected.assert_eq(&out);
}

#[tokio::test]
async fn each_line_is_a_step() {
    check(
        "plan: look; change\nthink I should look\nread a.rs lines 2-3\nreplace \"x\" with \"y\" in a.rs\nsay done\nlist\nfind y\nrun make",
        ALL_TOOLS,
        &["ok", "fn main() {\n}\n", "edited", "a.rs\n", "a.rs:1: y", "built\n"],
        expect![[r#"
            > offline_1 update_plan {"entries":[{"content":"look","priority":"medium","status":"pending"},{"content":"change","priority":"medium","status":"pending"}]}
            (thinks "I should look")
            The plan has 2 steps.
            > offline_2 read_text_file {"path":"a.rs","line":2,"limit":2}
            `a.rs`, lines 2 to 3:

            ```rust
            fn main() {
            }
            ```
            > offline_3 edit_text_file {"path":"a.rs","edits":[{"old_text":"x","new_text":"y"}]}
            Changed `a.rs`.

            done
            > offline_4 list_directory {"path":"."}
            `.`:

            ```
            a.rs
            ```
            > offline_5 search_text {"pattern":"y"}
            `y`:

            ```
            a.rs:1: y
            ```
            > offline_6 execute {"command":"make"}
            `make`:

            ```
            built
            ```
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_failed_step_stops_the_rest() {
    check(
        "write a.txt: x\nread b\nsay never",
        ALL_TOOLS,
        &["Wrote 1 byte", "!there is no b"],
        expect![[r#"
            > offline_1 write_text_file {"path":"a.txt","content":"x"}
            Wrote `a.txt`.
            > offline_2 read_text_file {"path":"b"}
            Reading `b` did not work:

            ```
            there is no b
            ```

            I stop here; 1 command was not done.
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_not_offered_is_said() {
    check(
        "run ls\nsay never\nsay never",
        &["read_text_file"],
        &[],
        expect![[r#"
            Running `ls` needs `execute` or `ide_terminal` or `bash`, which is not offered: the session may be read-only, or the agent was started without `--shell`, as `--no-terminal` has it. I stop here; 2 commands were not done.
        "#]],
    )
    .await;
}

#[tokio::test]
async fn with_two_sets_of_tools_the_editors_come_first() {
    check(
        "read a\nwrite a: b\nrun ls\nreplace 'a' with 'b' in c",
        &["read_file", "ide_read_file", "write_file", "bash", "ide_terminal", "edit_file"],
        &[],
        expect![[r#"
            > offline_1 ide_read_file {"path":"a"}
            `a`:

            ```
            ok
            ```
            > offline_2 write_file {"path":"a","content":"b"}
            Wrote `a`.
            > offline_3 ide_terminal {"command":"ls"}
            `ls`:

            ```
            ok
            ```
            > offline_4 edit_file {"path":"c","edits":[{"old_text":"a","new_text":"b"}]}
            Changed `c`.
        "#]],
    )
    .await;
}

#[tokio::test]
async fn replacing_every_occurrence_must_be_requested() {
    check(
        "replace 'a' with 'b' in c",
        &["edit_file"],
        &["!old_text of edit 1 is in the file 2 times: set replace_all to true if all of them are meant"],
        expect![[r#"
            > offline_1 edit_file {"path":"c","edits":[{"old_text":"a","new_text":"b"}]}
            Changing `c` did not work:

            ```
            old_text of edit 1 is in the file 2 times: set replace_all to true if all of them are meant
            ```

            To change every place: `replace all "a" with "b" in c`
        "#]],
    )
    .await;
    check(
        "replace all 'a' with 'b' in c",
        &["edit_file"],
        &[],
        expect![[r#"
        > offline_1 edit_file {"path":"c","edits":[{"old_text":"a","new_text":"b","replace_all":true}]}
        Changed `c`.
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_call_is_made_as_it_is() {
    check(
        r#"call anything {"a": [1]}"#,
        &[],
        &["!there is no tool anything"],
        expect![[r#"
            > offline_1 anything {"a":[1]}
            Calling `anything` did not work:

            ```
            there is no tool anything
            ```
        "#]],
    )
    .await;
}

#[tokio::test]
async fn long_results_are_shortened_and_their_fences_kept_apart() {
    let long: String = (1..=300).map(|line| format!("{line}\n")).collect();
    check(
        "read a.md\nread b",
        ALL_TOOLS,
        &["```\ncode\n```", &long],
        expect![[r#"
            > offline_1 read_text_file {"path":"a.md"}
            `a.md`:

            ````markdown
            ```
            code
            ```
            ````
            > offline_2 read_text_file {"path":"b"}
            `b`:

            ```
            1
            2
            3
            4
            5
            6
            7
            8
            9
            10
            11
            12
            13
            14
            15
            16
            17
            18
            19
            20
            21
            22
            23
            24
            25
            26
            27
            28
            29
            30
            31
            32
            33
            34
            35
            36
            37
            38
            39
            40
            41
            42
            43
            44
            45
            46
            47
            48
            49
            50
            51
            52
            53
            54
            55
            56
            57
            58
            59
            60
            61
            62
            63
            64
            65
            66
            67
            68
            69
            70
            71
            72
            73
            74
            75
            76
            77
            78
            79
            80
            81
            82
            83
            84
            85
            86
            87
            88
            89
            90
            91
            92
            93
            94
            95
            96
            97
            98
            99
            100
            101
            102
            103
            104
            105
            106
            107
            108
            109
            110
            111
            112
            113
            114
            115
            116
            117
            118
            119
            120
            121
            122
            123
            124
            125
            126
            127
            128
            129
            130
            131
            132
            133
            134
            135
            136
            137
            138
            139
            140
            141
            142
            143
            144
            145
            146
            147
            148
            149
            150
            151
            152
            153
            154
            155
            156
            157
            158
            159
            160
            161
            162
            163
            164
            165
            166
            167
            168
            169
            170
            171
            172
            173
            174
            175
            176
            177
            178
            179
            180
            181
            182
            183
            184
            185
            186
            187
            188
            189
            190
            191
            192
            193
            194
            195
            196
            197
            198
            199
            200
            ```
            … and 101 more lines
        "#]],
    )
    .await;
}

#[tokio::test]
async fn other_prompts_get_help() {
    let model = OfflineModel::new();
    for prompt in ["fix the bug", "", "read"] {
        let reply = model.stream_reply(request(
            vec![ConversationMessage::from_text(MessageRole::User, prompt)],
            ALL_TOOLS,
        ));
        let text = crate::model::tests::format_reply(reply).await;
        assert!(text.contains("I did nothing") && text.contains("offline model"), "{text}");
    }
    // Asking for help is not an error.
    for prompt in ["help", "Help!", "?"] {
        let reply = model.stream_reply(request(
            vec![ConversationMessage::from_text(MessageRole::User, prompt)],
            ALL_TOOLS,
        ));
        let text = crate::model::tests::format_reply(reply).await;
        assert!(text.starts_with("text \"I am the offline model"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn wait_delays_and_stream_sends_chunks() {
    let model = OfflineModel::new();
    let mut reply = model.stream_reply(request(
        vec![ConversationMessage::from_text(MessageRole::User, "wait 90\nstream 1000")],
        ALL_TOOLS,
    ));
    let start = tokio::time::Instant::now();
    assert_eq!(reply.next().await, Some(Ok(ReplyEvent::Text("Waited 90s.".into()))));
    assert_eq!(start.elapsed(), Duration::from_secs(90));
    let events: Vec<_> = reply.collect().await;
    let texts = events.iter().filter(|event| matches!(event, Ok(ReplyEvent::Text(_)))).count();
    assert_eq!(texts, 1001);
    assert_eq!(events.last(), Some(&Ok(ReplyEvent::End(ReplyStop::Done))));
}

#[tokio::test]
async fn text_parts_around_the_prompt_are_ignored() {
    let model = OfflineModel::new();
    let parts = ["<context>\nsome file\n</context>", "say hello", "a reminder"];
    let parts = parts.map(|text| MessagePart::Text { text: text.to_owned() });
    let message = ConversationMessage { role: MessageRole::User, parts: parts.into() };
    let text = crate::model::tests::format_reply(model.stream_reply(request(vec![message], ALL_TOOLS))).await;
    assert!(text.starts_with("text \"hello\"\n"), "{text}");
}

#[test]
fn attachments_without_a_command_are_mentioned() {
    let text = |text: &str| MessagePart::Text { text: text.to_owned() };
    let describe = |parts: Vec<MessagePart>| {
        let steps = parse_steps(&ConversationMessage { role: MessageRole::User, parts });
        steps.map(|steps| format!("{steps:?}")).unwrap_or_else(|message| message.replace(HELP_TEXT, "HELP"))
    };
    let file = || text("<file path=\"/p/a.txt\">\nread secret\n</file>");
    let picture = || MessagePart::Image { mime: "image/png".to_owned(), data: "x".into() };
    expect![[r#"
        I did nothing: line 1 is no command that I know.

        HELP
        I did nothing: line 1 is no command that I know.

        I see what is attached, but I do not know what to do with it: `read PATH` shows a file, and pictures I cannot look at.

        HELP
        [Read { path: "/p/a.txt", lines: None }]
    "#]]
    .assert_eq(&format!(
        "{}\n{}\n{}\n",
        describe(vec![text("sum up")]),
        describe(vec![text("sum up `/p/a.txt`"), picture(), file()]),
        describe(vec![text("read `/p/a.txt`"), file()])
    ));
}
