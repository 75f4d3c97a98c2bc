//! Tests of what a command inherits.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::{InvalidVariableError, command_environment};

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.split_whitespace().filter_map(pair).collect()
}

fn check(inherited: &str, request: &str, expect: Expect) {
    let inherited: BTreeMap<_, _> = pairs(inherited).into_iter().collect();
    let made = command_environment(&inherited, &pairs(request)).unwrap();
    let shown: Vec<_> = made.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    expect.assert_eq(&shown.join("\n"));
}

#[test]
fn secrets_stay_with_the_host() {
    check(
        "OPENAI_API_KEY=sk AWS_SECRET_ACCESS_KEY=x AWS_PROFILE=p SSH_AUTH_SOCK=/s GH_TOKEN=t DATABASE_URL=u \
         PATH=/bin HOME=/h LANG=C LC_ALL=C TERM=xterm XDG_CACHE_HOME=/c XDG_SECRET_TOKEN=t CARGO_HOME=/cargo \
         PAGER=less EDITOR=vi BASH_ENV=/x LD_PRELOAD=/x NODE_OPTIONS=x",
        "",
        expect![[r#"
            CARGO_HOME=/cargo
            GIT_CONFIG_COUNT=2
            GIT_CONFIG_KEY_0=safe.bareRepository
            GIT_CONFIG_KEY_1=core.fsmonitor
            GIT_CONFIG_VALUE_0=explicit
            GIT_CONFIG_VALUE_1=false
            GIT_PAGER=cat
            HOME=/h
            LANG=C
            LC_ALL=C
            PAGER=cat
            PATH=/bin
            TERM=xterm
            XDG_CACHE_HOME=/c"#]],
    );
}

#[test]
fn the_request_has_the_last_word_and_its_last_word_counts() {
    check(
        "PATH=/bin",
        "PATH=/mine CI=1 CI=2 PAGER=more",
        expect![[r#"
            CI=2
            GIT_CONFIG_COUNT=2
            GIT_CONFIG_KEY_0=safe.bareRepository
            GIT_CONFIG_KEY_1=core.fsmonitor
            GIT_CONFIG_VALUE_0=explicit
            GIT_CONFIG_VALUE_1=false
            GIT_PAGER=cat
            PAGER=more
            PATH=/mine"#]],
    );
}

#[test]
fn what_cannot_be_set_is_refused() {
    let refused = |name: &str, value: &str| {
        command_environment(&BTreeMap::new(), &[(name.to_owned(), value.to_owned())]).unwrap_err()
    };
    assert_eq!(refused("", "x"), InvalidVariableError::InvalidName(String::new()));
    assert_eq!(refused("A=B", "x"), InvalidVariableError::InvalidName("A=B".to_owned()));
    assert_eq!(refused("A\0", "x"), InvalidVariableError::InvalidName("A\0".to_owned()));
    assert_eq!(refused("A", "\0"), InvalidVariableError::ContainsNul("A".to_owned()));
    assert_eq!(
        refused("A", &"x".repeat(512 * 1024)),
        InvalidVariableError::TooMany { count: 1, bytes: 512 * 1024 + 3 }
    );
    let many = vec![("A".to_owned(), String::new()); 1025];
    let refused = command_environment(&BTreeMap::new(), &many).unwrap_err();
    assert_eq!(refused, InvalidVariableError::TooMany { count: 1025, bytes: 3075 });
}
