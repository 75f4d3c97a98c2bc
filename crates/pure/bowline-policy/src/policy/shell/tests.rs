//! Tests of the shell recogniser: lines in, words out; and lines that must be refused.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;

fn check(lines: &[&str], expected: Expect) {
    let mut out = String::new();
    for line in lines {
        write!(out, "{}: ", line.escape_debug()).unwrap();
        match parse(line) {
            Ok(line) => {
                let shown: Vec<String> = line.commands.iter().map(show_command).collect();
                writeln!(out, "{}", shown.join(" | ")).unwrap();
            }
            Err(error) => writeln!(out, "! {error}").unwrap(),
        }
    }
    expected.assert_eq(&out);
}

fn show_command(command: &SimpleCommand) -> String {
    let word = |word: &ShellWord| format!("{}{:?}", if word.is_literal { "" } else { "*" }, word.text);
    let mut shown: Vec<String> =
        command.assignments.iter().map(|(name, value)| format!("{name}={}", word(value))).collect();
    shown.extend(command.words.iter().map(word));
    shown.extend(command.redirections.iter().map(|redirection| {
        let sign = if redirection.access == RedirectionAccess::Read { "<" } else { ">" };
        format!("{sign}{}", word(&redirection.target))
    }));
    shown.join(" ")
}

