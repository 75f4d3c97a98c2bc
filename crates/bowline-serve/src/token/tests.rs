//! Tokens and roles.

use super::*;

#[test]
fn a_token_verifies_only_with_its_own_secret_and_before_its_end() {
    let (token, text) = StoredToken::generate("ci", Role::User, Timestamp(10), Some(Timestamp(20))).unwrap();
    let (id, secret) = parse_token(&text).unwrap();
    assert_eq!((id, secret.len()), (&*token.id, 64));
    assert_eq!(token.verify(secret, Timestamp(19)).unwrap().name, "ci");
    assert_eq!(token.verify(secret, Timestamp(20)), None, "expired");
    assert_eq!(token.verify(&secret[1..], Timestamp(19)), None);
    let (other, _) = StoredToken::generate("ci", Role::User, Timestamp(10), None).unwrap();
    assert_eq!(other.verify(secret, Timestamp(19)), None);
}

#[test]
fn names_are_plain() {
    for name in ["", "a b", "a/b", "é", &"x".repeat(65)] {
        assert_eq!(
            StoredToken::generate(name, Role::User, Timestamp(0), None).unwrap_err(),
            TokenError::Name
        );
    }
}

#[test]
fn roles_and_what_they_may() {
    let table: String = [Role::Observer, Role::User, Role::Admin]
        .map(|role| {
            let principal = Principal { name: "me".into(), role, token: String::new() };
            let own = (principal.may_see("me"), principal.may_use("me"));
            let others = (principal.may_see("you"), principal.may_use("you"));
            assert_eq!(Role::from_name(role.name()), Some(role));
            format!("{}: own {own:?} others {others:?}\n", role.name())
        })
        .concat();
    expect_test::expect![[r"
        observer: own (true, false) others (true, false)
        user: own (true, true) others (false, false)
        admin: own (true, true) others (true, true)
    "]]
    .assert_eq(&table);
}
