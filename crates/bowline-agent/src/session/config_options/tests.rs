//! Config options as a client gets them, and the choices it may make.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn model_info(name: &str, thinking: bool) -> ModelInfo {
    let title = name.to_uppercase();
    ModelInfo {
        name: name.to_owned(),
        title,
        context_window: 1000,
        supports_images: false,
        supports_thinking: thinking,
        price: None,
    }
}

fn pretty_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[test]
fn options_are_complete_and_in_order() {
    let (plain, thinker) = (model_info("offline", false), model_info("x/thinker", true));
    let models = [plain.clone(), thinker.clone()];
    let mut view = ConfigView {
        mode: AgentMode::Ask,
        widest_mode: AgentMode::Full,
        model: &thinker,
        models: &models,
        thinking: ThinkingLevel::Low,
    };
    expect![[r#"
        [
          {
            "id": "mode",
            "name": "Mode",
            "description": "What the agent does without asking",
            "category": "mode",
            "type": "select",
            "currentValue": "ask",
            "options": [
              {
                "value": "read-only",
                "name": "Read only",
                "description": "Reads and searches; changes nothing and runs nothing"
              },
              {
                "value": "ask",
                "name": "Ask",
                "description": "Asks before every change and every command"
              },
              {
                "value": "accept-edits",
                "name": "Accept edits",
                "description": "Edits files of the project without asking; asks before commands"
              },
              {
                "value": "full",
                "name": "Full access",
                "description": "Edits and runs commands without asking; still asks about secrets and hooks"
              }
            ]
          },
          {
            "id": "model",
            "name": "Model",
            "description": "Which model answers",
            "category": "model",
            "type": "select",
            "currentValue": "x/thinker",
            "options": [
              {
                "value": "offline",
                "name": "OFFLINE"
              },
              {
                "value": "x/thinker",
                "name": "X/THINKER"
              }
            ]
          },
          {
            "id": "thought_level",
            "name": "Thinking",
            "description": "How much the model thinks before it answers",
            "category": "thought_level",
            "type": "select",
            "currentValue": "low",
            "options": [
              {
                "value": "default",
                "name": "Default"
              },
              {
                "value": "off",
                "name": "Off"
              },
              {
                "value": "low",
                "name": "Low"
              },
              {
                "value": "medium",
                "name": "Medium"
              },
              {
                "value": "high",
                "name": "High"
              }
            ]
          }
        ]"#]]
    .assert_eq(&pretty_json(&view.config_options()));
    view.model = &plain;
    let ids: Vec<String> = view.config_options().iter().map(|option| option.id.0.to_string()).collect();
    assert_eq!(ids, ["mode", "model"]);
}

#[test]
fn the_model_that_answers_is_always_listed() {
    let current = model_info("own", false);
    let many: Vec<ModelInfo> =
        (0..MAX_LISTED_MODELS * 2).map(|n| model_info(&format!("m{n}"), false)).collect();
    for (chosen, models) in
        [(&current, &many[..]), (&current, &[]), (&many[MAX_LISTED_MODELS + 1], &many[..])]
    {
        let view = ConfigView {
            mode: AgentMode::Full,
            widest_mode: AgentMode::Full,
            model: chosen,
            models,
            thinking: ThinkingLevel::Default,
        };
        let option = serde_json::to_value(&view.config_options()[1]).unwrap();
        let values = option["options"].as_array().unwrap();
        assert!(values.len() <= MAX_LISTED_MODELS);
        assert_eq!(values.iter().filter(|value| value["value"] == option["currentValue"]).count(), 1);
    }
}

#[test]
fn modes_are_told_to_older_clients() {
    let offline = model_info("offline", false);
    let view = ConfigView {
        mode: AgentMode::AcceptEdits,
        widest_mode: AgentMode::Full,
        model: &offline,
        models: &[],
        thinking: ThinkingLevel::Default,
    };
    expect![[r#"
        {
          "currentModeId": "accept-edits",
          "availableModes": [
            {
              "id": "read-only",
              "name": "Read only",
              "description": "Reads and searches; changes nothing and runs nothing"
            },
            {
              "id": "ask",
              "name": "Ask",
              "description": "Asks before every change and every command"
            },
            {
              "id": "accept-edits",
              "name": "Accept edits",
              "description": "Edits files of the project without asking; asks before commands"
            },
            {
              "id": "full",
              "name": "Full access",
              "description": "Edits and runs commands without asking; still asks about secrets and hooks"
            }
          ]
        }"#]]
    .assert_eq(&pretty_json(&view.mode_state()));
}

fn check(view: &ConfigView<'_>, inputs: &[(&str, SessionConfigOptionValue)], expected: Expect) {
    let mut out = String::new();
    for (id, value) in inputs {
        match view.parse_option(id, value) {
            Ok(change) => writeln!(out, "{change:?}").unwrap(),
            Err(error) => writeln!(out, "! {}", RpcError::from(error)).unwrap(),
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn a_choice_is_typed_or_refused_with_what_there_is() {
    let thinker = model_info("x/thinker", true);
    let models: Vec<ModelInfo> = (0..30).map(|n| model_info(&format!("m{n}"), false)).collect();
    let view = ConfigView {
        mode: AgentMode::Ask,
        widest_mode: AgentMode::Full,
        model: &thinker,
        models: &models,
        thinking: ThinkingLevel::Default,
    };
    check(
        &view,
        &[
            ("mode", "full".into()),
            ("mode", "Full".into()),
            ("mode", true.into()),
            ("model", "m29".into()),
            ("model", "m30\u{1b}[2J".into()),
            ("thought_level", "high".into()),
            ("thought_level", "".into()),
            ("temperature", "1".into()),
        ],
        expect![[r#"
            Mode(Full)
            ! mode cannot be Full, only: read-only, ask, accept-edits, full
            ! mode is chosen by the id of a value, not by true or false
            Model("m29")
            ! model cannot be m30\u{1b}[2J, only: x/thinker, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18 and more
            Thinking(High)
            ! thought_level cannot be , only: default, off, low, medium, high
            ! there is no option temperature, there are: mode, model, thought_level
        "#]],
    );
    check(
        &ConfigView { model: &models[0], ..view },
        &[("thought_level", "high".into())],
        expect![[r#"
        ! there is no option thought_level, there are: mode, model
    "#]],
    );
}

#[test]
fn a_change_is_told_both_ways() {
    let offline = model_info("offline", false);
    let view = ConfigView {
        mode: AgentMode::Full,
        widest_mode: AgentMode::Full,
        model: &offline,
        models: &[],
        thinking: ThinkingLevel::Default,
    };
    let kinds = |change: &ConfigChange| -> Vec<serde_json::Value> {
        let updates = view.updates_for(change);
        updates.iter().map(|update| serde_json::to_value(update).unwrap()["sessionUpdate"].clone()).collect()
    };
    assert_eq!(
        kinds(&ConfigChange::Mode(AgentMode::Full)),
        [json!("current_mode_update"), json!("config_option_update")]
    );
    assert_eq!(kinds(&ConfigChange::Model("offline".to_owned())), [json!("config_option_update")]);
    for (thinking, id, _) in THINKING_LEVELS {
        assert_eq!(thinking_id(thinking), id);
    }
}

#[test]
fn commands_say_what_they_take() {
    expect![[r#"
        {
          "availableCommands": [
            {
              "name": "help",
              "description": "Shows the commands"
            },
            {
              "name": "status",
              "description": "Shows model, mode, who serves files and commands, and how full the context is"
            },
            {
              "name": "tools",
              "description": "Shows the tools that the model is offered"
            },
            {
              "name": "model",
              "description": "Shows or switches the model",
              "input": {
                "hint": "name of a model"
              }
            },
            {
              "name": "mode",
              "description": "Shows or switches what is done without asking",
              "input": {
                "hint": "read-only, ask, accept-edits or full"
              }
            },
            {
              "name": "mcp",
              "description": "Shows the MCP servers and their tools, or starts them anew",
              "input": {
                "hint": "restart, or restart NAME"
              }
            },
            {
              "name": "compact",
              "description": "Sums up the conversation to make room",
              "input": {
                "hint": "what to keep in particular"
              }
            },
            {
              "name": "undo",
              "description": "Takes back what the last turn changed",
              "input": {
                "hint": "number of turns, a file, or all"
              }
            },
            {
              "name": "init",
              "description": "Writes AGENTS.md for this project"
            }
          ]
        }"#]]
    .assert_eq(&pretty_json(&available_commands(true)));
    assert!(!pretty_json(&available_commands(false)).contains("undo"));
}

#[test]
fn no_mode_is_wider_than_the_widest() {
    let offline = model_info("offline", false);
    let view = ConfigView {
        mode: AgentMode::ReadOnly,
        widest_mode: AgentMode::Ask,
        model: &offline,
        models: &[],
        thinking: ThinkingLevel::Default,
    };
    assert_eq!(view.parse_mode("ask"), Ok(ConfigChange::Mode(AgentMode::Ask)));
    let message = view.parse_mode("full").unwrap_err().to_string();
    assert_eq!(message, "mode cannot be full, only: read-only, ask");
    let listed: Vec<_> = view.mode_state().available_modes.iter().map(|mode| mode.id.0.to_string()).collect();
    assert_eq!(listed, ["read-only", "ask"]);
    assert!(!format!("{:?}", view.config_options()).contains("accept-edits"));
}
