//! Tests of escaping untrusted text for display.

use super::*;
use expect_test::expect;
use proptest::prelude::*;

#[test]
fn what_steers_or_hides_is_escaped() {
    let texts = [
        "plain text, ä 漢字 ✓",
        "esc \u{1b}[31mred\u{7}",
        "line\nfeed\ttab\rreturn",
        "abc\u{202e}gpj.exe",
        "zero\u{200b}width\u{feff}",
        "tag\u{e0041}\u{e0042}",
        "heart \u{2764}\u{fe0f} and data a\u{fe01}\u{fe02}\u{e0101}",
        "sep\u{2028}a\u{2029}b",
        "e\u{301} z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}",
        "blank\u{3164}\u{2800}\u{ad}",
        "c1 \u{9b}31m",
    ];
    let shown: Vec<String> = texts.iter().map(|text| escape_line(text, 200)).collect();
    expect![[r#"
        plain text, ä 漢字 ✓
        esc \u{1b}[31mred\u{7}
        line\nfeed\ttab\rreturn
        abc\u{202e}gpj.exe
        zero\u{200b}width\u{feff}
        tag\u{e0041}\u{e0042}
        heart ❤️ and data a\u{fe01}\u{fe02}\u{e0101}
        sep\u{2028}a\u{2029}b
        é z̀́̂̃\u{304}\u{305}\u{306}
        blank\u{3164}\u{2800}\u{ad}
        c1 \u{9b}31m"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn the_end_of_a_long_text_stays_in_sight() {
    let text = format!("echo {}; rm -rf /", "x".repeat(10_000_000));
    expect!["echo xxxxxxxxxxxxxxxxxxxxxxxxx…[9999955 more]…xxxxxxxxxxxxxxxxxxxx; rm -rf /"]
        .assert_eq(&escape_line(&text, 100));
    assert_eq!(escape_line("exactly ten", 11), "exactly ten");
    assert_eq!(escape_line("", 0), "");
}

#[test]
fn a_block_keeps_its_first_and_last_lines() {
    let text: String = (1..=100).map(|number| format!("\tline {number}\r\n")).collect();
    let cut = escape_block(&text, 6, 10_000);
    expect![[r#"
        	line 1\r
        	line 2\r
        	line 3\r
        …[94 more lines]…
        	line 98\r
        	line 99\r
        	line 100\r
        (94 cut)"#]]
    .assert_eq(&format!("{}({} cut)", cut.text, cut.omitted_lines));
    assert_eq!(escape_block("a\nb\n", 2, 100), EscapedBlock { text: "a\nb\n".to_owned(), omitted_lines: 0 });
    assert_eq!(escape_block("", 2, 100), EscapedBlock { text: String::new(), omitted_lines: 0 });
    let long = escape_block(&"y".repeat(10_000_000), 5, 500);
    assert!(long.text.len() <= 500 && long.text.ends_with('y'), "{}", long.text.len());
}

#[test]
fn a_quote_is_cut_where_it_no_longer_fits() {
    let fits = "x".repeat(MAX_QUOTED_BYTES);
    let cut = format!("{}…", "x".repeat(MAX_QUOTED_BYTES - 3));
    assert_eq!(quote(&fits), fits);
    assert_eq!(quote(&format!("{fits}x")), cut);
    // An escape is shown whole or not at all.
    assert_eq!(
        quote(&format!("{}\u{1b}{fits}", "x".repeat(MAX_QUOTED_BYTES - 5))),
        format!("{}…", "x".repeat(MAX_QUOTED_BYTES - 5))
    );
    assert_eq!(quote("tab\there \u{2069}\u{61c}"), r"tab\there \u{2069}\u{61c}");
}

#[test]
fn letters_that_look_alike_are_named() {
    let texts = ["ls", "привет мир", "p\u{430}ypal.com", "gr\u{3b5}p x", "ｒｍ -rf", "naïve café", "𝐫𝐦 x"];
    let warnings: Vec<String> = texts
        .iter()
        .map(|text| {
            let warning = |warning: Option<ConfusableWarning>| {
                warning.map_or("-".to_owned(), |warning| warning.to_string())
            };
            format!("{text}: {} | {}", warning(check_mixed_scripts(text)), warning(check_non_ascii(text)))
        })
        .collect();
    expect![[r#"
        ls: - | -
        привет мир: - | п[U+043F]р[U+0440]и[U+0438]в[U+0432]е[U+0435]т[U+0442] м[U+043C]и[U+0438]р[U+0440] has letters that may look like others
        pаypal.com: pа[U+0430]ypal mixes Latin and Cyrillic letters that look alike | pа[U+0430]ypal.com has letters that may look like others
        grεp x: grε[U+03B5]p mixes Latin and Greek letters that look alike | grε[U+03B5]p x has letters that may look like others
        ｒｍ -rf: ｒ[U+FF52]ｍ[U+FF4D] mixes Latin and full-width letters that look alike | ｒ[U+FF52]ｍ[U+FF4D] -rf has letters that may look like others
        naïve café: - | naïve café has letters that may look like others
        𝐫𝐦 x: 𝐫[U+1D42B]𝐦[U+1D426] mixes Latin and mathematical letters that look alike | 𝐫[U+1D42B]𝐦[U+1D426] x has letters that may look like others"#]].assert_eq(&warnings.join("\n"));
}

proptest! {
    #[test]
    fn nothing_that_steers_is_left_and_nothing_is_too_long(text in any::<String>(), times in 1..50usize, cap in 0..300usize) {
        let text = text.repeat(times);
        let shown = escape_line(&text, cap);
        prop_assert!(!shown.chars().any(|character| is_steering(character) || is_invisible(character)), "{:?}", shown);
        prop_assert!(shown.len() <= cap.max(OMISSION_MARK_BYTES), "{} for {}", shown.len(), cap);
        let block = escape_block(&text, cap / 10, cap);
        prop_assert!(!block.text.chars().any(|character| (is_steering(character) && character != '\n' && character != '\t') || is_invisible(character)));
    }

    #[test]
    fn short_plain_text_is_shown_as_it_is(text in "[ -~äöü漢字]{0,80}") {
        prop_assert_eq!(escape_line(&text, 400), text);
    }
}

#[test]
fn a_mark_that_cannot_be_seen_is_escaped_wherever_it_stands() {
    assert_eq!(escape_line("\u{34f}A\u{34f}B\u{301}", 100), "\\u{34f}A\\u{34f}B\u{301}");
}

#[test]
fn long_runs_of_blanks_are_told_by_their_number() {
    let run = |blanks: usize, breaks: usize| format!("a{}{}b", "\n".repeat(breaks), " ".repeat(blanks));
    for (blanks, breaks, expected) in [
        (20, 0, None),
        (21, 0, Some("a␣×21b")),
        (60, 1, None),
        (61, 1, Some("a␣×61⏎×1\nb")),
        (0, 8, None),
        (0, 9, Some("a⏎×9\nb")),
    ] {
        let text = run(blanks, breaks);
        assert_eq!(collapse_whitespace(&text), expected.unwrap_or(&text));
    }
    assert_eq!(collapse_whitespace(&"\u{3000}\t".repeat(50)), "␣×100");
    assert_eq!(collapse_whitespace(""), "");
}
