//! Tests of the restart policy.

use expect_test::expect;

use super::*;

#[test]
fn three_restarts_in_five_minutes_are_enough() {
    let start = Instant::now();
    let mut restarts = Restarts::default();
    let at = [0, 1, 2, 3, 299, 300, 301, 302, 303];
    let decisions: Vec<String> = at
        .iter()
        .map(|second| format!("{second}: {:?}", restarts.next_delay(start + Duration::from_secs(*second))))
        .collect();
    expect![[r#"
        0: Some(100ms)
        1: Some(400ms)
        2: Some(1.6s)
        3: None
        299: None
        300: Some(1.6s)
        301: Some(1.6s)
        302: Some(1.6s)
        303: None"#]]
    .assert_eq(&decisions.join("\n"));
}
