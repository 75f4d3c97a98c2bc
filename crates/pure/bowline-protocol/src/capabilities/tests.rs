//! Tests of the capability gates.

use super::*;
use expect_test::{Expect, expect};
use std::fmt::{Debug, Write};

fn describe_check(text: &mut String, name: &str, checked: Result<(), CapabilityError>) {
    match checked {
        Ok(()) => writeln!(text, "{name}: open").unwrap(),
        Err(refused) => writeln!(text, "{name}: {refused}").unwrap(),
    }
}

fn client_gate(capabilities: &str) -> ClientCapabilityGate {
    match capabilities {
        "" => ClientCapabilityGate::default(),
        json => ClientCapabilityGate::new(serde_json::from_str(json).unwrap()),
    }
}

fn agent_gate(capabilities: &str) -> AgentCapabilityGate {
    match capabilities {
        "" => AgentCapabilityGate::default(),
        json => AgentCapabilityGate::new(serde_json::from_str(json).unwrap()),
    }
}

/// Shows every method, with the reason if it is closed.
fn check<M: Copy + Debug>(methods: &[M], open: impl Fn(M) -> Result<(), CapabilityError>, expected: Expect) {
    let mut text = String::new();
    for &method in methods {
        describe_check(&mut text, &format!("{method:?}"), open(method));
    }
    expected.assert_eq(&text);
}

/// Shows which methods each set of capabilities opens beyond those that are always open.
fn check_opened_methods<M: Copy + Debug>(
    methods: &[M],
    open: impl Fn(&str, M) -> Result<(), CapabilityError>,
    capabilities: &[&str],
    expected: Expect,
) {
    let mut text = String::new();
    for json in capabilities {
        write!(text, "{json} opens").unwrap();
        for &method in methods {
            if open(json, method).is_ok() && open("{}", method).is_err() {
                write!(text, " {method:?}").unwrap();
            }
        }
        text.push('\n');
    }
    expected.assert_eq(&text);
}

