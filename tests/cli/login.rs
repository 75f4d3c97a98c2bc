//! Tests of agents that require a login before they open a session: `run`, `chat` and `doctor`.

use expect_test::expect;

use crate::fixture::{CliFixture, write_script};
use crate::run::permission::InteractiveRun;
use crate::screen::Screen;

/// Returns an agent that opens no session until its user has logged in: by `key`, or by its own program in a terminal.
/// It logs the requests it receives.
fn login_agent(scene: &CliFixture) -> String {
    let text = r#"#!/bin/sh
base=BASE
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
if [ "$1" = --login ]; then
  printf 'Code for %s? ' "$TINY"
  read -r code
  [ "$code" = 1234 ] && touch "$base/member"
  exit
fi
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  method=$(printf '%s' "$line" | sed -n 's/.*"method":"\([^"]*\)".*/\1/p')
  by=$(printf '%s' "$line" | sed -n 's/.*"methodId":"\([^"]*\)".*/\1/p')
  echo "$method $by" >> "$base/told"
  case "$method" in
    initialize)
      tty=
      case "$line" in *'"auth":{"terminal":true}'*) tty=',{"id":"tty","name":"Code","type":"terminal","args":["--login"],"env":{"TINY":"tiny"}}' ;; esac
      answer '"result":{"protocolVersion":1,"agentInfo":{"name":"tiny","version":"1"},"authMethods":[{"id":"key","name":"API key","description":"set TINY_KEY"},{"id":"web","name":"Browser"},{"id":"lie","name":"Lie\u001b[2J"}'"$tty"']}' ;;
    authenticate)
      case "$by" in
        key) in=yes; answer '"result":{}' ;;
        lie) answer '"result":{}' ;;
        *) answer '"error":{"code":-32603,"message":"Internal error","data":{"details":"no browser here"}}' ;;
      esac ;;
    session/new)
      if [ -n "$in" ] || [ -e "$base/member" ]; then answer '"result":{"sessionId":"s1"}'
      else answer '"error":{"code":-32000,"message":"Authentication required"}'; fi ;;
    session/prompt)
      printf '%s\n' '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hello."}}}}'
      answer '"result":{"stopReason":"end_turn"}' ;;
  esac
done
"#;
    write_script(&scene.base(), "locked.sh", &text.replace("BASE", &scene.base().display().to_string()))
}

/// Returns the requests that the agent received since the last call.
fn take_agent_log(scene: &CliFixture) -> String {
    let path = scene.base().join("told");
    let told = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::remove_file(&path).ok();
    told.lines().map(str::trim_end).collect::<Vec<_>>().join(", ") + "\n"
}