#[test]
fn plain_lines_are_taken_apart() {
    check(
        &[
            "cargo test",
            "  cargo\ttest  ",
            "a 'b c' \"d e\" f\\ g",
            "a 'b'\"c\"d\\e",
            r#"a "b\"c\\d\e\$f""#,
            "a '' \"\"",
            "a;b&&c||d|e|&f&g",
            "a\nb\n\n# c\nd # e",
            "a &&\n b",
            "a && # why\n b",
            "a \\\n b",
            "A=1 B='x y' c d=e",
            "A=1",
            "a >b >>c <d 2>e 2>&1 >|f <>g <&- >&2",
            ">a b",
            "> a",
            "a *.rs ~/x b~c ~ d=~/e x[1] a?",
            "a '*' \\* \"~\" \\~",
            "find . -name '*.rs' -exec ls {} \\;",
            "a b#c",
            "a 'é\u{202e}'",
            "test a = b",
            "git show HEAD^ HEAD~1 a@b a:b a,b +x %y a%",
            "a 'b\nc'",
        ],
        expect![[r#"
            cargo test: "cargo" "test"
              cargo\ttest  : "cargo" "test"
            a \'b c\' \"d e\" f\\ g: "a" "b c" "d e" "f g"
            a \'b\'\"c\"d\\e: "a" "bcde"
            a \"b\\\"c\\\\d\\e\\$f\": "a" "b\"c\\d\\e$f"
            a \'\' \"\": "a" "" ""
            a;b&&c||d|e|&f&g: "a" | "b" | "c" | "d" | "e" | "f" | "g"
            a\nb\n\n# c\nd # e: "a" | "b" | "d"
            a &&\n b: "a" | "b"
            a && # why\n b: "a" | "b"
            a \\\n b: "a" "b"
            A=1 B=\'x y\' c d=e: A="1" B="x y" "c" "d=e"
            A=1: A="1"
            a >b >>c <d 2>e 2>&1 >|f <>g <&- >&2: "a" >"b" >"c" <"d" >"e" >"f" >"g"
            >a b: "b" >"a"
            > a: >"a"
            a *.rs ~/x b~c ~ d=~/e x[1] a?: "a" *"*.rs" *"~/x" "b~c" *"~" *"d=~/e" *"x[1]" *"a?"
            a \'*\' \\* \"~\" \\~: "a" "*" "*" "~" "~"
            find . -name \'*.rs\' -exec ls {} \\;: "find" "." "-name" "*.rs" "-exec" "ls" "{}" ";"
            a b#c: "a" "b#c"
            a \'é\u{202e}\': "a" "é\u{202e}"
            test a = b: "test" "a" "=" "b"
            git show HEAD^ HEAD~1 a@b a:b a,b +x %y a%: "git" "show" "HEAD^" "HEAD~1" "a@b" "a:b" "a,b" "+x" "%y" "a%"
            a \'b\nc\': "a" "b\nc"
        "#]],
    );
}

#[test]
fn what_is_not_surely_understood_is_refused() {
    check(
        &[
            "", "  # a", "a $b", "a \"$b\"", "a ${x@P}", "a $(b)", "a `b`", "a \"`b`\"", "a $'b\\n'",
            "a $\"b\"", "a $", "(a)", "a (b)", "f() { a; }", "{ a; }", "a {b,c}", "a x{}", "a }", "a <(b)",
            "a >(b)", "a << E\nb\nE", "a <<< b", "a &> b", "a &>> b", "a >& b", "a >&2b", "a 12> b", "a > ",
            "a >", "a > > b", "a > #b", "a >&", "a ;; b", "; a", "a & ; b", "a &&", "a |", "a && && b",
            "| a", "a |\n", "! a", "a !b", "a \"!b\"", "if a; then b; fi", "for", "time a", "coproc a",
            "[[ a ]]", "[ -f a ]", "noglob a", "- a", "function a", "~/a", "a ~user", "a ~+", "*a", "'' a",
            "%1", "a=(b)", "a+=b c", "a[0]=b", "1a=b c", "a =b", "a 'b", "a \"b", "a \\", "a\\\nb",
            "a \"b\\\nc\"", "a &\\\n& b", "a\rb", "a b\r", "a\0b", "a \u{1b}[2J", "a\u{a0}b", "a\u{2003}b",
            "a\u{feff}", "é", "a \u{202e}b", "a 'b\u{7f}'", "a\u{85}b", "a\u{b}b",
        ],
        expect![[r#"
            : ! has no command
              # a: ! has no command
            a $b: ! uses a variable or a substitution ($ or `)
            a \"$b\": ! uses a variable or a substitution ($ or `)
            a ${x@P}: ! uses a variable or a substitution ($ or `)
            a $(b): ! uses a variable or a substitution ($ or `)
            a `b`: ! uses a variable or a substitution ($ or `)
            a \"`b`\": ! uses a variable or a substitution ($ or `)
            a $\'b\\n\': ! uses a variable or a substitution ($ or `)
            a $\"b\": ! uses a variable or a substitution ($ or `)
            a $: ! uses a variable or a substitution ($ or `)
            (a): ! has a subshell, a function or another form in parentheses
            a (b): ! has a subshell, a function or another form in parentheses
            f() { a; }: ! has a subshell, a function or another form in parentheses
            { a; }: ! has braces, which group commands or stand for several words
            a {b,c}: ! has braces, which group commands or stand for several words
            a x{}: ! has braces, which group commands or stand for several words
            a }: ! has braces, which group commands or stand for several words
            a <(b): ! has a subshell, a function or another form in parentheses
            a >(b): ! has a subshell, a function or another form in parentheses
            a << E\nb\nE: ! has a here-document or a here-string
            a <<< b: ! has a here-document or a here-string
            a &> b: ! has a redirection that shells read in different ways
            a &>> b: ! has a redirection that shells read in different ways
            a >& b: ! has a redirection that shells read in different ways
            a >&2b: ! has a redirection that shells read in different ways
            a 12> b: ! has a redirection that shells read in different ways
            a > : ! ends too early
            a >: ! ends too early
            a > > b: ! has a redirection that shells read in different ways
            a > #b: ! has a redirection that shells read in different ways
            a >&: ! ends too early
            a ;; b: ! has an operator without a command before it
            ; a: ! has an operator without a command before it
            a & ; b: ! has an operator without a command before it
            a &&: ! ends too early
            a |: ! ends too early
            a && && b: ! has an operator without a command before it
            | a: ! has an operator without a command before it
            a |\n: ! ends too early
            ! a: ! has an exclamation mark, which negates or stands for earlier commands
            a !b: ! has an exclamation mark, which negates or stands for earlier commands
            a \"!b\": ! has an exclamation mark, which negates or stands for earlier commands
            if a; then b; fi: ! has `if`, which belongs to the grammar of scripts
            for: ! has `for`, which belongs to the grammar of scripts
            time a: ! has `time`, which belongs to the grammar of scripts
            coproc a: ! has `coproc`, which belongs to the grammar of scripts
            [[ a ]]: ! has `[[`, which belongs to the grammar of scripts
            [ -f a ]: ! has a program name that the shell makes up (`[`)
            noglob a: ! has `noglob`, which belongs to the grammar of scripts
            - a: ! has `-`, which belongs to the grammar of scripts
            function a: ! has `function`, which belongs to the grammar of scripts
            ~/a: ! has a program name that the shell makes up (`~/a`)
            a ~user: ! has a word that shells read in different ways (`~`)
            a ~+: ! has a word that shells read in different ways (`~`)
            *a: ! has a program name that the shell makes up (`*a`)
            \'\' a: ! has a program name that the shell makes up (``)
            %1: ! has a program name that the shell makes up (`%1`)
            a=(b): ! has a subshell, a function or another form in parentheses
            a+=b c: ! has a word that shells read in different ways (`a+=b`)
            a[0]=b: ! has a word that shells read in different ways (`a[0]=b`)
            1a=b c: ! has a word that shells read in different ways (`1a=b`)
            a =b: ! has a word that shells read in different ways (`=`)
            a \'b: ! has a quote that is not closed
            a \"b: ! has a quote that is not closed
            a \\: ! ends too early
            a\\\nb: ! goes on in the next line in the middle of a word
            a \"b\\\nc\": ! goes on in the next line in the middle of a word
            a &\\\n& b: ! goes on in the next line in the middle of a word
            a\rb: ! has the character '\r' where shells differ on what it means
            a b\r: ! has the character '\r' where shells differ on what it means
            a\0b: ! has the character '\0' where shells differ on what it means
            a \u{1b}[2J: ! has the character '\u{1b}' where shells differ on what it means
            a\u{a0}b: ! has the character '\u{a0}' where shells differ on what it means
            a\u{2003}b: ! has the character '\u{2003}' where shells differ on what it means
            a\u{feff}: ! has the character '\u{feff}' where shells differ on what it means
            é: ! has the character 'é' where shells differ on what it means
            a \u{202e}b: ! has the character '\u{202e}' where shells differ on what it means
            a \'b\u{7f}\': ! has the character '\u{7f}' where shells differ on what it means
            a\u{85}b: ! has the character '\u{85}' where shells differ on what it means
            a\u{b}b: ! has the character '\u{b}' where shells differ on what it means
        "#]],
    );
}

#[test]
fn a_line_is_understood_as_a_whole_or_not_at_all() {
    let commands = |count: usize| parse(&vec!["a"; count].join(";")).map(|line| line.commands.len());
    assert_eq!(commands(MAX_COMMANDS), Ok(MAX_COMMANDS));
    assert_eq!(commands(MAX_COMMANDS + 1), Err(ShellParseError::TooManyCommands));
    assert_eq!(commands(10_000), Err(ShellParseError::TooLong(19_999)));
    let words = |count: usize| parse(&vec!["a"; count].join(" ")).map(|line| line.commands[0].words.len());
    assert_eq!(words(MAX_WORDS), Ok(MAX_WORDS));
    assert_eq!(words(MAX_WORDS + 1), Err(ShellParseError::TooManyWords));
    let redirections = format!("a{}", " >b".repeat(MAX_WORDS));
    assert_eq!(parse(&redirections), Err(ShellParseError::TooManyWords));
    assert!(parse(&"a".repeat(MAX_LINE)).is_ok());
    assert_eq!(parse(&"a".repeat(MAX_LINE + 1)), Err(ShellParseError::TooLong(MAX_LINE + 1)));
}

#[test]
fn each_command_knows_its_own_text() {
    let line = parse(" A=1 a  'b' >c ; d # e\nf").unwrap();
    let texts: Vec<&str> = line.commands.iter().map(|command| command.text.as_str()).collect();
    assert_eq!(texts, ["A=1 a  'b' >c", "d", "f"]);
}
