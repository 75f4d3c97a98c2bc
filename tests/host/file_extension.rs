//! The file extension over the wire: an agent lists, describes and reads by range, under the same rules as other reads.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bowline_history::undo::ChangeSelection;
use bowline_host::HostCapabilities;
use bowline_policy::policy::Preset;
use bowline_policy::question::QuestionReply;
use expect_test::expect;
use serde_json::json;

use super::host_fixture::{HostFixture, check, parse_reply};

/// Gives a file a fixed time and mode, so that answers are the same everywhere.
fn pin(stage: &HostFixture, name: &str) {
    let path = PathBuf::from(stage.lab.path(name));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_modified(UNIX_EPOCH + Duration::from_secs(1))
        .unwrap();
}

#[tokio::test]
async fn files_are_listed_described_and_read() {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_file("a.txt", "grün\n")
        .with_file("logo.png", "\u{0}PNG");
    std::fs::write(stage.lab.base().join("secret"), "s").unwrap();
    pin(&stage, "a.txt");
    pin(&stage, "logo.png");
    check(
        &stage,
        r#"
        call _bowline/fs/list {"path":"$ROOT"}
        call _bowline/fs/list {"path":"$ROOT","limit":1}
        call _bowline/fs/list {"path":"$ROOT","cursor":"a.txt"}
        call _bowline/fs/stat {"path":"$ROOT/a.txt"}
        call _bowline/fs/read {"path":"$ROOT/a.txt"}
        call _bowline/fs/read {"path":"$ROOT/a.txt","offset":2,"limit":2}
        call _bowline/fs/read {"path":"$ROOT/logo.png","encoding":"base64"}
        call _bowline/fs/read {"path":"$ROOT/logo.png"}
        link out $BASE/secret
        call _bowline/fs/stat {"path":"$ROOT/out"}
        call _bowline/fs/read {"path":"$ROOT/out"}
        call _bowline/fs/list {"path":"$BASE"}
        call _bowline/fs/read {"path":"a.txt"}
        call _bowline/fs/read {"path":"$ROOT/a.txt","encoding":"utf-16"}
        call _bowline/fs/list {"path":"$ROOT","limit":0}
        call _bowline/fs/list {"path":"$ROOT","glob":"["}
        "#,
        expect![[r#"
            > call _bowline/fs/list {"path":"$ROOT"}
            {"entries":[{"name":"a.txt","type":"file","size":6,"modifiedAtMs":1000},{"name":"logo.png","type":"file","size":4,"modifiedAtMs":1000}],"truncated":false}
            > call _bowline/fs/list {"path":"$ROOT","limit":1}
            {"entries":[{"name":"a.txt","type":"file","size":6,"modifiedAtMs":1000}],"nextCursor":"a.txt","truncated":true}
            > call _bowline/fs/list {"path":"$ROOT","cursor":"a.txt"}
            {"entries":[{"name":"logo.png","type":"file","size":4,"modifiedAtMs":1000}],"truncated":false}
            > call _bowline/fs/stat {"path":"$ROOT/a.txt"}
            {"type":"file","size":6,"modifiedAtMs":1000,"mode":420,"encoding":"UTF-8","etag":"sha256:d2d8a3547ed87a59bd66ca28402de461108a17edfc3c91d0fe1ecd44f25986b9","dirty":false,"readOnly":false}
            > call _bowline/fs/read {"path":"$ROOT/a.txt"}
            {"data":"grün\n","encoding":"utf-8","etag":"sha256:d2d8a3547ed87a59bd66ca28402de461108a17edfc3c91d0fe1ecd44f25986b9","size":6,"truncated":false,"dirty":false}
            > call _bowline/fs/read {"path":"$ROOT/a.txt","offset":2,"limit":2}
            {"data":"ü","encoding":"utf-8","etag":"sha256:d2d8a3547ed87a59bd66ca28402de461108a17edfc3c91d0fe1ecd44f25986b9","size":6,"truncated":true,"dirty":false}
            > call _bowline/fs/read {"path":"$ROOT/logo.png","encoding":"base64"}
            {"data":"AFBORw==","encoding":"base64","etag":"sha256:6fca4186a1da39a8e40561b81ec674cd8e0c03e9cdc6af2b668774e9b9157eeb","size":4,"truncated":false,"dirty":false}
            > call _bowline/fs/read {"path":"$ROOT/logo.png"}
            ! -32602 $ROOT/logo.png cannot be read as text: read it as base64 {"kind":"notText","path":"$ROOT/logo.png","reason":"not_text","why":"read it as base64"}
            > link out $BASE/secret
            > call _bowline/fs/stat {"path":"$ROOT/out"}
            ! -32602 $ROOT/out is outside the session's directories {"kind":"outsideRoots","path":"$ROOT/out","reason":"outside"}
            > call _bowline/fs/read {"path":"$ROOT/out"}
            ! -32602 $ROOT/out is outside the session's directories {"kind":"outsideRoots","path":"$ROOT/out","reason":"outside"}
            > call _bowline/fs/list {"path":"$BASE"}
            ! -32602 $BASE is outside the session's directories {"kind":"outsideRoots","path":"$BASE","reason":"outside"}
            > call _bowline/fs/read {"path":"a.txt"}
            ! -32602 a.txt is a relative path, send an absolute path {"kind":"badParams","reason":"relative","path":"a.txt"}
            > call _bowline/fs/read {"path":"$ROOT/a.txt","encoding":"utf-16"}
            ! -32602 the params of _bowline/fs/read are wrong: expected one of `utf-8`, `utf8`, `base64` at column 77 {"kind":"badParams"}
            > call _bowline/fs/list {"path":"$ROOT","limit":0}
            ! -32602 limit is at least 1 {"kind":"badParams"}
            > call _bowline/fs/list {"path":"$ROOT","glob":"["}
            ! -32602 invalid glob: unclosed character class; missing ']' {"kind":"badParams"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn secrets_are_asked_about_and_every_read_is_recorded() {
    let stage = HostFixture::new()
        .with_answers(&["no", "yes"])
        .with_file("a.txt", "a\n")
        .with_file(".env", "KEY=1\n");
    pin(&stage, ".env");
    check(
        &stage,
        r#"
        call _bowline/fs/read {"path":"$ROOT/.env"}
        call _bowline/fs/stat {"path":"$ROOT/.env"}
        call _bowline/fs/read {"path":"$ROOT/a.txt"}
        "#,
        expect![[r#"
            > call _bowline/fs/read {"path":"$ROOT/.env"}
              ? puppet asks: read $ROOT/.env
              ? ! holds secrets ($ROOT/.env)
              ?   read $ROOT/.env
              ? Asked because it holds secrets; only a rule that names it allows it
            ! -32030 permission denied: the user said no {"kind":"permissionDenied","why":"the user said no"}
            > call _bowline/fs/stat {"path":"$ROOT/.env"}
              ? puppet asks: look at $ROOT/.env
              ? ! holds secrets ($ROOT/.env)
              ?   read $ROOT/.env
              ? Asked because it holds secrets; only a rule that names it allows it
            {"type":"file","size":6,"modifiedAtMs":1000,"mode":420,"encoding":"UTF-8","etag":"sha256:929c28f541260cd8690babe97ae61472829cdf36e059c7b14e6b963f0f9ee77b","dirty":false,"readOnly":false}
            > call _bowline/fs/read {"path":"$ROOT/a.txt"}
            {"data":"a\n","encoding":"utf-8","etag":"sha256:87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7","size":2,"truncated":false,"dirty":false}
        "#]],
    )
    .await;
    let table = stage.audit_table();
    expect![[r#"
        session/start: allowed by nobody
        turn/start turn 1: allowed by nobody
        fs/read $ROOT/.env turn 1: denied by person (permission denied: the user said no)
        fs/read $ROOT/.env turn 1: allowed by person
        fs/read $ROOT/a.txt turn 1: allowed by preset: ask
        turn/end turn 1: allowed by nobody (EndTurn)
        session/end: allowed by nobody
    "#]]
    .assert_eq(&table);
}

#[tokio::test]
async fn a_batch_that_only_reads_is_asked_about_and_recorded_as_reads() {
    let stage = HostFixture::new()
        .with_answers(&["no", "yes"])
        .with_file("a.txt", "a\n")
        .with_file(".env", "KEY=1\n");
    check(
        &stage,
        r#"
        call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/a.txt"},{"op":"read","path":"$ROOT/.env"}]}
        call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/a.txt"},{"op":"read","path":"$ROOT/.env"}]}
        call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/missing"}]}
        "#,
        expect![[r#"
            > call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/a.txt"},{"op":"read","path":"$ROOT/.env"}]}
              ? puppet asks: read 2 files
              ? ! holds secrets ($ROOT/.env)
              ?   read $ROOT/a.txt
              ?   read $ROOT/.env
              ? Asked because it holds secrets; only a rule that names it allows it
            ! -32030 permission denied: the user said no {"kind":"permissionDenied","why":"the user said no"}
            > call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/a.txt"},{"op":"read","path":"$ROOT/.env"}]}
              ? puppet asks: read 2 files
              ? ! holds secrets ($ROOT/.env)
              ?   read $ROOT/a.txt
              ?   read $ROOT/.env
              ? Asked because it holds secrets; only a rule that names it allows it
            {"results":[{"op":"read","data":"a\n","encoding":"utf-8","etag":"sha256:87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7","size":2,"truncated":false,"dirty":false},{"op":"read","data":"KEY=1\n","encoding":"utf-8","etag":"sha256:929c28f541260cd8690babe97ae61472829cdf36e059c7b14e6b963f0f9ee77b","size":6,"truncated":false,"dirty":false}]}
            > call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/missing"}]}
            ! -32002 operation 0: Resource not found: $ROOT/missing {"kind":"notFound","index":0,"path":"$ROOT/missing","uri":"$ROOT/missing"}
        "#]],
    )
    .await;
    expect![[r#"
        session/start: allowed by nobody
        turn/start turn 1: allowed by nobody
        fs/read $ROOT/a.txt turn 1: denied by person (permission denied: the user said no)
        fs/read $ROOT/.env turn 1: denied by person (permission denied: the user said no)
        fs/read $ROOT/a.txt turn 1: allowed by person
        fs/read $ROOT/.env turn 1: allowed by person
        fs/read $ROOT/missing turn 1: failed by preset: ask (resource not found: $ROOT/missing)
        turn/end turn 1: allowed by nobody (EndTurn)
        session/end: allowed by nobody
    "#]]
    .assert_eq(&stage.audit_table());
}

#[tokio::test]
async fn a_host_without_reading_offers_none_of_it() {
    let offered = |read| {
        let capabilities = HostCapabilities { read, ..HostCapabilities::default() };
        json!(capabilities.to_client_capabilities())["_meta"].to_string()
    };
    expect![[r#"{"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216},"write":{"maxBytes":33554432},"batch":{"maxOperations":1000,"maxBytes":33554432},"watch":{"maxWatches":64,"maxChanges":256}}}}"#]].assert_eq(&offered(true));
    expect![[r#"{"bowline":{"decides":true,"version":1,"fs":{"write":{"maxBytes":33554432}}}}"#]]
        .assert_eq(&offered(false));
    let stage =
        HostFixture::with_options(|settings| settings.capabilities.read = false).with_file("a.txt", "a\n");
    check(&stage, r#"call _bowline/fs/read {"path":"$ROOT/a.txt"}"#, expect![[r#"
        > call _bowline/fs/read {"path":"$ROOT/a.txt"}
        ! -32601 _bowline/fs/read needs clientCapabilities._meta.bowline.fs.read, which was not advertised {"method":"_bowline/fs/read","capability":"clientCapabilities._meta.bowline.fs.read"}
    "#]]).await;
}

/// Returns the files of the project and their content.
fn tree(stage: &HostFixture) -> String {
    fn walk(directory: &Path, root: &Path, lines: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                lines.push(format!("{name}/"));
                walk(&path, root, lines);
            } else {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                lines.push(format!("{name} {text:?}"));
            }
        }
    }
    let root = PathBuf::from(stage.lab.path(""));
    let mut lines = Vec::new();
    walk(&root, &root, &mut lines);
    lines.sort();
    lines.join("\n") + "\n"
}

#[tokio::test]
async fn files_are_written_in_every_way() {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_file("a.txt", "one\n")
        .with_file("known.txt", "known\n");
    check(
        &stage,
        r#"
        call _bowline/fs/write {"path":"$ROOT/a.txt","data":"two\n","mode":"append"}
        call _bowline/fs/write {"path":"$ROOT/a.txt","data":"1.5\n","mode":"insert","position":4}
        call _bowline/fs/write {"path":"$ROOT/a.txt","data":"x","mode":"insert","position":99}
        call _bowline/fs/write {"path":"$ROOT/new.bin","data":"AAH/","encoding":"base64","createOnly":true}
        call _bowline/fs/write {"path":"$ROOT/new.bin","data":"AAH/","encoding":"base64","createOnly":true}
        call _bowline/fs/write {"path":"$ROOT/new.bin","data":"not base64","encoding":"base64"}
        call _bowline/fs/write {"path":"$ROOT/new.bin","data":"x","mode":"append"}
        call _bowline/fs/write {"path":"$ROOT/far/away.txt","data":"x"}
        call _bowline/fs/write {"path":"$ROOT/far/away.txt","data":"x","createParents":true}
        call _bowline/fs/write {"path":"$ROOT/a.txt","data":"x","ifMatch":"sha256:0"}
        call _bowline/fs/read {"path":"$ROOT/known.txt"}
        put known.txt USER\nknown\n
        call _bowline/fs/write {"path":"$ROOT/known.txt","data":"known\nagent\n"}
        "#,
        expect![[r#"
            > call _bowline/fs/write {"path":"$ROOT/a.txt","data":"two\n","mode":"append"}
            {"etag":"sha256:c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8","merged":false,"formatted":false}
            > call _bowline/fs/write {"path":"$ROOT/a.txt","data":"1.5\n","mode":"insert","position":4}
            {"etag":"sha256:df7ce0e4dfac314fd61d51eab4666f55a8ae71a1230515562e8f0e51b806c652","merged":false,"formatted":false}
            > call _bowline/fs/write {"path":"$ROOT/a.txt","data":"x","mode":"insert","position":99}
            ! -32602 99 is past the end: the content has 12 bytes {"kind":"outOfRange","position":99,"size":12}
            > call _bowline/fs/write {"path":"$ROOT/new.bin","data":"AAH/","encoding":"base64","createOnly":true}
            {"etag":"sha256:26a66b061e8f48f39927c312f25293959729eee95978e2892d49d3512a5cc092","merged":false,"formatted":false}
            > call _bowline/fs/write {"path":"$ROOT/new.bin","data":"AAH/","encoding":"base64","createOnly":true}
            ! -32602 $ROOT/new.bin already exists {"kind":"alreadyExists","path":"$ROOT/new.bin"}
            > call _bowline/fs/write {"path":"$ROOT/new.bin","data":"not base64","encoding":"base64"}
            ! -32602 the data is not base64: byte 3 is wrong {"kind":"invalidEncoding","position":3}
            > call _bowline/fs/write {"path":"$ROOT/new.bin","data":"x","mode":"append"}
            ! -32602 $ROOT/new.bin cannot be read as text: the content is binary, read it with a command that knows its kind {"kind":"notText","path":"$ROOT/new.bin","reason":"not_text","why":"the content is binary, read it with a command that knows its kind"}
            > call _bowline/fs/write {"path":"$ROOT/far/away.txt","data":"x"}
            ! -32002 Resource not found: $ROOT/far {"kind":"notFound","path":"$ROOT/far","uri":"$ROOT/far"}
            > call _bowline/fs/write {"path":"$ROOT/far/away.txt","data":"x","createParents":true}
            {"etag":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","merged":false,"formatted":false}
            > call _bowline/fs/write {"path":"$ROOT/a.txt","data":"x","ifMatch":"sha256:0"}
            ! -32602 $ROOT/a.txt: the file has changed, read it again {"kind":"conflict","path":"$ROOT/a.txt","etag":"sha256:df7ce0e4dfac314fd61d51eab4666f55a8ae71a1230515562e8f0e51b806c652","reason":"conflict","why":"the file has changed, read it again","hunks":[]}
            > call _bowline/fs/read {"path":"$ROOT/known.txt"}
            {"data":"known\n","encoding":"utf-8","etag":"sha256:7cd8a27a42d4b0084bb6c6a6c47ee7a03e7aa22d64e950d676f9a7c7a68f04d9","size":6,"truncated":false,"dirty":false}
            > put known.txt USER\nknown\n
            > call _bowline/fs/write {"path":"$ROOT/known.txt","data":"known\nagent\n"}
            {"etag":"sha256:2b413dee60dee4179913b0f27cbce2ce27662fc31a335b5c4e4927365b62fd5f","content":"USER\nknown\nagent\n","merged":true,"formatted":false}
        "#]],
    )
    .await;
    expect![[r#"
        a.txt "one\n1.5\ntwo\n"
        far/
        far/away.txt "x"
        known.txt "USER\nknown\nagent\n"
        new.bin "\0\u{1}�"
    "#]]
    .assert_eq(&tree(&stage));
}

#[tokio::test]
async fn an_append_to_a_large_file_is_shown_by_itself() {
    let large = "a line of a log\n".repeat(70_000);
    let stage = HostFixture::new().with_file("log", &large).with_person(|question| {
        let mut reply = parse_reply("yes");
        if let (QuestionReply::Answered(answer), true) = (&mut reply, question.is_editable()) {
            answer.edited_text = Some(Arc::new("edited\n".to_owned()));
        }
        reply
    });
    check(
        &stage,
        r#"
        call _bowline/fs/write {"path":"$ROOT/log","data":"one more\n","mode":"append"}
        call _bowline/fs/write {"path":"$ROOT/log","data":"AP8=","encoding":"base64","mode":"append"}
        "#,
        expect![[r#"
            > call _bowline/fs/write {"path":"$ROOT/log","data":"one more\n","mode":"append"}
              ? puppet asks: write $ROOT/log
              ?   write $ROOT/log
              ?   lines: 1 added, 0 removed
              ?   @@ -0,0 +1 @@
              ?   +one more
              ? Asked because no rule covers it, and preset ask asks before writes
            {"etag":"sha256:d783d6938d07c4179d34dc1c9a060737b1df808c4c7b6638b00ab3b3d1eba8f5","merged":false,"formatted":false}
            > call _bowline/fs/write {"path":"$ROOT/log","data":"AP8=","encoding":"base64","mode":"append"}
              ? puppet asks: write $ROOT/log
              ?   write $ROOT/log
              ? Asked because no rule covers it, and preset ask asks before writes
            {"etag":"sha256:42571b805322327763335ad24bac8868fc92ef8156bd9c4b4d8dee80516d52b5","merged":false,"formatted":false}
        "#]],
    )
    .await;
    let now = std::fs::read(stage.lab.path("log")).unwrap();
    assert_eq!(now, [large.as_bytes(), b"edited\n\0\xff"].concat());
}

#[tokio::test]
async fn a_batch_is_one_question_and_one_undo() {
    let stage = HostFixture::new()
        .with_answers(&["no", "yes"])
        .with_file("notes.md", "Remember me.\n")
        .with_file("old/a", "a\n")
        .with_file("old/deep/b", "b\n")
        .with_file("logo.png", "\u{0}PNG");
    let before = tree(&stage);
    let batch = r#"call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/notes.md"},{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/notes.md","to":"$ROOT/docs/notes.md"},{"op":"copy","from":"$ROOT/logo.png","to":"$ROOT/docs/logo.png"},{"op":"write","path":"$ROOT/docs/index.md","data":"Documents\n","createOnly":true},{"op":"remove","path":"$ROOT/old","recursive":true}]}"#;
    check(&stage, &format!("{batch}\n{batch}"), expect![[r#"
        > call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/notes.md"},{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/notes.md","to":"$ROOT/docs/notes.md"},{"op":"copy","from":"$RO
          ? puppet asks: change files, 6 operations at once
          ? ! deletes 3 files
          ?   read $ROOT/notes.md
          ?   write $ROOT/docs/notes.md
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +Remember me.
          ?   delete $ROOT/notes.md
          ?   lines: 0 added, 1 removed
          ?   @@ -1 +0,0 @@
          ?   -Remember me.
          ?   read $ROOT/logo.png
          ?   write $ROOT/docs/logo.png
          ?   write $ROOT/docs/index.md
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +Documents
          ?   delete $ROOT/old/a
          ?   lines: 0 added, 1 removed
          ?   @@ -1 +0,0 @@
          ?   -a
          ?   delete $ROOT/old/deep/b
          ?   lines: 0 added, 1 removed
          ?   @@ -1 +0,0 @@
          ?   -b
          ? Asked because no rule covers it, and preset ask asks before writes
        ! -32030 permission denied: the user said no {"kind":"permissionDenied","why":"the user said no"}
        > call _bowline/fs/batch {"operations":[{"op":"read","path":"$ROOT/notes.md"},{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/notes.md","to":"$ROOT/docs/notes.md"},{"op":"copy","from":"$RO
          ? puppet asks: change files, 6 operations at once
          ? ! deletes 3 files
          ?   read $ROOT/notes.md
          ?   write $ROOT/docs/notes.md
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +Remember me.
          ?   delete $ROOT/notes.md
          ?   lines: 0 added, 1 removed
          ?   @@ -1 +0,0 @@
          ?   -Remember me.
          ?   read $ROOT/logo.png
          ?   write $ROOT/docs/logo.png
          ?   write $ROOT/docs/index.md
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +Documents
          ?   delete $ROOT/old/a
          ?   lines: 0 added, 1 removed
          ?   @@ -1 +0,0 @@
          ?   -a
          ?   delete $ROOT/old/deep/b
          ?   lines: 0 added, 1 removed
          ?   @@ -1 +0,0 @@
          ?   -b
          ? Asked because no rule covers it, and preset ask asks before writes
        {"results":[{"op":"read","data":"Remember me.\n","encoding":"utf-8","etag":"sha256:74a1e31fbec885fcaea93b164fe7983fd7b6c2596da6c5f292321a7251fd3766","size":13,"truncated":false,"dirty":false},{"op":"mkdir"},{"op":"move"},{"op":"copy"},{"op":"write","etag":"sha256:5789f94bd426dcb372368f7fb3fd01b0f26d8dcc6403b86b7f4116d1b0f4a20f","merged":false,"formatted":false},{"op":"remove"}]}
    "#]]).await;
    expect![[r#"
        docs/
        docs/index.md "Documents\n"
        docs/logo.png "\0PNG"
        docs/notes.md "Remember me.\n"
        logo.png "\0PNG"
    "#]]
    .assert_eq(&tree(&stage));
    expect![[r#"
        session/start: allowed by nobody
        turn/start turn 1: allowed by nobody
        fs/read $ROOT/notes.md turn 1: denied by person (permission denied: the user said no)
        fs/write $ROOT/docs turn 1: denied by person (permission denied: the user said no)
        fs/write $ROOT/notes.md turn 1: denied by person (permission denied: the user said no)
        fs/write $ROOT/docs/notes.md turn 1: denied by person (permission denied: the user said no)
        fs/read $ROOT/logo.png turn 1: denied by person (permission denied: the user said no)
        fs/write $ROOT/docs/logo.png turn 1: denied by person (permission denied: the user said no)
        fs/write $ROOT/docs/index.md turn 1: denied by person (permission denied: the user said no)
        fs/write $ROOT/old turn 1: denied by person (permission denied: the user said no)
        fs/read $ROOT/notes.md turn 1: allowed by person
        fs/write $ROOT/docs turn 1: allowed by person (begins)
        fs/write $ROOT/notes.md turn 1: allowed by person (begins)
        fs/write $ROOT/docs/notes.md turn 1: allowed by person (begins)
        fs/read $ROOT/logo.png turn 1: allowed by person (begins)
        fs/write $ROOT/docs/logo.png turn 1: allowed by person (begins)
        fs/write $ROOT/docs/index.md turn 1: allowed by person (begins)
        fs/write $ROOT/old turn 1: allowed by person (begins)
        fs/write $ROOT/docs/notes.md turn 1: allowed by person
        fs/write $ROOT/notes.md turn 1: allowed by person
        fs/write $ROOT/docs/logo.png turn 1: allowed by person
        fs/write $ROOT/docs/index.md turn 1: allowed by person
        fs/write $ROOT/old/a turn 1: allowed by person
        fs/write $ROOT/old/deep/b turn 1: allowed by person
        turn/end turn 1: allowed by nobody (EndTurn)
        session/end: allowed by nobody
    "#]]
    .assert_eq(&stage.audit_table());
    stage.lab.host.workspace().undo(&ChangeSelection::default()).unwrap();
    assert_eq!(tree(&stage), before);
}

#[tokio::test]
async fn a_batch_names_the_file_that_never_rests() {
    let stage = HostFixture::new().with_file("a", "a\n").with_file("b", "b\n");
    let (path, mut times) = (stage.lab.path("b"), 0);
    let stage = stage.with_person(move |_| {
        times += 1;
        std::fs::write(&path, format!("mine {times}\n")).unwrap();
        QuestionReply::allow()
    });
    let batch = r#"call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/a","data":"A\n"},{"op":"write","path":"$ROOT/b","data":"B\n"}]}"#;
    let text = stage.play_turns(&[batch]).await;
    expect![[r#"! -32603 $ROOT/b keeps changing, try again {"kind":"internal"}"#]]
        .assert_eq(text.lines().last().unwrap());
}

#[tokio::test]
async fn a_batch_belongs_to_the_call_that_names_one_of_its_files() {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full));
    check(
        &stage,
        r#"
        update {"sessionUpdate":"tool_call","toolCallId":"c1","title":"Write b","kind":"edit","locations":[{"path":"$ROOT/d/b"}]}
        call _bowline/fs/batch {"operations":[{"op":"mkdir","path":"$ROOT/d"},{"op":"write","path":"$ROOT/d/b","data":"b\n"}]}
        "#,
        expect![[r#"
            > update {"sessionUpdate":"tool_call","toolCallId":"c1","title":"Write b","kind":"edit","locations":[{"path":"$ROOT/d/b"}]}
            > call _bowline/fs/batch {"operations":[{"op":"mkdir","path":"$ROOT/d"},{"op":"write","path":"$ROOT/d/b","data":"b\n"}]}
            {"results":[{"op":"mkdir"},{"op":"write","etag":"sha256:0263829989b6fd954f72baaf2fc64bc2e2f01d692d4de72986ea808f6e99813f","merged":false,"formatted":false}]}
        "#]],
    )
    .await;
    expect![[r#"
        session/start: allowed by nobody
        turn/start turn 1: allowed by nobody
        fs/write $ROOT/d turn 1 call c1: allowed by preset: full (begins)
        fs/write $ROOT/d/b turn 1 call c1: allowed by preset: full (begins)
        fs/write $ROOT/d/b turn 1 call c1: allowed by preset: full
        turn/end turn 1: allowed by nobody (EndTurn)
        session/end: allowed by nobody
    "#]]
    .assert_eq(&stage.audit_table());
}

#[tokio::test]
async fn a_batch_that_fails_changes_nothing() {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_file("a", "a\n")
        .with_file("full/b", "b\n");
    let before = tree(&stage);
    check(
        &stage,
        r#"
        call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"remove","path":"$ROOT/missing"}]}
        call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"remove","path":"$ROOT/full"}]}
        call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"write","path":"$ROOT/new","data":"y"}]}
        call _bowline/fs/batch {"operations":[{"op":"move","from":"$ROOT/a","to":"$ROOT/a"}]}
        call _bowline/fs/batch {"operations":[{"op":"move","from":"$ROOT/a","to":"$ROOT/full/b"}]}
        call _bowline/fs/batch {"operations":[{"op":"move","from":"$ROOT/a","to":"$BASE/a"}]}
        call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"fly","path":"$ROOT/a"}]}
        call _bowline/fs/batch {"operations":[{"op":"mkdir","path":"$ROOT/full"}]}
        call _bowline/fs/batch {"operations":[]}
        call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/.git/config","data":"x","createParents":true},{"op":"remove","path":"$ROOT/a"}]}
        "#,
        expect![[r#"
            > call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"remove","path":"$ROOT/missing"}]}
            ! -32002 operation 1: Resource not found: $ROOT/missing {"kind":"notFound","index":1,"path":"$ROOT/missing","uri":"$ROOT/missing"}
            > call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"remove","path":"$ROOT/full"}]}
            ! -32602 operation 1: $ROOT/full is not empty: remove it with recursive {"kind":"notEmpty","index":1,"path":"$ROOT/full"}
            > call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"write","path":"$ROOT/new","data":"y"}]}
            ! -32602 operation 1: $ROOT/new overlaps with operation 0 {"kind":"overlap","index":1,"path":"$ROOT/new","other":0}
            > call _bowline/fs/batch {"operations":[{"op":"move","from":"$ROOT/a","to":"$ROOT/a"}]}
            ! -32602 operation 0: $ROOT/a and $ROOT/a are the same, or one contains the other {"kind":"overlap","index":0,"path":"$ROOT/a","to":"$ROOT/a"}
            > call _bowline/fs/batch {"operations":[{"op":"move","from":"$ROOT/a","to":"$ROOT/full/b"}]}
            ! -32602 operation 0: $ROOT/full/b already exists {"kind":"alreadyExists","index":0,"path":"$ROOT/full/b"}
            > call _bowline/fs/batch {"operations":[{"op":"move","from":"$ROOT/a","to":"$BASE/a"}]}
            ! -32602 operation 0: $BASE/a is outside the session's directories {"kind":"outsideRoots","index":0,"path":"$BASE/a","reason":"outside"}
            > call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/new","data":"x"},{"op":"fly","path":"$ROOT/a"}]}
            ! -32602 operation 1: the operation is wrong: expected one of `read`, `write`, `move`, `copy`, `remove`, `mkdir` at column 11 {"kind":"badParams","index":1}
            > call _bowline/fs/batch {"operations":[{"op":"mkdir","path":"$ROOT/full"}]}
            ! -32602 operation 0: $ROOT/full already exists {"kind":"alreadyExists","index":0,"path":"$ROOT/full"}
            > call _bowline/fs/batch {"operations":[]}
            {"results":[]}
            > call _bowline/fs/batch {"operations":[{"op":"write","path":"$ROOT/.git/config","data":"x","createParents":true},{"op":"remove","path":"$ROOT/a"}]}
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"kind":"permissionDenied","why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
    assert_eq!(tree(&stage), before);
}
