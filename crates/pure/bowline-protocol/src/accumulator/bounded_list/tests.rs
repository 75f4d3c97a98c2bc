//! Tests of the bounded list: lookup and eviction.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;

/// A name and letters; shrinking drops the first letter, unless it is `!`.
#[derive(Clone)]
struct TestItem(&'static str, String);

impl ListItem for TestItem {
    fn key(&self) -> Option<ItemKey> {
        (self.0 != "-").then(|| ItemKey { tag: 0, id: self.0.into() })
    }

    fn bytes(&self) -> u64 {
        self.1.len() as u64
    }

    fn shrink(&mut self) {
        if !self.1.is_empty() && !self.1.starts_with('!') {
            self.1.remove(0);
        }
    }
}

/// Each step pushes an item (`=`) or extends one (`+`).
fn check(cap: (u64, u64), steps: &[(&'static str, char, &str)], expected: Expect) {
    let mut list = BoundedList::new(ListLimits { items: cap.0, bytes: cap.1 });
    let mut out = String::new();
    for &(name, step, letters) in steps {
        if step == '=' {
            list.push(TestItem(name, letters.to_owned()));
        } else if let Some(position) = list.find(0, name) {
            list.update(position, |item| item.1.push_str(letters));
        }
        for item in list.iter() {
            write!(out, "{}:{} ", item.0, item.1).unwrap();
            if item.0 != "-" {
                assert_eq!(list.find(0, item.0).and_then(|at| list.get(at)).unwrap().1, item.1);
                assert_eq!(list.find(1, item.0), None);
            }
        }
        let EvictionStats { items, bytes } = list.evicted();
        writeln!(out, "| lost {items}/{bytes} of {}", list.total_pushed()).unwrap();
    }
    expected.assert_eq(&out);
}

#[test]
fn the_oldest_goes_when_there_are_too_many() {
    check(
        (2, 100),
        &[
            ("a", '=', "A"),
            ("b", '=', "BB"),
            ("c", '=', "C"),
            ("a", '+', "x"),
            ("b", '+', "B"),
            ("-", '=', "D"),
        ],
        expect![[r#"
            a:A | lost 0/0 of 1
            a:A b:BB | lost 0/0 of 2
            b:BB c:C | lost 1/1 of 3
            b:BB c:C | lost 1/1 of 3
            b:BBB c:C | lost 1/1 of 3
            c:C -:D | lost 2/4 of 4
        "#]],
    );
}

#[test]
fn the_oldest_goes_when_they_are_too_large() {
    check(
        (10, 6),
        &[
            ("a", '=', "!A"),
            ("b", '=', "!B"),
            ("c", '=', "CC"),
            ("c", '+', "C"),
            ("a", '=', "A"),
            ("a", '+', "AA"),
        ],
        expect![[r#"
            a:!A | lost 0/0 of 1
            a:!A b:!B | lost 0/0 of 2
            a:!A b:!B c:CC | lost 0/0 of 3
            b:!B c:CCC | lost 1/2 of 3
            b:!B c:CCC a:A | lost 1/2 of 4
            c:CCC a:AAA | lost 2/4 of 4
        "#]],
    );
}

#[test]
fn the_oldest_shrinks_before_it_goes() {
    check(
        (10, 4),
        &[("a", '=', "1234"), ("a", '+', "56"), ("b", '=', "!2345"), ("c", '=', "1")],
        expect![[r#"
            a:1234 | lost 0/0 of 1
            a:3456 | lost 0/2 of 1
            | lost 2/11 of 2
            c:1 | lost 2/11 of 3
        "#]],
    );
}

#[test]
fn a_shelf_for_nothing_holds_nothing() {
    check(
        (0, 4),
        &[("a", '=', "1")],
        expect![[r#"
            | lost 1/1 of 1
        "#]],
    );
}

#[test]
fn changing_what_is_gone_changes_nothing() {
    let mut list = BoundedList::new(ListLimits { items: 1, bytes: 100 });
    let gone = list.push(TestItem("a", "A".into()));
    list.push(TestItem("b", "B".into()));
    list.update(gone, |item| item.1.push('x'));
    list.update(1000, |item| item.1.push('x'));
    assert_eq!(list.total_pushed(), 2);
    assert_eq!(list.iter().map(|item| item.1.as_str()).collect::<Vec<_>>(), ["B"]);
}

#[test]
fn ten_thousand_ids_are_each_found() {
    let mut list = BoundedList::new(ListLimits { items: 10_000, bytes: 1 << 20 });
    let names: Vec<&'static str> = (0..12_000).map(|at| &*at.to_string().leak()).collect();
    for name in &names {
        list.push(TestItem(name, String::new()));
    }
    let found =
        |name: &str| list.find(0, name).and_then(|at| list.get(at)).is_some_and(|item| item.0 == name);
    assert!(names[..2000].iter().all(|name| list.find(0, name).is_none()));
    assert!(names[2000..].iter().all(|name| found(name)));
}
