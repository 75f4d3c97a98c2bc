//! Tests of markdown trees.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Compares the blocks of a text, one for each line.
fn check(text: &str, expected: Expect) {
    let lines: Vec<String> = parse(text)
        .iter()
        .map(|block| {
            format!("{}-{} {}\n", block.start, block.end, serde_json::to_string(&block.node).unwrap())
        })
        .collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn text_becomes_elements() {
    check(
        "# Title\n\nSome *text* with `code`,\na [link](https://example.com) and ~~not~~.\n\n- [x] done\n- open\n\n3. three\n",
        expect![[r#"
            0-8 {"t":"h1","c":["Title"]}
            9-77 {"t":"p","c":["Some ",{"t":"em","c":["text"]}," with ",{"t":"code","c":["code"]},",\na ",{"t":"a","a":{"href":"https://example.com"},"c":["link"]}," and ",{"t":"del","c":["not"]},"."]}
            78-97 {"t":"ul","c":[{"t":"li","c":[{"t":"input","a":{"checked":true}},"done"]},{"t":"li","c":["open"]}]}
            97-106 {"t":"ol","a":{"start":3},"c":[{"t":"li","c":["three"]}]}
        "#]],
    );
    check(
        "| a | b |\n|:--|--:|\n| 1 | **2** |\n",
        expect![[r#"
        0-34 {"t":"table","c":[{"t":"thead","c":[{"t":"tr","c":[{"t":"th","a":{"align":"left"},"c":["a"]},{"t":"th","a":{"align":"right"},"c":["b"]}]}]},{"t":"tbody","c":[{"t":"tr","c":[{"t":"td","a":{"align":"left"},"c":["1"]},{"t":"td","a":{"align":"right"},"c":[{"t":"strong","c":["2"]}]}]}]}]}
    "#]],
    );
    check(
        "```rust ignore\nfn main() {}\n```\n> quoted\n\n---\n",
        expect![[r#"
        0-31 {"t":"pre","a":{"lang":"rust"},"c":["fn main() {}\n"]}
        32-41 {"t":"blockquote","c":[{"t":"p","c":["quoted"]}]}
        42-46 {"t":"hr"}
    "#]],
    );
}

#[test]
fn markup_of_the_model_stays_text() {
    check(
        "<script>alert(1)</script>\n\na <img src=x onerror=alert(1)> b\n",
        expect![[r#"
        0-26 {"t":"p","c":["<script>alert(1)</script>\n"]}
        27-60 {"t":"p","c":["a <img src=x onerror=alert(1)> b"]}
    "#]],
    );
    check(
        "[a](javascript:alert(1)) [b](data:text/html,x) [c](//evil.example) [d](HTTPS://ok.example)",
        expect![[r#"
            0-90 {"t":"p","c":["a b c ",{"t":"a","a":{"href":"HTTPS://ok.example"},"c":["d"]}]}
        "#]],
    );
    check(
        "![alt](https://evil.example/pixel.png) ![alt](/local.png)",
        expect![[r#"
        0-57 {"t":"p","c":[{"t":"a","a":{"href":"https://evil.example/pixel.png"},"c":["alt"]}," alt"]}
    "#]],
    );
    check(
        "``` onclick=\"x\"\ncode\n```\n",
        expect![[r#"
        0-24 {"t":"pre","c":["code\n"]}
    "#]],
    );
}

#[test]
fn blocks_say_where_they_stand_in_utf_16() {
    check(
        "é🦀 x\n\nnext\n\n* a\n* b",
        expect![[r#"
        0-6 {"t":"p","c":["é🦀 x"]}
        7-12 {"t":"p","c":["next"]}
        13-20 {"t":"ul","c":[{"t":"li","c":["a"]},{"t":"li","c":["b"]}]}
    "#]],
    );
}

#[test]
fn nesting_has_a_limit() {
    let depth = |text: &str| {
        fn depth(node: &Node) -> usize {
            match node {
                Node::Text(_) => 0,
                Node::Element { children, .. } => 1 + children.iter().map(depth).max().unwrap_or(0),
            }
        }
        parse(text).iter().map(|block| depth(&block.node)).max().unwrap_or(0)
    };
    assert_eq!(depth(&format!("{}text", "> ".repeat(500))), MAX_DEPTH);
    assert_eq!(depth("> text"), 2);
}

/// Returns the first part of a tree that the page must not see.
fn find_foreign(node: &Node) -> Option<String> {
    let Node::Element { tag, attributes, children } = node else { return None };
    let is_known = TAGS.contains(tag) || *tag == TASK_TAG;
    let foreign = attributes.iter().find(|(name, value)| {
        let is_plain = match name.as_str() {
            "href" => value.as_str().is_some_and(|address| {
                let address = address.to_ascii_lowercase();
                ["http://", "https://", "mailto:"].iter().any(|scheme| address.starts_with(scheme))
            }),
            "lang" | "align" => value.as_str().is_some_and(|text| !text.contains([' ', '"', '<', '\''])),
            "checked" => value.is_boolean(),
            "start" => value.is_u64(),
            _ => false,
        };
        !is_plain || !ATTRIBUTES.contains(&name.as_str())
    });
    if !is_known {
        return Some((*tag).to_owned());
    }
    foreign
        .map(|(name, value)| format!("{tag} {name}={value}"))
        .or_else(|| children.iter().find_map(find_foreign))
}

proptest! {
    #[test]
    fn no_tree_has_a_foreign_element_or_attribute(
        parts in prop::collection::vec(
            prop_oneof![
                Just("<script>"), Just("</script>"), Just("<img src=x onerror=a>"), Just("](javascript:a)"), Just("["),
                Just("!["), Just("](https://e.example 't')"), Just("](data:a)"), Just("](mailto:a@b)"), Just("<https://e.example>"),
                Just("<javascript:a>"), Just("\n\n"), Just("\n"), Just("```"), Just("~~~ a\"b"), Just("> "), Just("- "), Just("1. "),
                Just("- [x] "), Just("|"), Just("|--|:-:|"), Just("*"), Just("**"), Just("~~"), Just("`"), Just("# "), Just("&lt;"),
                Just("[a]: javascript:b"), Just("[a]"), Just("\\"), Just("    "), Just("\u{202e}"), Just("é"), Just("🦀"), Just("\0"),
            ],
            0..40,
        ),
        tail in ".{0,40}",
    ) {
        let text = parts.concat() + &tail;
        let blocks = parse(&text);
        for block in &blocks {
            prop_assert_eq!(find_foreign(&block.node), None);
        }
        // A page that streams relies on these.
        let units = text.encode_utf16().count();
        for pair in blocks.windows(2) {
            prop_assert!(pair[0].start <= pair[0].end && pair[0].end <= pair[1].end, "{blocks:?}");
        }
        prop_assert!(blocks.last().is_none_or(|last| last.end <= units));
    }
}
