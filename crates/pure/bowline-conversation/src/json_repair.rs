//! JSON as models write it.

/// Returns JSON without bare line breaks and tabs in strings, and without escapes that JSON does not have: models
/// forget to escape the former, and write `\$` or `\'` as in a shell.
pub(crate) fn repair_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            '\n' if in_string => out.push_str("\\n"),
            '\r' if in_string => out.push_str("\\r"),
            '\t' if in_string => out.push_str("\\t"),
            '\'' if escaped => {
                out.pop();
                out.push(c);
            }
            c if escaped && !matches!(c, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u') => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_models_forget_is_repaired_and_json_stays() {
        let cases = [
            ("{\"a\": \"one\ntwo\tx\r\"}", r#"{"a": "one\ntwo\tx\r"}"#),
            (r#"{"a": "echo \$HOME \'x\'"}"#, r#"{"a": "echo \\$HOME 'x'"}"#),
            ("{\n\t\"a\": \"\\\\\"\n}", "{\n\t\"a\": \"\\\\\"\n}"),
            (r#"{"a": "\"\u00e9\n"}"#, r#"{"a": "\"\u00e9\n"}"#),
        ];
        for (written, repaired) in cases {
            assert_eq!(repair_json(written), repaired);
            assert!(serde_json::from_str::<serde_json::Value>(repaired).is_ok(), "{repaired}");
        }
    }
}
