//! Approvals: a batch does what was shown, or nothing.

use super::*;

#[test]
fn what_was_approved_is_checked_again() {
    check(
        r#"
            disk ~/a "one\n"
            disk ~/d/x "x\n"
            read ~/a
            preview [{"op":"write","path":"~/a","data":"two\n"},{"op":"remove","path":"~/d","recursive":true}]
            disk ~/d/y "y\n"
            agreed [{"op":"write","path":"~/a","data":"two\n"},{"op":"remove","path":"~/d","recursive":true}]
            preview [{"op":"write","path":"~/a","data":"two\n"},{"op":"remove","path":"~/d","recursive":true}]
            agreed [{"op":"write","path":"~/a","data":"two\n"},{"op":"remove","path":"~/d","recursive":true}]
            paths ["~/a"] [{"op":"write","path":"~/b","data":"b\n"}]
            paths ["~/b"] [{"op":"write","path":"~/b","data":"b\n"}]
            paths ["~/e/f/c"] [{"op":"write","path":"~/e/f/c","data":"c\n","createParents":true}]
            paths ["~/c"] [{"op":"copy","from":"~/b","to":"~/c"}]
            paths ["~/g/x"] [{"op":"mkdir","path":"~/h"}]
            tree
        "#,
        expect![[r#"
            "one\n"
            0 ~/a: "one\n" -> "two\n"
            1 ~/d/x: "x\n" -> none
            removes ~/d
            ! -32602 ~/d/y: the result is no longer what was approved, ask again {"kind":"conflict","path":"~/d/y","reason":"conflict","why":"the result is no longer what was approved, ask again","hunks":[]}
            0 ~/a: "one\n" -> "two\n"
            1 ~/d/x: "x\n" -> none
            1 ~/d/y: "y\n" -> none
            removes ~/d
            write: 1 changes, "two\n"
            remove: 2 changes
            ! -32602 ~/b: the result is no longer what was approved, ask again {"kind":"conflict","path":"~/b","reason":"conflict","why":"the result is no longer what was approved, ask again","hunks":[]}
            write: 1 changes, "b\n"
            write: 1 changes, "c\n"
            ! -32602 ~/c: the result is no longer what was approved, ask again {"kind":"conflict","path":"~/c","reason":"conflict","why":"the result is no longer what was approved, ask again","hunks":[]}
            ! -32602 ~/h: the result is no longer what was approved, ask again {"kind":"conflict","path":"~/h","reason":"conflict","why":"the result is no longer what was approved, ask again","hunks":[]}
            ~/a "two\n"
            ~/b "b\n"
            ~/e/
            ~/e/f/
            ~/e/f/c "c\n"
        "#]],
    );
}

#[test]
fn an_approval_of_unsaved_text_covers_its_saving() {
    check(
        r#"
            disk ~/a "one\n"
            read ~/a
            open ~/a
            type ~/a "one\ntyped\n"
            preview [{"op":"write","path":"~/a","data":"more\n","mode":"append"}]
            agreed [{"op":"write","path":"~/a","data":"more\n","mode":"append"}]
            tree
        "#,
        expect![[r#"
            "one\n"
            0 ~/a: "one\ntyped\n" -> "one\ntyped\nmore\n"
            write: 1 changes, "one\ntyped\nmore\n", merged
            ~/a "one\ntyped\nmore\n"
        "#]],
    );
}

#[test]
fn protected_paths_are_shown_on_both_sides() {
    check(
        r#"
            disk ~/.git/config "x\n"
            disk ~/.env "secret\n"
            disk ~/a "a\n"
            preview [{"op":"copy","from":"~/.env","to":"~/copy"},{"op":"move","from":"~/a","to":"~/.git/hooks"},{"op":"remove","path":"~/.git/config"}]
        "#,
        expect![[r#"
            0 ~/copy: none -> "secret\n", copied from ~/.env, source: Secrets
            1 ~/.git/hooks: none -> "a\n", moved from ~/a, protected: VcsHook
            1 ~/a: "a\n" -> none
            2 ~/.git/config: "x\n" -> none, protected: Repository
        "#]],
    );
}
