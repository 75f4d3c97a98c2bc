//! Tests of redaction: what counts as a secret and what does not.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn check(texts: &str, expected: Expect) {
    let redacted: Vec<Cow<'_, str>> = texts.trim().lines().map(|line| redact(line.trim())).collect();
    expected.assert_eq(&(redacted.join("\n") + "\n"));
}

#[test]
fn a_named_value_is_replaced() {
    check(
        r#"
        curl --token abc123 https://example.org
        tool --api-key=abc123 --verbose
        tool --password 'two words' file
        PASSWORD=hunter2 GITHUB_TOKEN="a b" make
        export AWS_SECRET_ACCESS_KEY=abc/def+ghi
        {"apiKey": "v1", "name": "ok", "client_secret":"v2"}
        "{\"token\":\"v1\",\"n\":1}"
        password = "toml value" # comment
        db_password: yaml-value
        'secret' => 'ruby value',
        https://example.org/?access_token=abc&page=2
        mysql -uroot -phunter2 shop
        sshpass -p hunter2 ssh host
        curl -u user:hunter2 https://example.org
        SENTRY_DSN=https://abc@sentry.io/1 run
        "#,
        expect![[r#"
            curl --token [redacted] https://example.org
            tool --api-key=[redacted] --verbose
            tool --password '[redacted]' file
            PASSWORD=[redacted] GITHUB_TOKEN="[redacted]" make
            export AWS_SECRET_ACCESS_KEY=[redacted]
            {"apiKey": "[redacted]", "name": "ok", "client_secret":"[redacted]"}
            "{\"token\":\"[redacted]\",\"n\":1}"
            password = "[redacted]" # comment
            db_password: [redacted]
            'secret' => '[redacted]',
            https://example.org/?access_token=[redacted]&page=2
            mysql -uroot -p[redacted] shop
            sshpass -p [redacted] ssh host
            curl -u user:[redacted] https://example.org
            SENTRY_DSN=[redacted] run
        "#]],
    );
}

#[test]
fn credentials_in_headers_are_replaced_and_what_follows_is_not() {
    check(
        r#"
        curl -H 'Authorization: Bearer abc.def-ghi' https://example.org
        Authorization: Basic dXNlcjpwYXNz
        -H "Cookie: sid=abc; theme=dark" --next
        Cookie: sid=abc; rm -rf /
        X-Api-Key: abc123
        got Bearer eyJhbGciOi12345 back
        the bearer of this letter
        Proxy-Authorization: token abcdefgh1
        "#,
        expect![[r#"
            curl -H 'Authorization: Bearer [redacted]' https://example.org
            Authorization: Basic [redacted]
            -H "Cookie: [redacted]; theme=[redacted]" --next
            Cookie: [redacted]; rm -rf /
            X-Api-Key: [redacted]
            got Bearer [redacted] back
            the bearer of this letter
            Proxy-Authorization: token [redacted]
        "#]],
    );
}

#[test]
fn a_command_cannot_be_hidden_behind_a_name() {
    check(
        r#"
        TOKEN= rm -rf /
        KEY=x; rm -rf /
        password=x&&rm -rf /
        echo --token; rm -rf /
        echo token rm -rf /
        SECRET=$(rm -rf /)
        SECRET="$(rm -rf /)"
        echo -----BEGIN PRIVATE KEY-----; rm -rf /; echo -----END PRIVATE KEY-----
        "#,
        expect![[r#"
            TOKEN= rm -rf /
            KEY=[redacted]; rm -rf /
            password=[redacted]&&rm -rf /
            echo --token; rm -rf /
            echo token rm -rf /
            SECRET=[redacted](rm -rf /)
            SECRET="$(rm -rf /)"
            echo [redacted]
        "#]],
    );
}

#[test]
fn known_shapes_are_replaced_wherever_they_stand() {
    check(
        "
        echo sk-proj-abcdefghijklmnop1234 done
        ghp_abcdefghijklmnopqrstuvwxyz0123456789
        (github_pat_11ABCDEFG0abcdefghijklmnop)
        xoxb-123456789012-abcdef
        AKIAIOSFODNN7EXAMPLE
        AIzaSyA1234567890abcdefghijklmnopqrstuv
        glpat-abcdefghij1234567890
        npm_abcdefghijklmnopqrstuvwxyz0123456789
        eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def_ghi.
        git clone https://user:hunter2@example.org/x.git
        https://abcdefghijklmnopqrstu@example.org/
        ssh://git@example.org/x.git
        postgres://app:p@ss@db/shop
        ",
        expect![[r#"
            echo [redacted] done
            [redacted]
            ([redacted])
            [redacted]
            [redacted]
            [redacted]
            [redacted]
            [redacted]
            [redacted].
            git clone https://user:[redacted]@example.org/x.git
            https://[redacted]@example.org/
            ssh://git@example.org/x.git
            postgres://app:[redacted]@db/shop
        "#]],
    );
}

#[test]
fn a_private_key_is_replaced_as_a_whole() {
    let text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb\n-----BEGIN PUBLIC KEY-----\nMIIB";
    expect![[r#"
        a
        [redacted]
        b
        -----BEGIN PUBLIC KEY-----
        MIIB"#]]
    .assert_eq(&redact(text));
    assert_eq!(redact("-----BEGIN PRIVATE KEY-----\ncut"), REDACTED);
}

#[test]
fn what_follows_a_mark_is_no_part_of_it() {
    let redacted = redact("--token -----BEGIN PRIVATE KEY-----mysql -p").into_owned();
    assert_eq!(redact(&redacted), redacted);
}

#[test]
fn ordinary_text_stays() {
    for text in [
        "cargo test -p bowline-state",
        "mkdir -p src/tokens",
        "the key to success",
        "PWD=/home/me OLDPWD=/ ls",
        "author: Jane <jane@example.org>",
        "task-list-with-a-very-long-name-1234567890",
        "tokenizer.rs:12: fn next()",
        "git@github.com:owner/repository.git",
        "PUBLIC_KEY=abc",
        "monkey=see",
        "https://example.org/a@b",
        "sk-learn-is-a-package-name",
        "eyJust a word",
        "3f786850e387550fdab836ed7e6dc881de23001b",
    ] {
        assert_eq!(redact(text), text);
        assert!(matches!(redact(text), Cow::Borrowed(_)));
    }
}

#[test]
fn names_tell_of_secrets() {
    for name in [
        "TOKEN",
        "GH_TOKEN",
        "OPENAI_API_KEY",
        "apiKey",
        "authToken",
        "SSH_AUTH_SOCK",
        "DB_PASSWD",
        "client-secret",
        "COOKIE",
        "SENTRY_DSN",
        "AWS_ACCESS_KEY_ID",
        "PGPASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "passphrase",
    ] {
        assert!(is_secret_name(name), "{name}");
    }
    for name in ["PATH", "PWD", "AUTHOR", "KEYBOARD", "PUBLIC_KEY", "MONKEY", "TOKENIZER", "LANG", "", "é"] {
        assert!(!is_secret_name(name), "{name}");
    }
    assert!(!is_secret_name(&"KEY_".repeat(1000)));
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "password", "--token", "token", "=", ":", " ", "\"", "'", "\\\"", "Bearer", "Authorization",
            "Cookie", "; ", "://", "@", "sk-abcdefghijklmnop1234", "ghp_abcdefghijklmnopqr1",
            "eyJhbGciOi.eyJzdWIi.abc", "mysql -p", "curl -u ", "sshpass -p ", "-----BEGIN PRIVATE KEY-----",
            "\n", "[redacted]", "&", "ä", "-", "AKIA", "key", "=>", "\\", ".",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn redacting_twice_changes_nothing(text in any_text()) {
        let redacted = redact(&text).into_owned();
        prop_assert_eq!(redact(&redacted), redacted.as_str());
        prop_assert!(redacted.len() <= text.len() * (REDACTED.len() + 1));
    }
}

#[test]
fn hostile_text_takes_no_longer_than_it_is() {
    for piece in
        ["password=", "://", "a:b@", "-----BEGIN ", "\\\"key\\\":", "eyJa.", "Cookie: a=b; ", "Bearer ", "-"]
    {
        let text = piece.repeat((1 << 20) / piece.len());
        assert!(redact(&text).len() <= text.len() * 3);
    }
}
