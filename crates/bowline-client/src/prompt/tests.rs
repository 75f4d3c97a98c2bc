//! Tests of prompts and their mentions.

use bowline_access::approvals::{NoApprover, PolicyFallback, PolicySources};
use bowline_access::audit::{AuditFilter, AuditLog};
use bowline_policy::policy::{OperationKinds, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions};
use expect_test::{Expect, expect};

use super::*;

/// Builds a prompt of typed text.
fn check(text: &str, capabilities: &PromptCapabilities, expected: Expect) {
    check_parts(&[PromptPart::Typed(text.to_owned())], PolicyFallback::File, capabilities, expected);
}

fn rule(effect: Effect, path: &str) -> Rule {
    Rule::new(RuleSpec {
        effect,
        kinds: OperationKinds::from_iter([OperationKind::Read]),
        matcher: RuleMatcher::Path(path.to_owned()),
        lifetime: RuleLifetime::Always,
        expires: None,
        source: RuleSource::CommandLine,
        note: None,
    })
    .unwrap()
}

/// Builds a prompt in a project with a few files, and shows it with its audit log entries.
fn check_parts(
    parts: &[PromptPart],
    fallback: PolicyFallback,
    capabilities: &PromptCapabilities,
    expected: Expect,
) {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let project = base.join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    for (name, content) in [("a.txt", "saved\n"), ("a b.txt", "blank\n"), ("src/x.rs", "fn x() {}\n")] {
        std::fs::write(project.join(name), content).unwrap();
    }
    std::fs::write(project.join("image.png"), [0, 159, 146, 150]).unwrap();
    std::fs::write(project.join("large.txt"), "x".repeat(300 << 10)).unwrap();
    for name in ["id_rsa", ".env", "secret.txt", "asked.txt"] {
        std::fs::write(project.join(name), "secret\n").unwrap();
    }
    std::os::unix::fs::symlink(".env", project.join("harmless")).unwrap();
    std::fs::write(base.join("outside.txt"), "outside\n").unwrap();
    let roots = Roots::open(&RootSpec::writable(project.to_string_lossy()), &[]).unwrap();
    let workspace =
        Workspace::open(roots, &base.join("journal"), WorkspaceOptions::default()).unwrap().workspace;
    for (name, unsaved) in [("a.txt", "unsaved\n"), ("new.txt", "not there yet\n")] {
        let path = project.join(name).display().to_string();
        let open = workspace.open_document(&path).unwrap();
        workspace.change_document(&path, unsaved.to_owned(), open.revision).unwrap();
    }
    let rules = PolicySources {
        fallback,
        rules: vec![
            rule(Effect::Deny, "secret.txt"),
            rule(Effect::Ask, "asked.txt"),
            rule(Effect::Allow, "id_rsa"),
        ],
        roots: vec![project.display().to_string()],
        ..PolicySources::default()
    };
    let log = AuditLog::open(
        &base.join("audit"),
        &base.join("anchor"),
        bowline_access::audit::AuditOptions::default(),
    );
    let approvals = Approvals::new(rules, log.unwrap(), std::sync::Arc::new(NoApprover));
    let prompt = build_prompt(parts, &workspace.session("s"), &approvals, capabilities);
    let mut output = String::new();
    for block in prompt.blocks {
        output += &match block {
            ContentBlock::Text(text) => format!("{}\n", text.text),
            ContentBlock::Resource(resource) => match resource.resource {
                EmbeddedResourceResource::TextResourceContents(contents) => {
                    format!("[{} {:?}]\n", contents.uri, contents.text)
                }
                other => format!("{other:?}\n"),
            },
            ContentBlock::ResourceLink(link) => format!("<{} {} {:?}>\n", link.name, link.uri, link.size),
            other => format!("{other:?}\n"),
        };
    }
    output.extend(prompt.attachments.iter().map(|text| format!("({text})\n")));
    output.extend(prompt.warnings.iter().map(|note| format!("! {note}\n")));
    for record in approvals.audit().entries(AuditFilter::default()).unwrap() {
        let AuditEntry { session, action, subject, decision, decided_by, bytes, .. } = record.unwrap().entry;
        output += &format!(
            "log: {session:?} {action:?} {subject:?} {decision:?} by {decided_by:?}, {bytes:?} bytes\n"
        );
    }
    expected.assert_eq(&output.replace(&base.display().to_string(), "$BASE"));
}

fn embedding_capabilities() -> PromptCapabilities {
    PromptCapabilities::new().embedded_context(true)
}