#[test]
fn a_script_names_the_way_to_log_in() {
    let scene = CliFixture::new();
    let agent = login_agent(&scene);
    let run = |options: &[&str]| {
        let ended = scene.run(&[&["run", "--agent", &agent, "go"], options].concat());
        ended + &take_agent_log(&scene)
    };
    expect![[r#"
        --- stderr
        bowline: the agent wants you to log in first (Authentication required): name a way with --auth, or log in with its own program. It offers key: API key (set TINY_KEY); web: Browser; lie: Lie\u{1b}[2J
        --- 1
        initialize, session/new
    "#]].assert_eq(&run(&[]));
    expect![[r#"
        Hello.
        --- 0
        initialize, session/new, authenticate key, session/new, session/prompt
    "#]]
    .assert_eq(&run(&["--auth", "key"]));
    expect![[r#"
        --- stderr
        bowline: the agent did not log you in by web: Internal error: no browser here
        --- 1
        initialize, session/new, authenticate web
    "#]]
    .assert_eq(&run(&["--auth", "web"]));
    expect![[r#"
        --- stderr
        bowline: you have logged in, and the agent still wants you to: Authentication required
        --- 1
        initialize, session/new, authenticate lie, session/new
    "#]]
    .assert_eq(&run(&["--auth", "lie"]));
    expect![[r#"
        --- stderr
        bowline: the agent does not offer to log in by no\u{1b}such: --auth takes one of key: API key (set TINY_KEY); web: Browser; lie: Lie\u{1b}[2J
        --- 2
        initialize, session/new
    "#]].assert_eq(&run(&["--auth", "no\u{1b}such"]));
    // An agent that requires no login gets none.
    std::fs::write(scene.base().join("member"), "").unwrap();
    expect![[r#"
        Hello.
        --- 0
        initialize, session/new, session/prompt
    "#]]
    .assert_eq(&run(&["--auth", "key"]));
}

#[tokio::test]
async fn a_person_at_a_terminal_chooses_the_way() {
    let scene = CliFixture::new();
    let agent = login_agent(&scene);
    let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
    expect![[r#"

        The agent wants you to log in first: Authentication required
          1 API key (set TINY_KEY)
          2 Browser
          3 Lie\u{1b}[2J
          4 Code, in this terminal
        Log in how? [a number, or n for not at all] "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_text("not at all] ").await));
    seat.type_text("7\n").await;
    seat.wait_for_text("not at all] ").await;
    seat.type_text("1\n").await;
    seat.wait_for_text("Hello.").await;
    seat.wait_for_exit().await;
    expect![[r#"
        initialize, session/new, initialize, session/new, authenticate key, session/new, session/prompt
    "#]]
    .assert_eq(&take_agent_log(&scene));

    // The agent's own program has the terminal.
    let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
    seat.wait_for_text("not at all] ").await;
    seat.type_text("4\n").await;
    expect![[r#"
        4
        bowline: to log in, this runs in your terminal: $BASE/locked.sh --login
        Code for tiny? "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_text("Code for tiny? ").await));
    seat.type_text("1\n").await;
    expect![[r#"
        1
        bowline: you are not logged in: $BASE/locked.sh --login ended with exit status: 1
        --- Some(1)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "--auth", "tty", "go"]);
    seat.wait_for_text("Code for tiny? ").await;
    seat.type_text("1234\n").await;
    seat.wait_for_text("Hello.").await;
    seat.wait_for_exit().await;
    expect![[r#"
        initialize, session/new, initialize, session/new, initialize, session/new, session/prompt
    "#]]
    .assert_eq(&take_agent_log(&scene));
}

#[tokio::test]
async fn a_chat_asks_for_the_way_before_it_begins() {
    let scene = CliFixture::new();
    let agent = login_agent(&scene);
    for (typed, log) in [("1\r", true), ("4\r", false)] {
        let mut screen = Screen::start(&scene, &["chat", "--agent", &agent]);
        screen.wait_for_text("not at all]").await;
        screen.send(typed).await;
        if !log {
            screen.wait_for_text("Code for tiny?").await;
            screen.send("1234\r").await;
        }
        screen.wait_for_text("● ready").await;
        screen.send("\u{4}").await;
        assert_eq!(screen.wait_for_exit().await, Some(0));
    }
    expect![[r#"
        initialize, session/new, initialize, session/new, authenticate key, session/new, initialize, session/new, initialize, session/new
    "#]].assert_eq(&take_agent_log(&scene));
    // A user who declines is shown the available methods.
    std::fs::remove_file(scene.base().join("member")).unwrap();
    let mut screen = Screen::start(&scene, &["chat", "--agent", &agent]);
    screen.wait_for_text("not at all]").await;
    screen.send("n\r").await;
    assert_eq!(screen.wait_for_exit().await, Some(1));
    assert!(screen.text().contains("the agent wants you to log in first"), "{}", screen.text());
}

#[test]
fn the_doctor_names_the_ways() {
    let scene = CliFixture::new();
    let agent = login_agent(&scene);
    let found = scene.run(&["doctor", "--", &agent]);
    let lines = found.lines().skip_while(|line| !line.contains("log in:")).take(7);
    let lines = lines.filter(|line| !line.contains("offer it"));
    expect![[r#"
        · log in:
        API key (key): set TINY_KEY
        Browser (web)
        Lie\u{1b}[2J (lie)
        ✗ session/new: it wants a login first: Authentication required (-32000)
        → log in with --auth of `bowline run` or `bowline chat`: it takes a name in brackets above
    "#]]
    .assert_eq(&(lines.map(str::trim_start).collect::<Vec<_>>().join("\n") + "\n"));
}
