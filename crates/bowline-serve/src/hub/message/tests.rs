//! The messages that the server makes.

use expect_test::expect;

use super::*;

#[test]
fn questions_without_an_answer_are_denied() {
    let permission = |kinds: &[&str]| {
        let options: Vec<_> =
            kinds.iter().map(|kind| json!({ "optionId": format!("id-{kind}"), "kind": kind })).collect();
        denial("session/request_permission", &json!({ "options": options }), "late").to_string()
    };
    let denials = [
        permission(&["allow_once", "reject_always", "reject_once"]),
        permission(&["allow_once", "reject_always"]),
        permission(&["allow_once"]),
        denial("session/request_permission", &json!(null), "late").to_string(),
        denial("elicitation/create", &json!({}), "late").to_string(),
    ];
    expect![[r#"
        {"outcome":{"outcome":"selected","optionId":"id-reject_once"},"_meta":{"bowline":{"unanswered":"late"}}}
        {"outcome":{"outcome":"selected","optionId":"id-reject_always"},"_meta":{"bowline":{"unanswered":"late"}}}
        {"outcome":{"outcome":"cancelled"},"_meta":{"bowline":{"unanswered":"late"}}}
        {"outcome":{"outcome":"cancelled"},"_meta":{"bowline":{"unanswered":"late"}}}
        {"action":"cancel","_meta":{"bowline":{"unanswered":"late"}}}
    "#]]
    .assert_eq(&(denials.join("\n") + "\n"));
}

#[test]
fn an_answer_names_its_user_and_only_the_server_says_so() {
    let boss = "boss".to_owned();
    let spoofed = r#"{"id":1,"result":{"outcome":{},"_meta":{"bowline":{"answeredBy":"boss","unanswered":"x","reason":"no"}}}}"#;
    let escaped = r#"{"id":1,"result":{"\u005fmeta":{"bowline":{"answeredBy":"boss"}}}}"#;
    let answers = [
        (r#"{"id":1,"result":{"outcome":{}}}"#, None),
        (r#"{"id":1,"result":{"outcome":{}}}"#, Some(&boss)),
        (spoofed, None),
        (escaped, None),
        (r#"{"id":1,"result":{"_meta":1}}"#, Some(&boss)),
        (r#"{"id":1,"error":{"code":1,"message":"no"}}"#, Some(&boss)),
    ];
    let noted =
        answers.map(|(answer, by)| note_answerer(&Bytes::from_static(answer.as_bytes()), by)).concat();
    expect![[r#"
        {"id":1,"result":{"outcome":{}}}
        {"id":1,"result":{"outcome":{},"_meta":{"bowline":{"answeredBy":"boss"}}}}
        {"id":1,"result":{"outcome":{},"_meta":{"bowline":{"reason":"no"}}}}
        {"id":1,"result":{"_meta":{"bowline":{}}}}
        {"id":1,"result":{"_meta":{"bowline":{"answeredBy":"boss"}}}}
        {"id":1,"error":{"code":1,"message":"no"}}"#]]
    .assert_eq(&String::from_utf8(noted).unwrap().replace("}{", "}\n{"));
}

#[test]
fn the_setup_follows_changes() {
    let mut setup = json!({ "modes": { "currentModeId": "a" }, "models": { "currentModelId": "x" }, "configOptions": [1] });
    assert!(apply_update(
        &mut setup,
        &json!({ "sessionUpdate": "current_mode_update", "currentModeId": "b" })
    ));
    assert!(!apply_update(
        &mut setup,
        &json!({ "sessionUpdate": "current_mode_update", "currentModeId": "b" })
    ));
    assert!(!apply_update(&mut setup, &json!({ "sessionUpdate": "plan", "entries": [] })));
    assert!(apply_update(
        &mut setup,
        &json!({ "sessionUpdate": "config_option_update", "configOptions": [2] })
    ));
    assert!(apply_request(&mut setup, "session/set_mode", &json!({ "modeId": "c" }), &json!({})));
    assert!(apply_request(&mut setup, "session/set_model", &json!({ "modelId": "y" }), &json!({})));
    assert!(apply_request(
        &mut setup,
        "session/set_config_option",
        &json!({}),
        &json!({ "configOptions": [3] })
    ));
    assert!(!apply_request(&mut setup, "session/prompt", &json!({}), &json!({ "stopReason": "end_turn" })));
    expect![[r#"{"modes":{"currentModeId":"c"},"models":{"currentModelId":"y"},"configOptions":[3]}"#]]
        .assert_eq(&setup.to_string());
    assert!(!apply_request(&mut json!({}), "session/set_mode", &json!({ "modeId": "c" }), &json!({})));
}

#[test]
fn titles_are_the_first_line_of_a_prompt() {
    let title = |prompt: Value| title_of_prompt(&json!({ "prompt": prompt }));
    assert_eq!(
        title(json!([{ "type": "image" }, { "type": "text", "text": "\n  Fix it \nnow" }])).unwrap(),
        "Fix it"
    );
    assert_eq!(title(json!([{ "type": "text", "text": "é".repeat(100) }])).unwrap().chars().count(), 81);
    assert_eq!(title(json!([{ "type": "text", "text": " " }])), None);
}

#[test]
fn line_breaks_between_members_become_spaces() {
    assert_eq!(one_line(Bytes::from_static(b"{\r\n \"a\": 1\n}")), "{   \"a\": 1 }");
}

#[test]
fn directories_below_a_root_only() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let root = place.join("srv");
    std::fs::create_dir_all(root.join("project")).unwrap();
    std::fs::create_dir(place.join("secret")).unwrap();
    std::os::unix::fs::symlink(place.join("secret"), root.join("escape")).unwrap();
    let roots = [root.clone()];
    let check = |path: &str| match check_directory(path, &roots) {
        Ok(path) => path.display().to_string(),
        Err(error) => error.to_string(),
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let table = [
        text(&root.join("project")),
        text(&root),
        text(&root.join("project/../../secret")),
        text(&root.join("escape")),
        text(&place.join("secret")),
        text(&place.join("absent")),
        text(&root.join("absent")),
        text(&place.join("srv2")),
        "relative".to_owned(),
    ]
    .map(|path| format!("{path}: {}\n", check(&path)))
    .concat()
    .replace(&text(&place), "");
    expect![[r"
        /srv/project: /srv/project
        /srv: /srv
        /srv/project/../../secret: the directory /srv/project/../../secret is outside of what this server offers: /srv
        /srv/escape: the directory /srv/escape is outside of what this server offers: /srv
        /secret: the directory /secret is outside of what this server offers: /srv
        /absent: the directory /absent is outside of what this server offers: /srv
        /srv/absent: the server cannot use the directory /srv/absent: No such file or directory (os error 2)
        /srv2: the directory /srv2 is outside of what this server offers: /srv
        relative: cwd must be an absolute path on the server
    "]]
    .assert_eq(&table);
}

#[test]
fn secrets_and_long_texts_of_clients_are_not_recorded() {
    let id = RequestId::Number(7);
    let long = format!(
        r#"{{"id":7,"method":"session/prompt","params":{{"prompt":"{}"}}}}"#,
        "x".repeat(MAX_RECORDED_BYTES)
    );
    let records = [
        record_of(
            br#"{"id":7,"method":"session/prompt","params":{"prompt":[]}}"#,
            "session/prompt",
            Some(&id),
        ),
        record_of(long.as_bytes(), "session/prompt", Some(&id)),
        record_of(br#"{"method":"session/cancel","params":{}}"#, "session/cancel", None),
        record_of(br#"{"id":7,"method":"_x/login","params":{"key":1}}"#, "_x/login", Some(&id)),
        record_of_answer(br#"{"id":"q","result":{"outcome":{}}}"#, "session/request_permission"),
        record_of_answer(
            br#"{"id":"q","result":{"action":"accept","content":{"key":1}}}"#,
            "elicitation/create",
        ),
        record_of_answer(br#"{"id":"q","error":{"code":5,"message":"key"}}"#, "elicitation/create"),
        record_of_answer(long.replace("method", "result").as_bytes(), "session/request_permission"),
    ];
    expect![[r#"
        {"id":7,"method":"session/prompt","params":{"prompt":[]}}
        {"jsonrpc":"2.0","method":"session/prompt","id":7}
        {"method":"session/cancel","params":{}}
        {"jsonrpc":"2.0","method":"_x/login","id":7}
        {"id":"q","result":{"outcome":{}}}
        {"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}
        {"jsonrpc":"2.0","id":"q","error":{"code":5}}
        {"jsonrpc":"2.0","id":7,"result":{"action":null}}"#]]
    .assert_eq(str::from_utf8(&records.join(&b'\n')).unwrap());
}
