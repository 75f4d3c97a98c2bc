//! The user's rules, applied to an agent.

use std::sync::Arc;

use bowline_host::{Host, HostOptions, HostPaths, QuietFrontEnd, SessionOptions};
use bowline_policy::policy::Preset;
use bowline_policy::question::QuestionReply;
use bowline_workspace::terminals::{self, SupervisorProgram};
use expect_test::expect;

use super::SUPERVISOR;
use super::host_fixture::{HostFixture, check};

#[tokio::test]
async fn each_preset_allows_asks_and_denies_what_it_says() {
    let acts = [
        "read a.txt", "write a.txt b", "read .env", "write .git/hooks/x b", "write $BASE/x b", "run true",
        "run $(true)",
    ];
    let mut text = String::new();
    for preset in Preset::ALL {
        text += &format!("{preset}:");
        let stage = HostFixture::with_options(|settings| settings.preset = Some(preset));
        let stage =
            stage.with_file("a.txt", "a").with_file(".env", "KEY=1").with_person(|_| QuestionReply::allow());
        for act in acts {
            let all = stage.play_turns(&[act]).await;
            let asked = all.contains("  ? puppet");
            let last = all.lines().last().unwrap();
            let what = match (last.starts_with('!'), asked) {
                (true, false) => "denied",
                (true, true) => "asked, refused",
                (false, true) => "asked",
                (false, false) => "allowed",
            };
            text += &format!(" {act}: {what};");
        }
        text.push('\n');
    }
    expect![[r#"
        ask: read a.txt: allowed; write a.txt b: asked; read .env: asked; write .git/hooks/x b: asked; write $BASE/x b: denied; run true: asked; run $(true): asked;
        accept-edits: read a.txt: allowed; write a.txt b: allowed; read .env: asked; write .git/hooks/x b: asked; write $BASE/x b: denied; run true: asked; run $(true): asked;
        read-only: read a.txt: allowed; write a.txt b: denied; read .env: asked; write .git/hooks/x b: denied; write $BASE/x b: denied; run true: denied; run $(true): denied;
        full: read a.txt: allowed; write a.txt b: allowed; read .env: asked; write .git/hooks/x b: asked; write $BASE/x b: denied; run true: allowed; run $(true): allowed;
        deny: read a.txt: denied; write a.txt b: denied; read .env: denied; write .git/hooks/x b: denied; write $BASE/x b: denied; run true: denied; run $(true): denied;
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn rules_decide_by_path_and_command_and_denying_wins() {
    let stage = HostFixture::new()
        .with_file("docs/a.md", "a")
        .with_file("docs/own.md", "a")
        .with_file("b.txt", "b")
        .with_answers(&[]);
    stage
        .lab
        .write_rules(
            r#"
            [[rules]]
            effect = "allow"
            kinds = ["write"]
            path = "docs/**"
            [[rules]]
            effect = "deny"
            kinds = ["write"]
            path = "docs/own.md"
            [[rules]]
            effect = "ask"
            kinds = ["read"]
            path = "b.txt"
            [[rules]]
            effect = "allow"
            command = "echo"
            [[rules]]
            effect = "deny"
            command = "echo secret"
            "#,
        )
        .unwrap();
    check(
        &stage,
        r#"
        write docs/a.md new
        write docs/own.md new
        read b.txt
        run echo hi
        run echo secret things
        run echo hi && echo secret
        run echo hi && ls
        run echo $(ls)
        "#,
        expect![[r#"
            > write docs/a.md new
            ok
            > write docs/own.md new
            ! -32030 permission denied: a rule of the user's denies it {"why":"a rule of the user's denies it"}
            > read b.txt
              ? puppet asks: read $ROOT/b.txt
              ?   read $ROOT/b.txt
              ? Asked because rule 3 of $BASE/config/policy.toml (ask read: path `b.txt`)
            ! -32030 permission denied: a rule of the user's says to ask, and the user cannot be asked {"why":"a rule of the user's says to ask, and the user cannot be asked"}
            > run echo hi
            "hi\n" exit 0
            > run echo secret things
            ! -32030 permission denied: a rule of the user's denies it {"why":"a rule of the user's denies it"}
            > run echo hi && echo secret
            ! -32030 permission denied: a rule of the user's denies it {"why":"a rule of the user's denies it"}
            > run echo hi && ls
              ? puppet asks: run echo hi && ls
              ?   run echo hi && ls
              ?   in $ROOT
              ? Asked because `ls`: no rule covers it, and preset ask asks before commands
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
            > run echo $(ls)
              ? puppet asks: run echo $(ls)
              ?   run echo $(ls)
              ?   in $ROOT
              ? Asked because `echo $(ls)`: the line uses a variable or a substitution ($ or `), so its commands cannot be told apart
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn rules_that_cannot_be_read_deny_everything_and_the_owner_is_told() {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_file("a.txt", "a")
        .with_answers(&["yes"]);
    stage.lab.write_rules("[[rules]]\neffect = \"maybe\"\n").unwrap();
    check(
        &stage,
        r#"
        read a.txt
        write a.txt b
        run true
        ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
        "#,
        expect![[r#"
            > read a.txt
            ! -32030 permission denied: the user's rules cannot be used {"why":"the user's rules cannot be used"}
            > write a.txt b
            ! -32030 permission denied: the user's rules cannot be used {"why":"the user's rules cannot be used"}
            > run true
            ! -32030 permission denied: the user's rules cannot be used {"why":"the user's rules cannot be used"}
            > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
            selected never
        "#]],
    )
    .await;
    let notices: Vec<String> =
        stage.lab.user.events().into_iter().filter(|event| event.starts_with("Notice")).collect();
    expect![[r#"Notice { text: "$BASE/config/policy.toml:2:10: maybe is not one of allow, ask, deny" }"#]]
        .assert_eq(&stage.normalize(&notices.first().cloned().unwrap_or_default()));
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a");
}

#[tokio::test]
async fn rules_inside_the_project_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let project = base.path().join("project");
    std::fs::create_dir_all(project.join(".bowline")).unwrap();
    std::fs::write(project.join(".bowline/policy.toml"), "preset = \"full\"\n").unwrap();
    let places = HostPaths {
        state: base.path().join("state"),
        policy: project.join(".bowline/policy.toml"),
        anchors: base.path().join("anchors"),
    };
    let supervisor = SupervisorProgram { program: SUPERVISOR.into(), args: Vec::new() };
    let settings = HostOptions::new(terminals::TerminalOptions::new(supervisor));
    let refused = Host::open(&project, &places, Arc::new(QuietFrontEnd), settings).unwrap_err();
    let text = refused.to_string().replace(base.path().to_str().unwrap(), "$BASE");
    expect!["the rules in $BASE/project/.bowline/policy.toml lie inside the workspace $BASE/project, where an agent could change them: keep them elsewhere"].assert_eq(&text);
}

#[tokio::test]
async fn the_hosts_own_directories_are_no_agents_even_inside_a_root() {
    // The whole base directory is a root, and contains the state, the rules and the anchors.
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_answers(&["yes", "yes", "yes", "yes"]);
    let cwd = Some(stage.lab.base().display().to_string());
    let options = SessionOptions { cwd, ..SessionOptions::default() };
    stage.lab.write_rules("preset = \"full\"\n").unwrap();
    let script = r#"
        write $BASE/beside.txt fine
        write $BASE/config/policy.toml preset
        write $BASE/config/other new
        read $BASE/config/policy.toml
        write $BASE/anchors/x new
        write $BASE/state/x new
        "#;
    let connection = stage.lab.connect(vec![stage.scripted_turn(script)]).await.unwrap();
    let session = connection.new_session(options).await.unwrap();
    session.prompt_text("go").await.unwrap();
    connection.close_session(&session).await.unwrap();
    expect![[r#"
        > write $BASE/beside.txt fine
        ok
        > write $BASE/config/policy.toml preset
        ! -32602 $BASE/config/policy.toml belongs to Bowline itself, agents cannot reach it
        > write $BASE/config/other new
        ! -32602 $BASE/config/other belongs to Bowline itself, agents cannot reach it
        > read $BASE/config/policy.toml
        ! -32602 $BASE/config/policy.toml belongs to Bowline itself, agents cannot reach it
        > write $BASE/anchors/x new
        ! -32602 $BASE/anchors/x belongs to Bowline itself, agents cannot reach it
        > write $BASE/state/x new
        ! -32602 $BASE/state/x belongs to Bowline itself, agents cannot reach it
    "#]]
    .assert_eq(&stage.take_text());
}
