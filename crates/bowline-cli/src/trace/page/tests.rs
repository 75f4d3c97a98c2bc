//! Tests of the page.

use bowline_protocol::trace::{TraceEntry, TraceGap, TraceSequence, TraceSide};

use super::{FRAME, HtmlPage, SCRIPT};

/// Builds a page of messages from the client.
fn page(messages: &[&str], name: &str) -> String {
    let (mut sequence, mut page) = (TraceSequence::default(), HtmlPage::default());
    for message in messages {
        let entry = TraceEntry {
            elapsed_us: 1,
            from: TraceSide::Client,
            to: TraceSide::Agent,
            bytes: message.as_bytes().to_vec(),
        };
        let step = sequence.add_entry(&entry);
        page.add(&entry, &step);
    }
    page.add_gap(TraceGap { messages: 1, bytes: 2 });
    page.finish(name, Some(0), &sequence)
}

const ATTACKS: [&str; 4] = [
    r#"{"method":"</script><script>alert(1)</script>","id":"<img src=x onerror=alert(2)>"}"#,
    r#"{"method":"session/update","params":{"sessionId":"{{SCRIPT}}<!--","update":{"sessionUpdate":"tool_call","toolCallId":"<script>","title":"</SCRIPT >&lt;\u2028"}}}"#,
    "<script>no json</script>\u{2028}",
    "{{DATA}}{{NONCE}}]]>",
];

#[test]
fn nothing_that_was_recorded_becomes_markup() {
    let page = page(&ATTACKS, "<script>name</script>");
    let (before, rest) = page.split_once(r#"<script id="data""#).unwrap();
    let (data, after) = rest.split_once(">").unwrap().1.split_once("</script>").unwrap();
    assert!(!data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{data}");
    for part in [before, after] {
        assert!(!part.contains("alert") && !part.contains("name</script>"), "{part}");
    }
    // There are only the page's own scripts, and its policy allows no others.
    assert_eq!(page.matches("<script").count(), FRAME.matches("<script").count());
    let nonce = before.split_once("'nonce-").unwrap().1.split_once('\'').unwrap().0;
    assert_eq!((nonce.len(), data.contains(nonce)), (64, false));
    assert!(before.contains("default-src 'none'"), "{before}");
}

#[test]
fn the_data_of_a_page_are_what_was_recorded() {
    let page = page(&ATTACKS, "n");
    let data = page.split_once(r#"<script id="data""#).unwrap().1.split_once('>').unwrap().1;
    let data: serde_json::Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let rows = data["rows"].as_array().unwrap();
    let raw: Vec<&str> = rows.iter().filter_map(|row| row["raw"].as_str()).collect();
    assert_eq!(raw, ATTACKS);
    assert_eq!(rows.last().unwrap()["kind"], "lost");
    assert_eq!(data["about"]["calls"][0]["id"], "<script>");
}

#[test]
fn the_script_makes_no_markup_and_asks_no_network() {
    for word in [
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "http", "import",
    ] {
        assert!(!SCRIPT.contains(word), "{word}");
    }
    assert!(!FRAME.contains("http:") && !FRAME.contains("https:") && !FRAME.contains("src="));
}
