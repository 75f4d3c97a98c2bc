//! The file extension over the wire: an agent lists, describes and reads by range, under the same rules as other reads.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, UNIX_EPOCH};

use bowline_host::HostCapabilities;
use bowline_policy::policy::Preset;
use expect_test::expect;
use serde_json::json;

use super::host_fixture::{HostFixture, check};

/// Gives a file a fixed time and mode, so that answers are the same everywhere.
fn pin(stage: &HostFixture, name: &str) {
    let path = std::path::PathBuf::from(stage.lab.path(name));
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
        call _bowline/fs/write {"path":"$ROOT/a.txt","data":"x"}
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
            > call _bowline/fs/write {"path":"$ROOT/a.txt","data":"x"}
            ! -32601 _bowline/fs/write needs clientCapabilities._meta.bowline.fs.write, which was not advertised {"method":"_bowline/fs/write","capability":"clientCapabilities._meta.bowline.fs.write"}
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
async fn a_host_without_reading_offers_none_of_it() {
    let offered = |read| {
        let capabilities = HostCapabilities { read, ..HostCapabilities::default() };
        json!(capabilities.to_client_capabilities())["_meta"].to_string()
    };
    expect![[r#"{"bowline":{"decides":true,"version":1,"fs":{"list":{"maxEntries":2000},"stat":{},"read":{"maxBytes":16777216}}}}"#]].assert_eq(&offered(true));
    expect![[r#"{"bowline":{"decides":true}}"#]].assert_eq(&offered(false));
    let stage =
        HostFixture::with_options(|settings| settings.capabilities.read = false).with_file("a.txt", "a\n");
    check(&stage, r#"call _bowline/fs/read {"path":"$ROOT/a.txt"}"#, expect![[r#"
        > call _bowline/fs/read {"path":"$ROOT/a.txt"}
        ! -32601 _bowline/fs/read needs clientCapabilities._meta.bowline.fs.read, which was not advertised {"method":"_bowline/fs/read","capability":"clientCapabilities._meta.bowline.fs.read"}
    "#]]).await;
}