#[test]
fn what_is_mentioned_is_sent_along_as_the_editor_shows_it() {
    check(
        "look at @a.txt, @src/x.rs and @\"a b.txt\".",
        &embedding_capabilities(),
        expect![[r#"
            look at @a.txt, @src/x.rs and @"a b.txt".
            [file://$BASE/project/a.txt "unsaved\n"]
            [file://$BASE/project/src/x.rs "fn x() {}\n"]
            [file://$BASE/project/a%20b.txt "blank\n"]
            (attached a.txt, 8 bytes)
            (attached src/x.rs, 10 bytes)
            (attached a b.txt, 6 bytes)
            log: Some("s") Read Path { requested: "$BASE/project/a.txt", resolved: None } Allowed by User, Some(8) bytes
            log: Some("s") Read Path { requested: "$BASE/project/src/x.rs", resolved: None } Allowed by User, Some(10) bytes
            log: Some("s") Read Path { requested: "$BASE/project/a b.txt", resolved: None } Allowed by User, Some(6) bytes
        "#]],
    );
    check(
        "@new.txt (@new.txt twice)",
        &embedding_capabilities(),
        expect![[r#"
            @new.txt (@new.txt twice)
            [file://$BASE/project/new.txt "not there yet\n"]
            (attached new.txt, 14 bytes)
            log: Some("s") Read Path { requested: "$BASE/project/new.txt", resolved: None } Allowed by User, Some(14) bytes
        "#]],
    );
}

#[test]
fn to_an_agent_that_takes_no_files_they_are_linked() {
    check(
        "@a.txt @\"a b.txt\"",
        &PromptCapabilities::new(),
        expect![[r#"
        @a.txt @"a b.txt"
        <a.txt file://$BASE/project/a.txt Some(8)>
        <a b.txt file://$BASE/project/a%20b.txt Some(6)>
    "#]],
    );
}

#[test]
fn what_is_large_or_no_text_or_elsewhere_is_linked() {
    check(
        "@large.txt @image.png @src @../outside.txt",
        &embedding_capabilities(),
        expect![[r#"
        @large.txt @image.png @src @../outside.txt
        <large.txt file://$BASE/project/large.txt Some(307200)>
        <image.png file://$BASE/project/image.png Some(4)>
        <src file://$BASE/project/src None>
        <../outside.txt file://$BASE/project/../outside.txt None>
    "#]],
    );
}

#[test]
fn what_is_not_there_stays_text() {
    check(
        "@missing.txt @dir/missing? @\"no such\"",
        &embedding_capabilities(),
        expect![[r#"
        @missing.txt @dir/missing? @"no such"
        ! there is no file missing.txt: it stays text
        ! there is no file dir/missing?: it stays text
        ! there is no file no such: it stays text
    "#]],
    );
}

#[test]
fn addresses_and_code_mention_nothing() {
    check(
        "me@a.txt @override fn @ @@ @",
        &embedding_capabilities(),
        expect![[r#"
        me@a.txt @override fn @ @@ @
    "#]],
    );
    assert_eq!(find_mentions("").len(), 0);
}

#[test]
fn many_mentions_take_no_more_than_their_number() {
    let text = "@a.txt @x.y ".repeat(20_000);
    assert_eq!(find_mentions(&text).len(), 40_000);
    assert_eq!(find_mentions(&"@".repeat(100_000)).len(), 1);
    assert_eq!(find_mentions(&format!("@{}", ".".repeat(100_000)))[0].names.len(), 16);
}

#[test]
fn what_is_piped_in_attaches_nothing() {
    let parts = [
        PromptPart::Typed("see @src/x.rs:".to_owned()),
        PromptPart::Read("+ look at @a.txt @.env\n".to_owned()),
    ];
    check_parts(
        &parts,
        PolicyFallback::File,
        &embedding_capabilities(),
        expect![[r#"
            see @src/x.rs:

            + look at @a.txt @.env

            [file://$BASE/project/src/x.rs "fn x() {}\n"]
            (attached src/x.rs, 10 bytes)
            log: Some("s") Read Path { requested: "$BASE/project/src/x.rs", resolved: None } Allowed by User, Some(10) bytes
        "#]],
    );
}

#[test]
fn a_mention_is_judged_as_a_read() {
    check(
        "@secret.txt @asked.txt @id_rsa",
        &embedding_capabilities(),
        expect![[r#"
            @secret.txt @asked.txt @id_rsa
            <asked.txt file://$BASE/project/asked.txt Some(7)>
            [file://$BASE/project/id_rsa "secret\n"]
            (attached id_rsa, 7 bytes)
            ! secret.txt is not attached: a rule from the command line (deny read: path `secret.txt`)
            ! asked.txt is not attached: a rule from the command line (ask read: path `asked.txt`)
            log: Some("s") Read Path { requested: "$BASE/project/id_rsa", resolved: None } Allowed by User, Some(7) bytes
        "#]],
    );
    check(
        "@.env @harmless",
        &embedding_capabilities(),
        expect![[r#"
            @.env @harmless
            <.env file://$BASE/project/.env Some(7)>
            <harmless file://$BASE/project/harmless Some(7)>
            ! .env is not attached: it holds secrets; only a rule that names it allows it
            ! harmless is not attached: it holds secrets; only a rule that names it allows it
        "#]],
    );
}

#[test]
fn what_a_person_mentions_is_sent_whatever_else_is_not_approved() {
    let parts = [PromptPart::Typed("@src/x.rs @.env @secret.txt".to_owned())];
    check_parts(
        &parts,
        PolicyFallback::Override(Preset::Deny),
        &embedding_capabilities(),
        expect![[r#"
            @src/x.rs @.env @secret.txt
            [file://$BASE/project/src/x.rs "fn x() {}\n"]
            <.env file://$BASE/project/.env Some(7)>
            (attached src/x.rs, 10 bytes)
            ! .env is not attached: it holds secrets; only a rule that names it allows it
            ! secret.txt is not attached: a rule from the command line (deny read: path `secret.txt`)
            log: Some("s") Read Path { requested: "$BASE/project/src/x.rs", resolved: None } Allowed by User, Some(10) bytes
        "#]],
    );
    check_parts(
        &parts,
        PolicyFallback::Override(Preset::Full),
        &embedding_capabilities(),
        expect![[r#"
            @src/x.rs @.env @secret.txt
            [file://$BASE/project/src/x.rs "fn x() {}\n"]
            <.env file://$BASE/project/.env Some(7)>
            (attached src/x.rs, 10 bytes)
            ! .env is not attached: it holds secrets; only a rule that names it allows it
            ! secret.txt is not attached: a rule from the command line (deny read: path `secret.txt`)
            log: Some("s") Read Path { requested: "$BASE/project/src/x.rs", resolved: None } Allowed by User, Some(10) bytes
        "#]],
    );
}
