//! Tests of the keyring.

use std::fmt::Write as _;

use expect_test::expect;

use super::*;

#[test]
fn a_given_key_comes_before_a_stored_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bowline/keys.json");
    let keys = Keyring::new(Some(file));
    assert!(keys.key(Provider::OpenAi).unwrap().is_none());
    keys.store_key(Provider::OpenAi, " sk-stored\n").unwrap();
    keys.store_key(Provider::Gemini, "g").unwrap();
    let provided = keys.clone().with_key(Provider::OpenAi, "sk-given").with_key(Provider::Anthropic, " ");
    let mut out = String::new();
    for ring in [&keys, &provided] {
        for provider in Provider::ALL {
            let key = ring.key(provider).unwrap();
            let key = key.map(|(key, source)| format!("{} {source:?}", key.reveal()));
            writeln!(out, "{}: {key:?}", provider.id()).unwrap();
        }
        writeln!(out, "{:?}", ring.providers()).unwrap();
    }
    expect![[r#"
        anthropic: None
        openai: Some("sk-stored Stored")
        gemini: Some("g Stored")
        ollama: None
        compatible: None
        {OpenAi: Stored, Gemini: Stored}
        anthropic: None
        openai: Some("sk-given Provided")
        gemini: Some("g Stored")
        ollama: None
        compatible: None
        {OpenAi: Provided, Gemini: Stored}
    "#]]
    .assert_eq(&out);
    assert!(keys.remove_stored_key(Provider::OpenAi).unwrap());
    assert!(!keys.remove_stored_key(Provider::OpenAi).unwrap());
    assert_eq!(keys.providers().into_keys().collect::<Vec<_>>(), [Provider::Gemini]);
}

#[cfg(unix)]
#[test]
fn the_file_is_the_users_alone_or_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("a/b");
    let file = directory.join("keys.json");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let keys = Keyring::new(Some(file.clone()));
    keys.store_key(Provider::Anthropic, "secret").unwrap();
    assert_eq!((mode(&file), mode(&directory)), (0o600, 0o700));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside the file");
    let describe =
        |error: KeyringError| error.to_string().replace(&root.path().display().to_string(), "$PLACE");

    let mut out = String::new();
    set(&file, 0o640);
    writeln!(out, "{}", describe(keys.key(Provider::Anthropic).unwrap_err())).unwrap();
    writeln!(out, "{}", describe(keys.store_key(Provider::Anthropic, "other").unwrap_err())).unwrap();
    writeln!(out, "{:?}", keys.providers()).unwrap();
    set(&file, 0o600);
    set(&directory, 0o770);
    writeln!(out, "{}", describe(keys.store_key(Provider::Anthropic, "other").unwrap_err())).unwrap();
    set(&directory, 0o700);
    fs::write(&file, r#"{"anthropic": sk-oops}"#).unwrap();
    writeln!(out, "{}", describe(keys.key(Provider::Anthropic).unwrap_err())).unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    writeln!(out, "{}", describe(keys.key(Provider::Anthropic).unwrap_err())).unwrap();
    expect![[r#"
        $PLACE/a/b/keys.json can be read by others, so it is not used: run `chmod 600 $PLACE/a/b/keys.json` and replace the keys in it
        $PLACE/a/b/keys.json can be read by others, so it is not used: run `chmod 600 $PLACE/a/b/keys.json` and replace the keys in it
        {}
        $PLACE/a/b can be changed by others, so no key is stored there: run `chmod 700 $PLACE/a/b`
        $PLACE/a/b/keys.json is no file of keys: it is not as expected at line 1; repair or remove it
        $PLACE/a/b/keys.json is no file of keys: it is not a regular file; repair or remove it
    "#]]
    .assert_eq(&out);
}

#[test]
fn what_cannot_be_used_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    let keys = Keyring::new(Some(file.clone()));
    assert!(keys.clone().with_key(Provider::OpenAi, " ").problem().is_none());
    let keys = keys.with_key(Provider::OpenAi, "sk-abc def").with_key(Provider::Gemini, "g");
    let variable = keys.key(Provider::OpenAi).unwrap_err().to_string();
    expect!["OPENAI_API_KEY is set, but holds no key: a key is printable and has no blanks; set it again or unset it"]
        .assert_eq(&variable);
    assert_eq!(keys.problem().unwrap().to_string(), variable);
    assert_eq!(keys.providers(), BTreeMap::from([(Provider::Gemini, KeySource::Provided)]));
    fs::create_dir(&file).unwrap();
    let message = keys.problem().unwrap().to_string();
    assert!(
        message.ends_with("is no file of keys: it is not a regular file; repair or remove it"),
        "{message}"
    );
    assert!(keys.key(Provider::Gemini).unwrap().is_some());
}

#[test]
fn nothing_shows_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let keys = Keyring::new(Some(directory.path().join("keys"))).with_key(Provider::OpenAi, "sk-secret");
    let debug = format!("{keys:?} {:?}", keys.key(Provider::OpenAi).unwrap());
    assert!(!debug.contains("secret"), "{debug}");
    for text in ["", " ", "two words", "line\nbreak", "ünicode", &"x".repeat(MAX_KEY_BYTES + 1)] {
        assert!(ApiKey::new(text).is_err(), "{text:?}");
    }
    expect!["there is no place to store keys in: set the variable OPENAI_API_KEY instead"]
        .assert_eq(&Keyring::default().store_key(Provider::OpenAi, "sk").unwrap_err().to_string());
}

#[test]
fn a_key_is_hidden_in_what_others_say() {
    let key = ApiKey::new("sk-abcdefgh-ijklmnop").unwrap();
    for (text, expected) in [
        ("bad key: sk-abcdefgh-ijklmnop.", "bad key: …."),
        ("sk-abcdefgh-ijklmnopsk-abcdefgh-ijklmnop", "……"),
        ("sk-abcde… and …ijklmnop", "…… and ……"),
        ("sk-abcd, klmnop", "sk-abcd, klmnop"),
        ("ü sk-abcdefgh-ijklmno", "ü …"),
        ("", ""),
    ] {
        assert_eq!(key.redact(text), expected);
    }
    assert_eq!(ApiKey::new("ollama").unwrap().redact("ollama says no"), "ollama says no");
}

#[test]
fn what_a_crash_left_behind_is_not_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys");
    fs::write(directory.path().join(format!(".keys.{}", std::process::id())), "half").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let keys = Keyring::new(Some(file));
    keys.store_key(Provider::OpenAi, "sk").unwrap();
    assert!(keys.key(Provider::OpenAi).unwrap().is_some());
}
