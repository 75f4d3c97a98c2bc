//! Command lines with redirections: evaluated by the files that the shell opens, also under rules that name protected
//! files.

use bowline_policy::policy::Preset;
use bowline_protocol::schema::v1::{
    CreateTerminalRequest, ReadTextFileRequest, StopReason, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use bowline_wire::schema::v1::Error;
use bowline_workspace::roots::RootSpec;
use test_support::host_harness::HostHarness;

use super::SUPERVISOR;

const ALLOW_ECHO: &str = "[[rules]]\neffect = \"allow\"\ncommand = \"echo\"\n";

/// Runs lines one after another, and returns which of them ran.
async fn run_lines(lab: &HostHarness, lines: &[String]) -> Vec<bool> {
    let lines = lines.to_vec();
    let (send, receive) = tokio::sync::oneshot::channel();
    lab.run_turn(move |turn| async move {
        let mut ran = Vec::new();
        for line in lines {
            let made =
                turn.client.create_terminal(CreateTerminalRequest::new(turn.session.clone(), line)).await;
            ran.push(made.is_ok());
            if let Ok(made) = made {
                let wait = WaitForTerminalExitRequest::new(turn.session.clone(), made.terminal_id);
                turn.client.wait_for_terminal_exit(wait).await?;
            }
        }
        send.send(ran).unwrap();
        Ok::<_, Error>(StopReason::EndTurn)
    })
    .await
    .unwrap();
    receive.await.unwrap()
}

#[tokio::test]
async fn a_redirection_through_a_link_is_asked_about() {
    let lab = HostHarness::open(SUPERVISOR, |settings| settings.preset = Some(Preset::AcceptEdits)).unwrap();
    lab.write_rules(ALLOW_ECHO).unwrap();
    let outside = lab.base().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(outside.join("notes"), lab.path("notes")).unwrap();
    std::os::unix::fs::symlink(&outside, lab.path("away")).unwrap();
    std::fs::create_dir_all(lab.path(".git/hooks")).unwrap();
    std::os::unix::fs::symlink(".git/hooks/pre-commit", lab.path("hook")).unwrap();
    lab.write_file("real.txt", "").unwrap();
    std::os::unix::fs::symlink("real.txt", lab.path("link")).unwrap();
    let lines = [
        "echo evil > notes", "echo evil > hook", "echo evil > away/notes", "echo evil > away/../notes",
        "cd away && echo evil", "echo fine > link", "echo fine > new/made.txt", "echo fine > made.txt",
    ];
    let ran = run_lines(&lab, &lines.map(str::to_owned)).await;
    assert_eq!(ran, [false, false, false, false, false, true, true, true]);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert!(lab.read_file(".git/hooks/pre-commit").is_err());
    assert_eq!(lab.read_file("real.txt").unwrap(), "fine\n");
}

#[tokio::test]
async fn a_redirection_into_a_read_only_root_is_asked_about() {
    let kept = tempfile::tempdir().unwrap();
    let root = kept.path().canonicalize().unwrap();
    let spec = root.display().to_string();
    let lab = HostHarness::open(SUPERVISOR, move |settings| {
        settings.preset = Some(Preset::AcceptEdits);
        settings.additional_roots.push(RootSpec::read_only(spec));
    })
    .unwrap();
    lab.write_rules(ALLOW_ECHO).unwrap();
    let ran = run_lines(&lab, &[format!("echo evil > {}/f", root.display())]).await;
    assert_eq!(ran, [false]);
    assert!(!root.join("f").exists());
}

#[tokio::test]
async fn a_broad_rule_does_not_name_protected_files() {
    for pattern in ["**", "/**", "$P/**", "$P"] {
        let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
        let pattern = pattern.replace("$P", lab.path("").trim_end_matches('/'));
        lab.write_rules(&format!(
            "[[rules]]\neffect = \"allow\"\nkinds = [\"write\", \"read\"]\npath = \"{pattern}\"\n"
        ))
        .unwrap();
        lab.write_file(".env", "SECRET=1\n").unwrap();
        let (hook, env, plain) = (lab.path(".git/hooks/pre-commit"), lab.path(".env"), lab.path("plain"));
        let (send, receive) = tokio::sync::oneshot::channel();
        lab.run_turn(move |turn| async move {
            let write = |path| WriteTextFileRequest::new(turn.session.clone(), path, "text\n");
            let hooked = turn.client.write_text_file(write(hook)).await.is_ok();
            let read = ReadTextFileRequest::new(turn.session.clone(), env);
            let read = turn.client.read_text_file(read).await.is_ok();
            let written = turn.client.write_text_file(write(plain)).await.is_ok();
            send.send([hooked, read, written]).unwrap();
            Ok::<_, Error>(StopReason::EndTurn)
        })
        .await
        .unwrap();
        assert_eq!(receive.await.unwrap(), [false, false, true], "{pattern}");
    }
}

#[tokio::test]
async fn arguments_of_plain_commands_are_judged_by_where_they_lead() {
    let lab = HostHarness::open(SUPERVISOR, |settings| settings.preset = Some(Preset::AcceptEdits)).unwrap();
    let rule = |program| format!("[[rules]]\neffect = \"allow\"\ncommand = \"{program}\"\n");
    lab.write_rules(&["cat", "cp", "rm", "mkdir"].map(rule).concat()).unwrap();
    let outside = lab.base().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("notes"), "notes\n").unwrap();
    lab.write_file(".env", "SECRET=1\n").unwrap();
    lab.write_file("real.txt", "real\n").unwrap();
    lab.write_file("bare/HEAD", "ref: refs/heads/main\n").unwrap();
    std::fs::create_dir_all(lab.path(".git/hooks")).unwrap();
    std::fs::create_dir(lab.path("sub")).unwrap();
    for (target, link) in [
        (outside.join("notes").to_str().unwrap(), "notes"),
        (".git/hooks/pre-commit", "hook"),
        ("../.env", "sub/link"),
        ("real.txt", "link"),
    ] {
        std::os::unix::fs::symlink(target, lab.path(link)).unwrap();
    }
    let lines = [
        ("cat notes", false),
        ("cat .env", false),
        ("cat sub/link", false),
        ("cd sub && cat link", false),
        ("cp real.txt hook", false),
        ("cp real.txt bare/config", false),
        ("mkdir -p bare/objects", false),
        ("rm -rf .git", false),
        ("cat real.txt link", true),
        ("cd sub && cat ../real.txt", false),
        ("cd sub && mkdir more", true),
        ("cp real.txt copy.txt", true),
    ];
    let ran = run_lines(&lab, &lines.map(|(line, _)| line.to_owned())).await;
    let told: Vec<(&str, bool)> = lines.iter().map(|(line, _)| *line).zip(ran).collect();
    assert_eq!(told, lines);
    assert!(lab.read_file(".git/hooks/pre-commit").is_err());
    assert_eq!(lab.read_file("copy.txt").unwrap(), "real\n");
}
