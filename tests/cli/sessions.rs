//! Tests of `bowline sessions`, on sessions stored by real agents.

use std::os::unix::fs::PermissionsExt as _;

use bowline_agent::store::{SessionRetention, SessionStore as _, SqliteSessionStore};
use expect_test::expect;

use crate::changes::normalize_times;
use crate::fixture::CliFixture;

impl CliFixture {
    /// The ids of all sessions, most recently used first.
    fn session_ids(&self) -> Vec<String> {
        let output = self.run_command(self.command(&["sessions", "list", "--all", "--json"]), "");
        let told = String::from_utf8(output.stdout).unwrap();
        let id = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned()
        };
        told.lines().map(id).collect()
    }
}

#[test]
fn missing_sessions_are_reported() {
    let scene = CliFixture::new();
    let told = scene.run_all(&[
        &["sessions", "list"],
        &["sessions", "list", "--all"],
        &["sessions", "list", "--json"],
        &["sessions", "show", "last"],
        &["sessions", "export", "abc"],
        &["sessions", "delete", "abc", "--yes"],
        &["sessions"],
    ]);
    expect![[r#"
        $ bowline sessions list
        no sessions in $PROJECT
        --- 0
        $ bowline sessions list --all
        no sessions
        --- 0
        $ bowline sessions list --json
        --- 0
        $ bowline sessions show last
        --- stderr
        bowline: there is no session in $PROJECT: `bowline sessions list --all` lists the others
        --- 4
        $ bowline sessions export abc
        --- stderr
        bowline: there is no session abc: `bowline sessions list --all` lists them
        --- 4
        $ bowline sessions delete abc --yes
        --- stderr
        bowline: there is no session abc: `bowline sessions list --all` lists them
        --- 4
        $ bowline sessions
        no sessions in $PROJECT
        --- 0
    "#]]
    .assert_eq(&told);
    assert!(!scene.home().join(".local").exists());
}

#[test]
fn a_conversation_is_listed_shown_and_exported() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n");
    scene.run_agent("read a.txt\nthink hard\nplan: first; second\nsay done");
    scene.run_next_turn("replace \"two\" with \"2\" in a.txt\nread nowhere.txt");
    let told = scene.run_all(&[
        &["sessions", "list"],
        &["sessions", "show", "last"],
        &["sessions", "show", "last", "--full"],
        &["sessions", "export", "last"],
    ]);
    expect![[r#"
        $ bowline sessions list
        $SHORT  read a.txt
            just now · 2 turns · offline
        --- 0
        $ bowline sessions show last
        session $SESSION
          title     read a.txt
          directory $PROJECT
          model     offline
          mode      full
          begun     WHEN
          last used WHEN
          turns     2

        you
          read a.txt
          think hard
          plan: first; second
          say done

        ✓ Read a.txt (read)
            one
            two
            three
            four
            five
            six
            … 3 more lines (--full)

        agent
          `a.txt`:

          ```txt
          [a.txt: all of it, 9 lines, read through the editor]
          one
          two
          three
          four
          five
          six
          seven
          eight
          nine
          ```

        thought
          hard

        plan
          [ ] first
          [ ] second

        agent
          The plan has 2 steps.

          done

        you
          replace "two" with "2" in a.txt
          read nowhere.txt

        ✓ Edit a.txt (edit)
            a.txt +1 −1

        agent
          Changed `a.txt`.

        ✗ Read nowhere.txt (read, failed)
            nowhere.txt does not exist (the editor says so)

        agent
          Reading `nowhere.txt` did not work:

          ```
          nowhere.txt does not exist (the editor says so)
          ```
        --- 0
        $ bowline sessions show last --full
        session $SESSION
          title     read a.txt
          directory $PROJECT
          model     offline
          mode      full
          begun     WHEN
          last used WHEN
          turns     2

        you
          read a.txt
          think hard
          plan: first; second
          say done

        ✓ Read a.txt (read)
            one
            two
            three
            four
            five
            six
            seven
            eight
            nine

        agent
          `a.txt`:

          ```txt
          [a.txt: all of it, 9 lines, read through the editor]
          one
          two
          three
          four
          five
          six
          seven
          eight
          nine
          ```

        thought
          hard

        plan
          [ ] first
          [ ] second

        agent
          The plan has 2 steps.

          done

        you
          replace "two" with "2" in a.txt
          read nowhere.txt

        ✓ Edit a.txt (edit)
            diff --git a/a.txt b/a.txt
            --- a/a.txt
            +++ b/a.txt
            @@ -1,5 +1,5 @@
             one
            -two
            +2
             three
             four
             five

        agent
          Changed `a.txt`.

        ✗ Read nowhere.txt (read, failed)
            nowhere.txt does not exist (the editor says so)

        agent
          Reading `nowhere.txt` did not work:

          ```
          nowhere.txt does not exist (the editor says so)
          ```
        --- 0
        $ bowline sessions export last
        # read a.txt

        - session: $SESSION
        - directory: $PROJECT
        - model: offline
        - mode: full
        - begun: WHEN
        - last used: WHEN
        - turns: 2

        ## You

        read a.txt
        think hard
        plan: first; second
        say done

        ### Read a.txt (read)

        ```
        one
        two
        three
        four
        five
        six
        seven
        eight
        nine
        ```

        ## Agent

        `a.txt`:

        ```txt
        [a.txt: all of it, 9 lines, read through the editor]
        one
        two
        three
        four
        five
        six
        seven
        eight
        nine
        ```

        > hard

        - [ ] first
        - [ ] second

        ## Agent

        The plan has 2 steps.

        done

        ## You

        replace "two" with "2" in a.txt
        read nowhere.txt

        ### Edit a.txt (edit)

        ```diff
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,5 +1,5 @@
         one
        -two
        +2
         three
         four
         five
        ```

        ## Agent

        Changed `a.txt`.

        ### Read nowhere.txt (read, failed)

        ```
        nowhere.txt does not exist (the editor says so)
        ```

        ## Agent

        Reading `nowhere.txt` did not work:

        ```
        nowhere.txt does not exist (the editor says so)
        ```
        --- 0
    "#]]
    .assert_eq(&told);
}

#[test]
fn an_exported_recording_replays_the_model() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: hello\\n");
    let replay = scene.base().join("again.jsonl");
    let replay = replay.to_str().unwrap();
    let told = scene.run_all(&[
        &["sessions", "export", "last", "--format", "replay", "--output", replay],
        &["sessions", "export", "last", "--format", "replay", "--output", replay],
        &["sessions", "export", "last", "--output", "/nowhere/x"],
    ]);
    expect![[r#"
        $ bowline sessions export last --format replay --output $BASE/again.jsonl
        --- stderr
        bowline: written to $BASE/again.jsonl
        --- 0
        $ bowline sessions export last --format replay --output $BASE/again.jsonl
        --- stderr
        bowline: $BASE/again.jsonl is there already: choose another name, or remove it
        --- 1
        $ bowline sessions export last --output /nowhere/x
        --- stderr
        bowline: cannot write /nowhere/x: No such file or directory (os error 2)
        --- 1
    "#]]
    .assert_eq(&told);
    assert_eq!(std::fs::metadata(replay).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::remove_file(scene.project().join("a.txt")).unwrap();
    let model = format!("replay:{replay}");
    let told = scene.run(&["run", "--approve", "all", "--format", "quiet", "--model", &model, "anything"]);
    expect![[r#"
        Wrote `a.txt`.
        --- 0
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "hello\n");
    let output = scene.run_command(scene.command(&["sessions", "export", "last", "--format", "json"]), "");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["session"]["cwd"], scene.project().to_str().unwrap());
    assert_eq!(json["messages"][0]["role"], "user");
    assert!(json["updates"].as_array().unwrap().len() > 2);
}

#[test]
fn sessions_are_those_of_the_directory_or_the_nearest_above_and_have_short_names() {
    let scene = CliFixture::new();
    scene.write_file("sub/a.txt", "");
    scene.run_agent("say one");
    scene.run_agent("say two");
    let ids = scene.session_ids();
    let other = scene.base().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut told = String::new();
    for (directory, arguments) in [
        (scene.project().join("sub"), vec!["sessions", "list"]),
        (scene.project().join("sub"), vec!["sessions", "show", "last"]),
        (other.clone(), vec!["sessions", "list"]),
        (other.clone(), vec!["sessions", "list", "--all"]),
        (other.clone(), vec!["sessions", "show", "last"]),
        (other, vec!["sessions", "show", &ids[1][..12]]),
        (scene.project(), vec!["sessions", "show", ""]),
    ] {
        let mut command = scene.command(&arguments);
        command.current_dir(directory);
        told += &normalize_times(&scene.describe_output(&scene.run_command(command, "")));
    }
    expect![[r#"
        $SHORT  say two
            just now · 1 turn · offline
        $SHORT  say one
            just now · 1 turn · offline
        --- stderr
        bowline: in $PROJECT
        --- 0
        session $SESSION
          title     say two
          directory $PROJECT
          model     offline
          mode      full
          begun     WHEN
          last used WHEN
          turns     1

        you
          say two

        agent
          two
        --- 0
        no sessions in $BASE/other; 2 elsewhere (--all)
        --- 0
        $SHORT  say two
            just now · 1 turn · offline · $PROJECT
        $SHORT  say one
            just now · 1 turn · offline · $PROJECT
        --- 0
        --- stderr
        bowline: there is no session in $BASE/other: `bowline sessions list --all` lists the others
        --- 4
        session $SESSION
          title     say one
          directory $PROJECT
          model     offline
          mode      full
          begun     WHEN
          last used WHEN
          turns     1

        you
          say one

        agent
          one
        --- 0
        --- stderr
        bowline: the session id is empty: write one, or leave the option out
        --- 2
    "#]]
    .assert_eq(&told.replace(&format!("{}, {}", ids[0], ids[1]), "$SESSION, $SESSION"));
}

#[test]
fn a_session_is_deleted_if_confirmed_and_not_in_use() {
    let scene = CliFixture::new();
    scene.run_agent("say one");
    scene.run_agent("say two");
    let ids = scene.session_ids();
    let told = scene.run_all(&[
        &["sessions", "delete", &ids[1]],
        &["sessions", "delete", &ids[1], "--yes"],
        &["sessions", "show", &ids[1]],
        &["sessions", "list"],
    ]);
    expect![[r#"
        $ bowline sessions delete $SESSION
        --- stderr
        bowline: the user cannot be asked: delete session $SHORT (say one) with --yes
        --- 2
        $ bowline sessions delete $SESSION --yes
        deleted session $SHORT (say one)
        --- 0
        $ bowline sessions show $SESSION
        --- stderr
        bowline: there is no session $SESSION: `bowline sessions list --all` lists them
        --- 4
        $ bowline sessions list
        $SHORT  say two
            just now · 1 turn · offline
        --- 0
    "#]]
    .assert_eq(&told);

    // The other session is claimed.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let state = scene.home().join(".local/state/bowline");
    let store = SqliteSessionStore::new(&state, SessionRetention::default());
    let id = bowline_protocol::schema::v1::SessionId::new(ids[0].clone());
    let held = runtime.block_on(store.claim(&id)).unwrap();
    let told = scene.run_all(&[&["sessions", "delete", "last", "--yes"], &["sessions", "list"]]);
    expect![[r#"
        $ bowline sessions delete last --yes
        --- stderr
        bowline: session $SESSION is in use by process PID: close it there first
        --- 1
        $ bowline sessions list
        $SHORT  say two
            just now · 1 turn · offline
        --- 0
    "#]]
    .assert_eq(&told.replace(&format!("process {}", std::process::id()), "process PID"));
    drop(held);
}
