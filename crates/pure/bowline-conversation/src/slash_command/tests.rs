//! Tests of slash commands: commands, prose, and the input of commands.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(prompts: &[&str], expected: Expect) {
    let mut out = String::new();
    for prompt in prompts {
        let blocks = if prompt.starts_with('[') {
            serde_json::from_str(prompt).unwrap()
        } else {
            vec![ContentBlock::from(*prompt)]
        };
        match parse(&blocks) {
            None => writeln!(out, "{prompt:?} is prose").unwrap(),
            Some(Ok(command)) => writeln!(out, "{prompt:?} {command:?}").unwrap(),
            Some(Err(error)) => writeln!(out, "{prompt:?} ! {error}").unwrap(),
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn a_slash_and_a_known_word_is_a_command() {
    check(
        &[
            "/help",
            "  /HELP  \n",
            "/help me with the tests",
            "/status",
            "/tools",
            "/mcp",
            "/init",
            "/model",
            "/model  openai/gpt-5 ",
            "/mode ask",
            "/mcp restart",
            "/mcp restart my server",
            "/mcp stop",
            "/compact",
            "/compact the parser\nand its tests",
        ],
        expect![[r#"
            "/help" Help
            "  /HELP  \n" Help
            "/help me with the tests" Help
            "/status" Status
            "/tools" Tools
            "/mcp" Mcp(Show)
            "/init" Init
            "/model" Model(None)
            "/model  openai/gpt-5 " Model(Some("openai/gpt-5"))
            "/mode ask" Mode(Some("ask"))
            "/mcp restart" Mcp(Restart(None))
            "/mcp restart my server" Mcp(Restart(Some("my server")))
            "/mcp stop" ! /mcp takes nothing, or restart and the name of a server
            "/compact" Compact(None)
            "/compact the parser\nand its tests" Compact(Some("the parser\nand its tests"))
        "#]],
    );
}

#[test]
fn undo_takes_turns_a_file_or_all() {
    check(
        &[
            "/undo", "/undo 3", "/undo 0", "/undo -1", "/undo all", "/undo src/a b.rs",
            "/undo 99999999999999999999",
        ],
        expect![[r#"
            "/undo" Undo(Turns(1))
            "/undo 3" Undo(Turns(3))
            "/undo 0" ! there is nothing to undo in 0 turns: give a number from 1 on
            "/undo -1" Undo(File("-1"))
            "/undo all" Undo(Session)
            "/undo src/a b.rs" Undo(File("src/a b.rs"))
            "/undo 99999999999999999999" Undo(File("99999999999999999999"))
        "#]],
    );
}

#[test]
fn prose_that_begins_with_a_slash_goes_to_the_model() {
    check(
        &[
            "",
            "/",
            "/ help",
            "//help",
            "// a comment",
            "/* another */",
            "/home/me/project is broken",
            "/help/me",
            "/etc",
            "/tmp is full",
            "/Users has two of them",
            "/model.rs does not compile",
            "/^a+$/ matches nothing",
            "/1",
            "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "/größe",
            "say /help",
        ],
        expect![[r#"
            "" is prose
            "/" is prose
            "/ help" is prose
            "//help" is prose
            "// a comment" is prose
            "/* another */" is prose
            "/home/me/project is broken" is prose
            "/help/me" is prose
            "/etc" is prose
            "/tmp is full" is prose
            "/Users has two of them" is prose
            "/model.rs does not compile" is prose
            "/^a+$/ matches nothing" is prose
            "/1" is prose
            "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" is prose
            "/größe" is prose
            "say /help" is prose
        "#]],
    );
}

#[test]
fn an_unknown_command_is_told_the_nearest() {
    check(
        &["/hlep", "/comp", "/modle x", "/models", "/x", "/review the diff", "/Undoo"],
        expect![[r#"
            "/hlep" ! there is no command /hlep: did you mean /help?
            "/comp" ! there is no command /comp: did you mean /compact?
            "/modle x" ! there is no command /modle: did you mean /model?
            "/models" ! there is no command /models: did you mean /model?
            "/x" ! there is no command /x: /help shows those there are
            "/review the diff" ! there is no command /review: /help shows those there are
            "/Undoo" ! there is no command /Undoo: did you mean /undo?
        "#]],
    );
}

#[test]
fn commands_that_take_nothing_say_so() {
    check(
        &["/status now", "/init please"],
        expect![[r#"
        "/status now" ! /status takes nothing: send it by itself
        "/init please" ! /init takes nothing: send it by itself
    "#]],
    );
}

#[test]
fn the_first_text_decides_and_attached_files_are_named() {
    check(
        &[
            r#"[{"type":"resource_link","uri":"file:///w/a.rs","name":"a.rs"}]"#,
            r#"[{"type":"resource","resource":{"uri":"file:///w/a","text":"/undo"}}]"#,
            r#"[{"type":"resource","resource":{"uri":"file:///w/a","text":"x"}},{"type":"text","text":"/status"}]"#,
            r#"[{"type":"text","text":" "},{"type":"text","text":"/status"}]"#,
            r#"[{"type":"text","text":"/undo "},{"type":"resource_link","uri":"file:///w/a.rs","name":"a.rs"}]"#,
            r#"[{"type":"text","text":"/compact keep "},{"type":"resource_link","uri":"https://x/y","name":"y"},{"type":"text","text":" too"}]"#,
            r#"[{"type":"text","text":"look"},{"type":"text","text":"/status"}]"#,
        ],
        expect![[r#"
            "[{\"type\":\"resource_link\",\"uri\":\"file:///w/a.rs\",\"name\":\"a.rs\"}]" is prose
            "[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///w/a\",\"text\":\"/undo\"}}]" is prose
            "[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///w/a\",\"text\":\"x\"}},{\"type\":\"text\",\"text\":\"/status\"}]" Status
            "[{\"type\":\"text\",\"text\":\" \"},{\"type\":\"text\",\"text\":\"/status\"}]" Status
            "[{\"type\":\"text\",\"text\":\"/undo \"},{\"type\":\"resource_link\",\"uri\":\"file:///w/a.rs\",\"name\":\"a.rs\"}]" Undo(File("/w/a.rs"))
            "[{\"type\":\"text\",\"text\":\"/compact keep \"},{\"type\":\"resource_link\",\"uri\":\"https://x/y\",\"name\":\"y\"},{\"type\":\"text\",\"text\":\" too\"}]" Compact(Some("keep https://x/y too"))
            "[{\"type\":\"text\",\"text\":\"look\"},{\"type\":\"text\",\"text\":\"/status\"}]" is prose
        "#]],
    );
}

#[test]
fn help_lists_what_is_offered() {
    expect![[r#"
        - `/help`: Shows the commands
        - `/status`: Shows model, mode, who serves files and commands, and how full the context is
        - `/tools`: Shows the tools that the model is offered
        - `/model` *name of a model*: Shows or switches the model
        - `/mode` *read-only, ask, accept-edits or full*: Shows or switches what is done without asking
        - `/mcp` *restart, or restart NAME*: Shows the MCP servers and their tools, or starts them anew
        - `/compact` *what to keep in particular*: Sums up the conversation to make room
        - `/init`: Writes AGENTS.md for this project
    "#]]
    .assert_eq(&help_text(false));
    assert_eq!(help_text(true).lines().count(), SLASH_COMMANDS.len());
}

#[test]
fn input_has_a_limit() {
    let long = format!("/compact {}", "ä".repeat(MAX_INPUT_BYTES));
    let Some(Ok(SlashCommand::Compact(Some(focus)))) = parse(&[ContentBlock::from(long)]) else { panic!() };
    assert_eq!(focus.len(), MAX_INPUT_BYTES);
}

proptest! {
    #[test]
    fn no_text_breaks_it(text in "/?[a-z/ \\PC]{0,40}") {
        let known = |name: &str| SLASH_COMMANDS.iter().any(|entry| entry.name == name);
        if let Some(Err(SlashCommandError::Unknown { name, .. })) = parse(&[ContentBlock::from(text)]) {
            prop_assert!(!known(&name.to_ascii_lowercase()));
        }
    }
}