#[test]
fn nothing_of_a_client_is_open_before_initialize() {
    check(
        ClientMethod::ALL,
        |method| client_gate("").check(method),
        expect![[r#"
            Update: session/update may not be used before initialize
            Notice: session/update may not be used before initialize
            Compaction: session/update may not be used before initialize
            RequestPermission: session/request_permission may not be used before initialize
            ReadTextFile: fs/read_text_file may not be used before initialize
            WriteTextFile: fs/write_text_file may not be used before initialize
            CreateTerminal: terminal/create may not be used before initialize
            TerminalOutput: terminal/output may not be used before initialize
            ReleaseTerminal: terminal/release may not be used before initialize
            WaitForTerminalExit: terminal/wait_for_exit may not be used before initialize
            KillTerminal: terminal/kill may not be used before initialize
            ElicitForm: elicitation/create may not be used before initialize
            ElicitUrl: elicitation/create may not be used before initialize
            CompleteElicitation: elicitation/complete may not be used before initialize
            ListDirectory: _bowline/fs/list may not be used before initialize
            StatFile: _bowline/fs/stat may not be used before initialize
            ReadFile: _bowline/fs/read may not be used before initialize
            WriteFile: _bowline/fs/write may not be used before initialize
            BatchFiles: _bowline/fs/batch may not be used before initialize
            WatchFiles: _bowline/fs/watch may not be used before initialize
            UnwatchFiles: _bowline/fs/unwatch may not be used before initialize
        "#]],
    );
}

#[test]
fn a_client_that_advertises_nothing_opens_only_what_every_client_has() {
    check(
        ClientMethod::ALL,
        |method| client_gate("{}").check(method),
        expect![[r#"
            Update: open
            Notice: a notice needs clientCapabilities.session.notices, which was not advertised
            Compaction: a compaction needs clientCapabilities.session.compaction, which was not advertised
            RequestPermission: open
            ReadTextFile: fs/read_text_file needs clientCapabilities.fs.readTextFile, which was not advertised
            WriteTextFile: fs/write_text_file needs clientCapabilities.fs.writeTextFile, which was not advertised
            CreateTerminal: terminal/create needs clientCapabilities.terminal, which was not advertised
            TerminalOutput: terminal/output needs clientCapabilities.terminal, which was not advertised
            ReleaseTerminal: terminal/release needs clientCapabilities.terminal, which was not advertised
            WaitForTerminalExit: terminal/wait_for_exit needs clientCapabilities.terminal, which was not advertised
            KillTerminal: terminal/kill needs clientCapabilities.terminal, which was not advertised
            ElicitForm: elicitation/create needs clientCapabilities.elicitation.form, which was not advertised
            ElicitUrl: elicitation/create needs clientCapabilities.elicitation.url, which was not advertised
            CompleteElicitation: elicitation/complete needs clientCapabilities.elicitation.url, which was not advertised
            ListDirectory: _bowline/fs/list needs clientCapabilities._meta.bowline.fs.list, which was not advertised
            StatFile: _bowline/fs/stat needs clientCapabilities._meta.bowline.fs.stat, which was not advertised
            ReadFile: _bowline/fs/read needs clientCapabilities._meta.bowline.fs.read, which was not advertised
            WriteFile: _bowline/fs/write needs clientCapabilities._meta.bowline.fs.write, which was not advertised
            BatchFiles: _bowline/fs/batch needs clientCapabilities._meta.bowline.fs.batch, which was not advertised
            WatchFiles: _bowline/fs/watch needs clientCapabilities._meta.bowline.fs.watch, which was not advertised
            UnwatchFiles: _bowline/fs/unwatch needs clientCapabilities._meta.bowline.fs.watch, which was not advertised
        "#]],
    );
}

#[test]
fn a_client_capability_opens_its_methods_and_no_others() {
    check_opened_methods(
        ClientMethod::ALL,
        |json, method| client_gate(json).check(method),
        &[
            r#"{"fs":{"readTextFile":true}}"#,
            r#"{"fs":{"readTextFile":false,"writeTextFile":true}}"#,
            r#"{"terminal":true}"#,
            r#"{"terminal":false}"#,
            r#"{"elicitation":{}}"#,
            r#"{"elicitation":{"form":{}}}"#,
            r#"{"elicitation":{"form":null,"url":{}}}"#,
            r#"{"session":{}}"#,
            r#"{"session":{"notices":{}}}"#,
            r#"{"session":{"notices":null,"compaction":{}}}"#,
            r#"{"_meta":{"bowline":{"version":1,"fs":{"list":{},"stat":{}}}}}"#,
            r#"{"_meta":{"bowline":{"version":1,"fs":{"read":{},"write":{}}}}}"#,
            r#"{"_meta":{"bowline":{"version":1,"fs":{"batch":{},"watch":{}}}}}"#,
            r#"{"_meta":{"bowline":{"version":2,"fs":{"batch":{},"watch":{}}}}}"#,
        ],
        expect![[r#"
            {"fs":{"readTextFile":true}} opens ReadTextFile
            {"fs":{"readTextFile":false,"writeTextFile":true}} opens WriteTextFile
            {"terminal":true} opens CreateTerminal TerminalOutput ReleaseTerminal WaitForTerminalExit KillTerminal
            {"terminal":false} opens
            {"elicitation":{}} opens
            {"elicitation":{"form":{}}} opens ElicitForm
            {"elicitation":{"form":null,"url":{}}} opens ElicitUrl CompleteElicitation
            {"session":{}} opens
            {"session":{"notices":{}}} opens Notice
            {"session":{"notices":null,"compaction":{}}} opens Compaction
            {"_meta":{"bowline":{"version":1,"fs":{"list":{},"stat":{}}}}} opens ListDirectory StatFile
            {"_meta":{"bowline":{"version":1,"fs":{"read":{},"write":{}}}}} opens ReadFile WriteFile
            {"_meta":{"bowline":{"version":1,"fs":{"batch":{},"watch":{}}}}} opens BatchFiles WatchFiles UnwatchFiles
            {"_meta":{"bowline":{"version":2,"fs":{"batch":{},"watch":{}}}}} opens
        "#]],
    );
}

#[test]
fn methods_have_the_names_of_the_schema() {
    let mut text = String::new();
    for method in ClientMethod::ALL {
        writeln!(text, "{method:?} {}", method.wire_name()).unwrap();
    }
    for method in AgentMethod::ALL {
        writeln!(text, "{method:?} {}", method.wire_name()).unwrap();
    }
    expect![[r#"
        Update session/update
        Notice session/update
        Compaction session/update
        RequestPermission session/request_permission
        ReadTextFile fs/read_text_file
        WriteTextFile fs/write_text_file
        CreateTerminal terminal/create
        TerminalOutput terminal/output
        ReleaseTerminal terminal/release
        WaitForTerminalExit terminal/wait_for_exit
        KillTerminal terminal/kill
        ElicitForm elicitation/create
        ElicitUrl elicitation/create
        CompleteElicitation elicitation/complete
        ListDirectory _bowline/fs/list
        StatFile _bowline/fs/stat
        ReadFile _bowline/fs/read
        WriteFile _bowline/fs/write
        BatchFiles _bowline/fs/batch
        WatchFiles _bowline/fs/watch
        UnwatchFiles _bowline/fs/unwatch
        Initialize initialize
        Authenticate authenticate
        Logout logout
        NewSession session/new
        LoadSession session/load
        ResumeSession session/resume
        ForkSession session/fork
        ListSessions session/list
        DeleteSession session/delete
        CloseSession session/close
        SetMode session/set_mode
        SetConfigOption session/set_config_option
        Prompt session/prompt
        Cancel session/cancel
    "#]]
    .assert_eq(&text);
}

const PLAIN_UPDATES: &str = r#"
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"hi"}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}
{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hi"}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Run"}
{"sessionUpdate":"tool_call_update","toolCallId":"t1"}
{"sessionUpdate":"plan","entries":[]}
{"sessionUpdate":"available_commands_update","availableCommands":[]}
{"sessionUpdate":"current_mode_update","currentModeId":"ask"}
{"sessionUpdate":"session_info_update"}
{"sessionUpdate":"usage_update","used":1,"size":2}
"#;

const GATED_UPDATES: &str = r#"
{"sessionUpdate":"notice","severity":"info","title":"Saved"}
{"sessionUpdate":"compaction_update","compactionId":"c1","status":"in_progress"}
{"sessionUpdate":"compaction_summary_chunk","compactionId":"c1","content":{"type":"text","text":"hi"}}
{"sessionUpdate":"config_option_update","configOptions":[]}
{"sessionUpdate":"config_option_update","configOptions":[{"id":"m","name":"Model","type":"select","currentValue":"a","options":[]}]}
{"sessionUpdate":"config_option_update","configOptions":[{"id":"b","name":"Brave","type":"boolean","currentValue":true}]}
"#;

fn check_updates(updates: &str, capabilities: &[&str], expected: Expect) {
    let mut text = String::new();
    for json in capabilities {
        writeln!(text, "with {}", if json.is_empty() { "nothing yet" } else { json }).unwrap();
        for line in updates.lines().filter(|line| !line.is_empty()) {
            let update: SessionUpdate = serde_json::from_str(line).unwrap();
            let name: serde_json::Value = serde_json::from_str(line).unwrap();
            describe_check(
                &mut text,
                &format!("  {}", name["sessionUpdate"]),
                client_gate(json).check_update(&update),
            );
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn every_client_takes_the_plain_updates() {
    check_updates(
        PLAIN_UPDATES,
        &["", "{}"],
        expect![[r#"
            with nothing yet
              "user_message_chunk": session/update may not be used before initialize
              "agent_message_chunk": session/update may not be used before initialize
              "agent_thought_chunk": session/update may not be used before initialize
              "tool_call": session/update may not be used before initialize
              "tool_call_update": session/update may not be used before initialize
              "plan": session/update may not be used before initialize
              "available_commands_update": session/update may not be used before initialize
              "current_mode_update": session/update may not be used before initialize
              "session_info_update": session/update may not be used before initialize
              "usage_update": session/update may not be used before initialize
            with {}
              "user_message_chunk": open
              "agent_message_chunk": open
              "agent_thought_chunk": open
              "tool_call": open
              "tool_call_update": open
              "plan": open
              "available_commands_update": open
              "current_mode_update": open
              "session_info_update": open
              "usage_update": open
        "#]],
    );
}

#[test]
fn an_update_is_sent_only_to_a_client_that_takes_it() {
    check_updates(
        GATED_UPDATES,
        &[
            "",
            "{}",
            r#"{"session":{"notices":{},"compaction":{},"configOptions":{}}}"#,
            r#"{"session":{"configOptions":{"boolean":{}}}}"#,
        ],
        expect![[r#"
            with nothing yet
              "notice": session/update may not be used before initialize
              "compaction_update": session/update may not be used before initialize
              "compaction_summary_chunk": session/update may not be used before initialize
              "config_option_update": a config option may not be used before initialize
              "config_option_update": a config option may not be used before initialize
              "config_option_update": a config option may not be used before initialize
            with {}
              "notice": a notice needs clientCapabilities.session.notices, which was not advertised
              "compaction_update": a compaction needs clientCapabilities.session.compaction, which was not advertised
              "compaction_summary_chunk": a compaction needs clientCapabilities.session.compaction, which was not advertised
              "config_option_update": open
              "config_option_update": open
              "config_option_update": a boolean config option needs clientCapabilities.session.configOptions.boolean, which was not advertised
            with {"session":{"notices":{},"compaction":{},"configOptions":{}}}
              "notice": open
              "compaction_update": open
              "compaction_summary_chunk": open
              "config_option_update": open
              "config_option_update": open
              "config_option_update": a boolean config option needs clientCapabilities.session.configOptions.boolean, which was not advertised
            with {"session":{"configOptions":{"boolean":{}}}}
              "notice": a notice needs clientCapabilities.session.notices, which was not advertised
              "compaction_update": a compaction needs clientCapabilities.session.compaction, which was not advertised
              "compaction_summary_chunk": a compaction needs clientCapabilities.session.compaction, which was not advertised
              "config_option_update": open
              "config_option_update": open
              "config_option_update": open
        "#]],
    );
}

#[test]
fn an_elicitation_is_sent_only_in_a_mode_that_was_advertised() {
    let mut text = String::new();
    for json in [
        "",
        "{}",
        r#"{"elicitation":{"form":{}}}"#,
        r#"{"elicitation":{"url":{}}}"#,
        r#"{"elicitation":{"form":{},"url":{}}}"#,
    ] {
        writeln!(text, "with {}", if json.is_empty() { "nothing yet" } else { json }).unwrap();
        for mode in [
            r#"{"mode":"form","sessionId":"s1","requestedSchema":{"type":"object","properties":{}}}"#,
            r#"{"mode":"url","sessionId":"s1","elicitationId":"e1","url":"https://example.com"}"#,
            r#"{"mode":"_voice","sessionId":"s1"}"#,
        ] {
            let mode: ElicitationMode = serde_json::from_str(mode).unwrap();
            let name = match mode {
                ElicitationMode::Form(_) => "  form",
                ElicitationMode::Url(_) => "  url",
                _ => "  other",
            };
            describe_check(&mut text, name, client_gate(json).check_elicitation(&mode));
        }
    }
    expect![[r#"
        with nothing yet
          form: elicitation/create may not be used before initialize
          url: elicitation/create may not be used before initialize
          other: an elicitation of another mode is not known here
        with {}
          form: elicitation/create needs clientCapabilities.elicitation.form, which was not advertised
          url: elicitation/create needs clientCapabilities.elicitation.url, which was not advertised
          other: an elicitation of another mode is not known here
        with {"elicitation":{"form":{}}}
          form: open
          url: an elicitation by URL needs clientCapabilities.elicitation.url, which was not advertised
          other: an elicitation of another mode is not known here
        with {"elicitation":{"url":{}}}
          form: an elicitation by form needs clientCapabilities.elicitation.form, which was not advertised
          url: open
          other: an elicitation of another mode is not known here
        with {"elicitation":{"form":{},"url":{}}}
          form: open
          url: open
          other: an elicitation of another mode is not known here
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_terminal_login_is_offered_only_to_a_client_that_can_run_it() {
    let methods: [AuthMethod; 2] = [
        serde_json::from_str(r#"{"id":"key","name":"API key"}"#).unwrap(),
        serde_json::from_str(r#"{"type":"terminal","id":"tty","name":"Log in"}"#).unwrap(),
    ];
    let mut text = String::new();
    for json in ["", "{}", r#"{"auth":{"terminal":true}}"#] {
        writeln!(text, "with {}", if json.is_empty() { "nothing yet" } else { json }).unwrap();
        describe_check(&mut text, "  agent", client_gate(json).check_auth_methods(&methods[..1]));
        describe_check(&mut text, "  both", client_gate(json).check_auth_methods(&methods));
    }
    expect![[r#"
        with nothing yet
          agent: an authentication method may not be used before initialize
          both: an authentication method may not be used before initialize
        with {}
          agent: open
          both: a terminal authentication method needs clientCapabilities.auth.terminal, which was not advertised
        with {"auth":{"terminal":true}}
          agent: open
          both: open
    "#]].assert_eq(&text);
}

#[test]
fn nothing_of_an_agent_but_initialize_is_open_before_it_answered() {
    check(
        AgentMethod::ALL,
        |method| agent_gate("").check(method),
        expect![[r#"
            Initialize: open
            Authenticate: authenticate may not be used before initialize
            Logout: logout may not be used before initialize
            NewSession: session/new may not be used before initialize
            LoadSession: session/load may not be used before initialize
            ResumeSession: session/resume may not be used before initialize
            ForkSession: session/fork may not be used before initialize
            ListSessions: session/list may not be used before initialize
            DeleteSession: session/delete may not be used before initialize
            CloseSession: session/close may not be used before initialize
            SetMode: session/set_mode may not be used before initialize
            SetConfigOption: session/set_config_option may not be used before initialize
            Prompt: session/prompt may not be used before initialize
            Cancel: session/cancel may not be used before initialize
        "#]],
    );
}

#[test]
fn an_agent_that_advertises_nothing_opens_only_what_every_agent_has() {
    check(
        AgentMethod::ALL,
        |method| agent_gate("{}").check(method),
        expect![[r#"
            Initialize: open
            Authenticate: open
            Logout: logout needs agentCapabilities.auth.logout, which was not advertised
            NewSession: open
            LoadSession: session/load needs agentCapabilities.loadSession, which was not advertised
            ResumeSession: session/resume needs agentCapabilities.sessionCapabilities.resume, which was not advertised
            ForkSession: session/fork needs agentCapabilities.sessionCapabilities.fork, which was not advertised
            ListSessions: session/list needs agentCapabilities.sessionCapabilities.list, which was not advertised
            DeleteSession: session/delete needs agentCapabilities.sessionCapabilities.delete, which was not advertised
            CloseSession: session/close needs agentCapabilities.sessionCapabilities.close, which was not advertised
            SetMode: open
            SetConfigOption: open
            Prompt: open
            Cancel: open
        "#]],
    );
}

#[test]
fn an_agent_capability_opens_its_method_and_no_other() {
    check_opened_methods(
        AgentMethod::ALL,
        |json, method| agent_gate(json).check(method),
        &[
            r#"{"loadSession":true}"#,
            r#"{"loadSession":false}"#,
            r#"{"auth":{"logout":{}}}"#,
            r#"{"sessionCapabilities":{"resume":{}}}"#,
            r#"{"sessionCapabilities":{"fork":{}}}"#,
            r#"{"sessionCapabilities":{"list":{}}}"#,
            r#"{"sessionCapabilities":{"delete":{}}}"#,
            r#"{"sessionCapabilities":{"close":{}}}"#,
            r#"{"sessionCapabilities":{"resume":null,"fork":null,"list":null,"delete":null,"close":null}}"#,
        ],
        expect![[r#"
            {"loadSession":true} opens LoadSession
            {"loadSession":false} opens
            {"auth":{"logout":{}}} opens Logout
            {"sessionCapabilities":{"resume":{}}} opens ResumeSession
            {"sessionCapabilities":{"fork":{}}} opens ForkSession
            {"sessionCapabilities":{"list":{}}} opens ListSessions
            {"sessionCapabilities":{"delete":{}}} opens DeleteSession
            {"sessionCapabilities":{"close":{}}} opens CloseSession
            {"sessionCapabilities":{"resume":null,"fork":null,"list":null,"delete":null,"close":null}} opens
        "#]],
    );
}

#[test]
fn a_prompt_holds_only_content_that_the_agent_takes() {
    let mut text = String::new();
    for json in [
        "",
        "{}",
        r#"{"promptCapabilities":{"image":true}}"#,
        r#"{"promptCapabilities":{"audio":true}}"#,
        r#"{"promptCapabilities":{"embeddedContext":true}}"#,
    ] {
        writeln!(text, "with {}", if json.is_empty() { "nothing yet" } else { json }).unwrap();
        for block in [
            r#"{"type":"text","text":"hi"}"#,
            r#"{"type":"resource_link","name":"a","uri":"file:///a"}"#,
            r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#,
            r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#,
            r#"{"type":"resource","resource":{"uri":"file:///a","text":"hi"}}"#,
        ] {
            let name: serde_json::Value = serde_json::from_str(block).unwrap();
            let prompt = [ContentBlock::from("look at this"), serde_json::from_str(block).unwrap()];
            describe_check(&mut text, &format!("  {}", name["type"]), agent_gate(json).check_prompt(&prompt));
        }
    }
    expect![[r#"
        with nothing yet
          "text": session/prompt may not be used before initialize
          "resource_link": session/prompt may not be used before initialize
          "image": session/prompt may not be used before initialize
          "audio": session/prompt may not be used before initialize
          "resource": session/prompt may not be used before initialize
        with {}
          "text": open
          "resource_link": open
          "image": an image in a prompt needs agentCapabilities.promptCapabilities.image, which was not advertised
          "audio": audio in a prompt needs agentCapabilities.promptCapabilities.audio, which was not advertised
          "resource": an embedded resource in a prompt needs agentCapabilities.promptCapabilities.embeddedContext, which was not advertised
        with {"promptCapabilities":{"image":true}}
          "text": open
          "resource_link": open
          "image": open
          "audio": audio in a prompt needs agentCapabilities.promptCapabilities.audio, which was not advertised
          "resource": an embedded resource in a prompt needs agentCapabilities.promptCapabilities.embeddedContext, which was not advertised
        with {"promptCapabilities":{"audio":true}}
          "text": open
          "resource_link": open
          "image": an image in a prompt needs agentCapabilities.promptCapabilities.image, which was not advertised
          "audio": open
          "resource": an embedded resource in a prompt needs agentCapabilities.promptCapabilities.embeddedContext, which was not advertised
        with {"promptCapabilities":{"embeddedContext":true}}
          "text": open
          "resource_link": open
          "image": an image in a prompt needs agentCapabilities.promptCapabilities.image, which was not advertised
          "audio": audio in a prompt needs agentCapabilities.promptCapabilities.audio, which was not advertised
          "resource": open
    "#]].assert_eq(&text);
}

#[test]
fn a_session_is_set_up_only_with_what_the_agent_takes() {
    let mut text = String::new();
    for json in [
        "",
        "{}",
        r#"{"mcpCapabilities":{"http":true}}"#,
        r#"{"mcpCapabilities":{"sse":true}}"#,
        r#"{"mcpCapabilities":{"acp":true}}"#,
        r#"{"sessionCapabilities":{"additionalDirectories":{}}}"#,
    ] {
        writeln!(text, "with {}", if json.is_empty() { "nothing yet" } else { json }).unwrap();
        let stdio = r#"{"name":"a","command":"/bin/a","args":[],"env":[]}"#;
        for (name, server) in [
            ("stdio", stdio),
            ("http", r#"{"type":"http","name":"a","url":"http://localhost","headers":[]}"#),
            ("sse", r#"{"type":"sse","name":"a","url":"http://localhost","headers":[]}"#),
            ("acp", r#"{"type":"acp","name":"a","serverId":"m"}"#),
        ] {
            let servers = [serde_json::from_str(stdio).unwrap(), serde_json::from_str(server).unwrap()];
            describe_check(&mut text, &format!("  {name}"), agent_gate(json).check_mcp_servers(&servers));
        }
        describe_check(&mut text, "  no directory", agent_gate(json).check_additional_directories(&[]));
        describe_check(
            &mut text,
            "  a directory",
            agent_gate(json).check_additional_directories(&[PathBuf::from("/b")]),
        );
    }
    expect![[r#"
        with nothing yet
          stdio: an MCP server may not be used before initialize
          http: an MCP server may not be used before initialize
          sse: an MCP server may not be used before initialize
          acp: an MCP server may not be used before initialize
          no directory: additionalDirectories may not be used before initialize
          a directory: additionalDirectories may not be used before initialize
        with {}
          stdio: open
          http: an http MCP server needs agentCapabilities.mcpCapabilities.http, which was not advertised
          sse: an sse MCP server needs agentCapabilities.mcpCapabilities.sse, which was not advertised
          acp: an acp MCP server needs agentCapabilities.mcpCapabilities.acp, which was not advertised
          no directory: open
          a directory: additionalDirectories needs agentCapabilities.sessionCapabilities.additionalDirectories, which was not advertised
        with {"mcpCapabilities":{"http":true}}
          stdio: open
          http: open
          sse: an sse MCP server needs agentCapabilities.mcpCapabilities.sse, which was not advertised
          acp: an acp MCP server needs agentCapabilities.mcpCapabilities.acp, which was not advertised
          no directory: open
          a directory: additionalDirectories needs agentCapabilities.sessionCapabilities.additionalDirectories, which was not advertised
        with {"mcpCapabilities":{"sse":true}}
          stdio: open
          http: an http MCP server needs agentCapabilities.mcpCapabilities.http, which was not advertised
          sse: open
          acp: an acp MCP server needs agentCapabilities.mcpCapabilities.acp, which was not advertised
          no directory: open
          a directory: additionalDirectories needs agentCapabilities.sessionCapabilities.additionalDirectories, which was not advertised
        with {"mcpCapabilities":{"acp":true}}
          stdio: open
          http: an http MCP server needs agentCapabilities.mcpCapabilities.http, which was not advertised
          sse: an sse MCP server needs agentCapabilities.mcpCapabilities.sse, which was not advertised
          acp: open
          no directory: open
          a directory: additionalDirectories needs agentCapabilities.sessionCapabilities.additionalDirectories, which was not advertised
        with {"sessionCapabilities":{"additionalDirectories":{}}}
          stdio: open
          http: an http MCP server needs agentCapabilities.mcpCapabilities.http, which was not advertised
          sse: an sse MCP server needs agentCapabilities.mcpCapabilities.sse, which was not advertised
          acp: an acp MCP server needs agentCapabilities.mcpCapabilities.acp, which was not advertised
          no directory: open
          a directory: open
    "#]].assert_eq(&text);
}
