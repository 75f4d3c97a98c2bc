//! Tests of `bowline serve`: tokens, usage, and the life of the process.

use bowline_tests::own_server::OwnServer;
use expect_test::expect;

use crate::fixture::{CliFixture, bowline};

#[test]
fn tokens_are_made_listed_and_removed() {
    let scene = CliFixture::new();
    let made = scene.run(&["serve", "token", "add", "laptop"]);
    let token = made.lines().find(|line| line.starts_with("bow_")).unwrap();
    assert_eq!(token.len(), "bow_".len() + 16 + 1 + 64, "{token}");
    scene.run(&["serve", "token", "add", "ci", "--role", "observer", "--expires", "30"]);
    let output = scene.run_all(&[
        &["serve", "token", "list"],
        &["serve", "token", "add", "laptop"],
        &["serve", "token", "add", "a b"],
        &["serve", "token", "add", "x", "--role", "root"],
        &["serve", "token", "remove", "laptop"],
        &["serve", "token", "remove", "laptop"],
        &["serve", "token", "remove", "ci"],
        &["serve", "token", "list"],
    ]);
    expect![[r#""#]].assert_eq(&output);
}

#[test]
fn what_would_be_unsafe_is_refused() {
    let scene = CliFixture::new();
    scene.write_file("not-a-key.pem", "hello");
    let output = scene.run_all(&[
        &["serve", "--listen", "0.0.0.0:0"],
        &["serve", "--listen", "[::]:0"],
        &["serve", "--listen", "0.0.0.0:0", "--tls-cert", "not-a-key.pem", "--tls-key", "not-a-key.pem"],
        &["serve", "--tls-cert", "not-a-key.pem"],
        &["serve", "--root", "absent"],
        &["serve", "--transport", "stdio"],
        &["serve", "--listen", "localhost"],
    ]);
    expect![[r#""#]].assert_eq(&output);
}

#[test]
fn a_store_has_one_server_and_a_signal_ends_it() {
    let scene = CliFixture::new();
    let server = OwnServer::start(&bowline(), &scene.home(), &scene.project(), "127.0.0.1:0", &[]).unwrap();
    let state = scene.home().join("state/bowline/serve");
    let second = scene.run(&["serve", "--store", state.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(second.contains("another `bowline serve` uses the store"), "{second}");
    let taken = scene.run(&["serve", "--listen", server.address()]);
    assert!(taken.contains("cannot listen on"), "{taken}");
    assert!(server.terminate().unwrap());
}
