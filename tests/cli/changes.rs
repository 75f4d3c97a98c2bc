//! Tests of `bowline changes`, `diff`, `undo` and `redo`, on changes of real agents.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bowline_history::changes::{ChangeOrigin, ChangeSource};
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{ApplyMethod, ChangeDraft, DraftContent, DraftSide, Journal, Retention};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::Workspace;
use expect_test::expect;

use crate::fixture::CliFixture;
use crate::screen::Screen;

/// Normalises dates and short durations.
pub(crate) fn normalize_times(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let fits = |at: usize, form: &str| {
        form.chars().enumerate().all(|(offset, expected)| match (expected, characters.get(at + offset)) {
            ('9', Some(found)) => found.is_ascii_digit(),
            (expected, Some(found)) => expected == *found,
            (_, None) => false,
        })
    };
    let forms = ["9999-99-99 99:99:99", "9999-99-99T99:99:99.999Z"];
    let mut steady = String::new();
    let mut at = 0;
    while at < characters.len() {
        match forms.iter().find(|form| fits(at, form)) {
            Some(form) => {
                steady.push_str("WHEN");
                at += form.len();
            }
            None => {
                steady.push(characters[at]);
                at += 1;
            }
        }
    }
    steady.replace("1 minute ago", "just now")
}

impl CliFixture {
    /// Has Bowline's own agent run a prompt, in a new session or the last one.
    pub(crate) fn run_agent(&self, prompt: &str) {
        self.run_turn(&[], prompt);
    }

    pub(crate) fn run_next_turn(&self, prompt: &str) {
        self.run_turn(&["--session", "last"], prompt);
    }

    fn run_turn(&self, more: &[&str], prompt: &str) {
        let arguments = [&["run", "--approve", "all", "--format", "quiet"], more, &[prompt]].concat();
        let output = self.run_command(self.command(&arguments), "");
        assert!(output.status.success(), "{}", self.describe_output(&output));
    }

    /// Runs commands one after the other, and returns their output.
    pub(crate) fn run_all(&self, commands: &[&[&str]]) -> String {
        let mut told = String::new();
        for arguments in commands {
            writeln!(told, "$ bowline {}", self.normalize(&arguments.join(" "))).unwrap();
            told += &normalize_times(&self.run(arguments));
        }
        told
    }

    /// The directory of the project's journal.
    pub(crate) fn journal_dir(&self) -> PathBuf {
        let roots = Roots::open(&RootSpec::writable(self.project().to_str().unwrap()), &[]).unwrap();
        Workspace::journal_directory(&self.home().join(".local/state/bowline"), &roots)
    }

    fn run_git(&self, arguments: &[&str], stdin: &str) -> String {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", crate::fixture::search_path());
        self.describe_output(&self.run_command(command, stdin))
    }
}

#[test]
fn without_an_agent_nothing_is_listed_or_undone() {
    let scene = CliFixture::new();
    let told =
        scene.run_all(&[&["changes"], &["changes", "--json"], &["diff"], &["undo"], &["redo", "--dry-run"]]);
    expect![[r#"
        $ bowline changes
        no agent has changed anything in $PROJECT yet
        --- 0
        $ bowline changes --json
        --- stderr
        bowline: no agent has changed anything in $PROJECT yet
        --- 0
        $ bowline diff
        --- stderr
        bowline: no agent has changed anything in $PROJECT yet
        --- 0
        $ bowline undo
        --- stderr
        bowline: there is nothing to undo: no agent has changed anything in $PROJECT yet
        --- 1
        $ bowline redo --dry-run
        --- stderr
        bowline: there is nothing to redo: no agent has changed anything in $PROJECT yet
        --- 1
    "#]]
    .assert_eq(&told);
    // Reading created nothing.
    assert!(!scene.home().join(".local").exists());
}

#[test]
fn changes_of_turns_are_listed_shown_undone_and_redone() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\n");
    scene.run_agent("replace \"two\" with \"2\" in a.txt\nwrite b.txt: hello\\n");
    scene.run_next_turn("run rm b.txt; mv a.txt 'c d.txt'; printf '\\000\\001' > e.bin");
    let told = scene.run_all(&[
        &["changes"],
        &["diff", "--turn", "1"],
        &["diff", "--stat"],
        &["undo"],
        &["changes", "--all"],
        &["undo", "--dry-run"],
        &["undo", "--session", "last"],
        &["undo"],
        &["redo"],
        &["redo"],
        &["redo"],
    ]);
    expect![[r#"
        $ bowline changes
        session $SHORT
          turn 1 · replace "two" with "2" in a.txt · WHEN (just now)
            1 edited   a.txt +1 −1  call turn1_1
            2 created  b.txt +1  call turn1_2
          turn 2 · run rm b.txt; mv a.txt 'c d.txt'; printf '\000\001' > e.bin · WHEN (just now)
            $ /bin/sh -c 'rm b.txt; mv a.txt '\''c d.txt'\''; printf '\''\000\001'\'' > e.bin'  call turn2_1
            3 deleted  a.txt   −3  observed
            4 deleted  b.txt   −1  observed
            5 created  c d.txt +3  observed
            6 created  e.bin   0 → 2 bytes  observed

        6 changes; bowline undo takes the last turn back, bowline undo --change 6 one change
        --- 0
        $ bowline diff --turn 1
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,3 @@
         one
        -two
        +2
         three
        diff --git a/b.txt b/b.txt
        new file mode 100644
        --- /dev/null
        +++ b/b.txt
        @@ -0,0 +1 @@
        +hello
        --- 0
        $ bowline diff --stat
         a.txt   | 3 ---
         c d.txt | 3 +++
         e.bin   | binary
         3 files changed, +3 −3
        --- 0
        $ bowline undo
        undone the last turn (turn 2 of session $SHORT: run rm b.txt; mv a.txt 'c d.txt'; printf '\000\001' > e.bin), in 4 files
          a.txt    there again (found on disk after a command)
          b.txt    there again (found on disk after a command)
          c d.txt  deleted (found on disk after a command)
          e.bin    deleted (found on disk after a command)
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
        $ bowline changes --all
        session $SHORT
          turn 1 · replace "two" with "2" in a.txt · WHEN (just now)
            1 edited   a.txt +1 −1  call turn1_1
            2 created  b.txt +1  call turn1_2
          turn 2 · run rm b.txt; mv a.txt 'c d.txt'; printf '\000\001' > e.bin · WHEN (just now)
            $ /bin/sh -c 'rm b.txt; mv a.txt '\''c d.txt'\''; printf '\''\000\001'\'' > e.bin'  call turn2_1
            3 deleted  a.txt   −3  observed, undone
            4 deleted  b.txt   −1  observed, undone
            5 created  c d.txt +3  observed, undone
            6 created  e.bin   0 → 2 bytes  observed, undone

        undone and redone with bowline
             7 deleted  e.bin   2 → 0 bytes  takes back 6  WHEN
             8 deleted  c d.txt −3  takes back 5  WHEN
             9 created  b.txt   +1  takes back 4  WHEN
            10 created  a.txt   +3  takes back 3  WHEN

        10 changes; bowline undo takes the last turn back, bowline undo --change 2 one change
        --- 0
        $ bowline undo --dry-run
        diff --git a/b.txt b/b.txt
        deleted file mode 100644
        --- a/b.txt
        +++ /dev/null
        @@ -1 +0,0 @@
        -hello
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,3 @@
         one
        -2
        +two
         three
        --- stderr
        bowline: the last turn (turn 1 of session $SHORT: replace "two" with "2" in a.txt) would be undone, in 2 files
        --- 0
        $ bowline undo --session last
        undone session $SHORT, in 2 files
          a.txt  as it was before
          b.txt  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo
        --- stderr
        bowline: there is nothing to undo: no change of an agent is in effect here
        --- 1
        $ bowline redo
        redone what was undone last, in 2 files
          a.txt  as it was before the undo
          b.txt  there again
        --- 0
        $ bowline redo
        redone what was undone last, in 4 files
          a.txt    deleted
          b.txt    deleted
          c d.txt  there again
          e.bin    there again
        --- 0
        $ bowline redo
        --- stderr
        bowline: there is nothing to redo: nothing is undone
        --- 1
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("c d.txt"), "one\n2\nthree\n");
    assert!(!scene.has_file("a.txt") && !scene.has_file("b.txt") && scene.has_file("e.bin"));
}

#[test]
fn git_takes_the_patch_in_and_out() {
    let scene = CliFixture::new();
    scene.write_file("src/a.txt", "one\ntwo\nthree\n");
    scene.run_git(&["init", "--quiet"], "");
    scene.run_agent("replace \"two\" with \"2\" in src/a.txt\nwrite \"new file.txt\": no end");
    let output = scene.run_command(scene.command(&["diff"]), "");
    let patch = String::from_utf8(output.stdout).unwrap();
    assert_eq!(scene.run_git(&["apply", "-R"], &patch), "--- 0\n");
    assert_eq!(
        (scene.read_file("src/a.txt").as_str(), scene.has_file("new file.txt")),
        ("one\ntwo\nthree\n", false)
    );
    assert_eq!(scene.run_git(&["apply"], &patch), "--- 0\n");
    assert_eq!(scene.read_file("new file.txt"), "no end");
    // The dry run of an undo is a patch, too.
    let output = scene.run_command(scene.command(&["undo", "--dry-run"]), "");
    assert_eq!(scene.run_git(&["apply"], &String::from_utf8(output.stdout).unwrap()), "--- 0\n");
    assert!(!scene.has_file("new file.txt"));
}

#[test]
fn hunks_have_numbers_and_are_taken_back_by_them() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "a\nb\nc\nd\ne\nf\ng\nh\n");
    scene.run_agent("write a.txt: A\\nb\\nc\\nD\\nD\\ne\\nf\\ng\\n");
    let told = scene.run_all(&[
        &["changes", "--hunks"],
        &["diff", "--hunk", "2"],
        &["undo", "--hunk", "2"],
        &["changes"],
        &["undo", "--hunk", "2"],
        &["undo", "--hunk", "4"],
        &["undo", "--hunk", "0"],
        &["undo", "--change", "1", "--hunk", "1,3"],
        &["changes", "--all"],
        &["redo"],
        &["changes", "--json"],
    ]);
    expect![[r#"
        $ bowline changes --hunks
        session $SHORT
          turn 1 · write a.txt: A\nb\nc\nD\nD\ne\nf\ng\n · WHEN (just now)
            1 edited   a.txt +3 −3  call turn1_1
                 hunk 1, line 1
                 -a
                 +A
                 hunk 2, line 4
                 -d
                 +D
                 +D
                 hunk 3, line 9
                 -h

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- 0
        $ bowline diff --hunk 2
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,7 +1,8 @@
         A
         b
         c
        -d
        +D
        +D
         e
         f
         g
        --- 0
        $ bowline undo --hunk 2
        undone hunk 2 of change 1, in 1 file
          a.txt  in part
        `bowline redo` brings it back
        --- 0
        $ bowline changes
        session $SHORT
          turn 1 · write a.txt: A\nb\nc\nD\nD\ne\nf\ng\n · WHEN (just now)
            1 edited   a.txt +3 −3  call turn1_1, undone in part (hunks 2)

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- 0
        $ bowline undo --hunk 2
        --- stderr
        bowline: there is nothing to undo of hunk 2 of change 1
        --- 1
        $ bowline undo --hunk 4
        --- stderr
        bowline: change 1 has no hunk 4, it has 1 to 3: `bowline changes --hunks` shows them
        --- 1
        $ bowline undo --hunk 0
        --- stderr
        bowline: hunks are counted from 1, as `bowline changes --hunks` shows them
        --- 2
        $ bowline undo --change 1 --hunk 1,3
        undone hunks 1, 3 of change 1, in 1 file
          a.txt  in part, merged with later edits
        `bowline redo` brings it back
        --- 0
        $ bowline changes --all
        session $SHORT
          turn 1 · write a.txt: A\nb\nc\nD\nD\ne\nf\ng\n · WHEN (just now)
            1 edited   a.txt +3 −3  call turn1_1, undone, hunk by hunk

        undone and redone with bowline
            2 edited   a.txt +1 −2  takes back 1 (hunks 2)  WHEN
            3 edited   a.txt +2 −1  takes back 1 (hunks 1, 3)  WHEN

        3 changes; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- 0
        $ bowline redo
        redone what was undone last, in 1 file
          a.txt  as it was before the undo
        --- 0
        $ bowline changes --json
        {"change":1,"at":"WHEN","workspace":"$PROJECT","session":"$SESSION","turn":1,"call":"turn1_1","command":null,"source":"written","path":"$PROJECT/a.txt","moved_from":null,"before":{"sha256":"a8cdd76642f0ecda0067f4d780d027935959e42dc16520220f295191b913efba","size":16,"mode":"644"},"after":{"sha256":"265b42d008c61130ec4872dbe0410f07454f83eea6f52cb6ad5745147af4c405","size":16,"mode":"644"},"added":3,"removed":3,"reverses":[],"undone_hunks":[2],"in_effect":true,"reverted_by_hand":false,"uncertain":false,"pruned":false,"kept_text":false}
        --- 0
    "#]].assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "A\nb\nc\nd\ne\nf\ng\n");
}

#[test]
fn later_edits_stay_and_conflicts_change_nothing() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\nfour\nfive\n");
    scene.write_file("b.txt", "one\n");
    scene.run_agent(
        "replace \"four\" with \"4\" in a.txt\nreplace \"one\" with \"1\" in b.txt\nwrite c.txt: new\\n",
    );
    scene.write_file("a.txt", "ONE\ntwo\nthree\n4\nfive\n");
    scene.write_file("b.txt", "eins\n");
    scene.write_file("c.txt", "new\nand mine\n");
    let told = scene.run_all(&[&["undo", "--dry-run"], &["undo"]]);
    expect![[r#"
        $ bowline undo --dry-run
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,5 +1,5 @@
         ONE
         two
         three
        -4
        +four
         five
        --- stderr
        bowline: the last turn (turn 1 of session $SHORT: replace "four" with "4" in a.txt) would be undone, in 3 files
        bowline: c.txt: change 3: it created the file, which was edited since; delete the file if it is not needed
        bowline: b.txt: change 2: its lines were changed since: conflicting changes in 1 place, first at line 1
        bowline: cannot undo 2 of 3 files, so nothing is undone: choose fewer, or --keep-going for the others; --conflicts show tells more, markers or force resolves it
        --- 1
        $ bowline undo
        --- stderr
        bowline: c.txt: change 3: it created the file, which was edited since; delete the file if it is not needed
        bowline: b.txt: change 2: its lines were changed since: conflicting changes in 1 place, first at line 1
        bowline: cannot undo 2 of 3 files, so nothing is undone: choose fewer, or --keep-going for the others; --conflicts show tells more, markers or force resolves it
        --- 1
    "#]].assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "ONE\ntwo\nthree\n4\nfive\n");
    let told =
        scene.run_all(&[&["undo", "--file", "b.txt"], &["undo", "--keep-going"], &["undo", "--keep-going"]]);
    expect![[r#"
        $ bowline undo --file b.txt
        --- stderr
        bowline: b.txt: change 2: its lines were changed since: conflicting changes in 1 place, first at line 1
        bowline: cannot undo 1 of 1 file, so nothing is undone; --conflicts show tells more, markers or force resolves it
        --- 1
        $ bowline undo --keep-going
        undone the last turn (turn 1 of session $SHORT: replace "four" with "4" in a.txt), in 1 file
          a.txt  merged with later edits
        `bowline redo` brings it back
        --- stderr
        bowline: c.txt: change 3: it created the file, which was edited since; delete the file if it is not needed
        bowline: b.txt: change 2: its lines were changed since: conflicting changes in 1 place, first at line 1
        bowline: cannot undo 2 of 3 files; they are as they were; --conflicts show tells more, markers or force resolves it
        --- 1
        $ bowline undo --keep-going
        --- stderr
        bowline: c.txt: change 3: it created the file, which was edited since; delete the file if it is not needed
        bowline: b.txt: change 2: its lines were changed since: conflicting changes in 1 place, first at line 1
        bowline: cannot undo 2 of 2 files, so nothing is undone; --conflicts show tells more, markers or force resolves it
        --- 1
    "#]].assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "ONE\ntwo\nthree\nfour\nfive\n");
    assert_eq!(
        (scene.read_file("b.txt"), scene.read_file("c.txt")),
        ("eins\n".to_owned(), "new\nand mine\n".to_owned())
    );
}

#[test]
fn changes_can_be_selected_in_many_ways() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: 1\nwrite b.txt: 1");
    scene.run_agent("write a.txt: 2\nwrite b.txt: 2");
    scene.run_next_turn("write a.txt: 3");
    let told = scene.run_all(&[
        &["changes", "--turn", "1"],
        &["changes", "--file", "b.txt"],
        &["changes", "--call", "turn1_1"],
        &["changes", "--call", "turn2"],
        &["changes", "--change", "1"],
        &["diff", "--turn"],
        &["undo", "--turn", "7"],
        &["undo", "--hunk", "1"],
        &["undo", "--session", "unknown"],
        &["undo", "--call", "unknown"],
        &["undo", "--change", "77"],
        &["undo", "--file", "/etc/passwd"],
        &["undo", "--turn", "zero"],
        &["undo", "--change", "1", "--turn"],
        &["changes", "--cwd", "nowhere"],
    ]);
    expect![[r#"
        $ bowline changes --turn 1
        session $SHORT
          turn 1 · write a.txt: 2 · WHEN (just now)
            3 edited   a.txt +1 −1  call turn1_1
            4 edited   b.txt +1 −1  call turn1_2

        2 changes; bowline undo takes the last turn back, bowline undo --change 4 one change
        --- 0
        $ bowline changes --file b.txt
        session $SHORT
          turn 1 · write a.txt: 1 · WHEN (just now)
            2 created  b.txt +1  call turn1_2

        session $SHORT
          turn 1 · write a.txt: 2 · WHEN (just now)
            4 edited   b.txt +1 −1  call turn1_2

        2 changes; bowline undo takes the last turn back, bowline undo --change 4 one change
        --- 0
        $ bowline changes --call turn1_1
        --- stderr
        bowline: 2 sessions have a tool call turn1_1: say which with --session
        --- 2
        $ bowline changes --call turn2
        session $SHORT
          turn 2 · write a.txt: 3 · WHEN (just now)
            5 edited   a.txt +1 −1  call turn2_1

        1 change; bowline undo takes the last turn back, bowline undo --change 5 one change
        --- 0
        $ bowline changes --change 1
        session $SHORT
          turn 1 · write a.txt: 1 · WHEN (just now)
            1 created  a.txt +1  call turn1_1

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- 0
        $ bowline diff --turn
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1 +1 @@
        -2
        \ No newline at end of file
        +3
        \ No newline at end of file
        --- 0
        $ bowline undo --turn 7
        --- stderr
        bowline: turn 7 of session $SHORT changed nothing here that is in effect: `bowline changes --all` tells which did, --session chooses another
        --- 1
        $ bowline undo --hunk 1
        undone hunk 1 of change 5, in 1 file
          a.txt  as it was before
        `bowline redo` brings it back
        --- 0
        $ bowline undo --session unknown
        --- stderr
        bowline: no session unknown has changed anything here: `bowline changes --all` tells which did
        --- 4
        $ bowline undo --call unknown
        --- stderr
        bowline: no tool call unknown changed anything here
        --- 1
        $ bowline undo --change 77
        --- stderr
        bowline: there is no change 77 here: `bowline changes --all` lists them
        --- 1
        $ bowline undo --file /etc/passwd
        --- stderr
        bowline: there is nothing to undo of what agents did to /etc/passwd
        --- 1
        $ bowline undo --turn zero
        --- stderr
        bowline: invalid value 'zero' for '--turn [<N>]': turns are counted from 1; `last` is the last one (see --help)
        --- 2
        $ bowline undo --change 1 --turn
        --- stderr
        bowline: the argument '--change <ID>' cannot be used with '--turn [<N>]' (see --help)
        --- 2
        $ bowline changes --cwd nowhere
        --- stderr
        bowline: cannot use nowhere: No such file or directory (os error 2)
        --- 2
    "#]].assert_eq(&told);
}

#[test]
fn a_directory_below_a_workspace_is_part_of_it() {
    let scene = CliFixture::new();
    scene.write_file("sub/a.txt", "old\n");
    scene.run_agent("write sub/a.txt: new\\n");
    let mut told = String::new();
    for arguments in [&["changes"][..], &["changes", "--file", "a.txt"], &["undo", "--file", "a.txt"]] {
        let mut command = scene.command(arguments);
        command.current_dir(scene.project().join("sub"));
        told += &normalize_times(&scene.describe_output(&scene.run_command(command, "")));
    }
    expect![[r#"
        session $SHORT
          turn 1 · write sub/a.txt: new\n · WHEN (just now)
            1 edited   sub/a.txt +1 −1  call turn1_1

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- stderr
        bowline: in the workspace $PROJECT
        --- 0
        session $SHORT
          turn 1 · write sub/a.txt: new\n · WHEN (just now)
            1 edited   sub/a.txt +1 −1  call turn1_1

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- stderr
        bowline: in the workspace $PROJECT
        --- 0
        undone what agents did to sub/a.txt, in 1 file
          sub/a.txt  as it was before
        `bowline redo` brings it back
        --- stderr
        bowline: in the workspace $PROJECT
        --- 0
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("sub/a.txt"), "old\n");
}

#[test]
fn changes_in_additional_directories_are_undone_too() {
    let scene = CliFixture::new();
    let other = scene.base().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("x.txt"), "old\n").unwrap();
    let prompt = format!("write {}: new\\n", other.join("x.txt").display());
    scene.run_turn(&["--add-dir", other.to_str().unwrap()], &prompt);
    assert_eq!(std::fs::read_to_string(other.join("x.txt")).unwrap(), "new\n");
    expect![[r#"
        $ bowline changes
        session $SHORT
          turn 1 · write $BASE/other/x.txt: new\n · WHEN (just now)
            1 edited   $BASE/other/x.txt +1 −1  call turn1_1

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: write $BASE/other/x.txt: new\n), in 1 file
          $BASE/other/x.txt  as it was before
        `bowline redo` brings it back
        --- 0
    "#]]
    .assert_eq(&scene.run_all(&[&["changes"], &["undo"]]));
    assert_eq!(std::fs::read_to_string(other.join("x.txt")).unwrap(), "old\n");
}

#[test]
fn a_damaged_journal_is_told_of_once() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: 1");
    let database = scene.journal_dir().join("journal.sqlite");
    std::fs::write(&database, "this is not a database, and it is long enough to be seen as such".repeat(20))
        .unwrap();
    for companion in ["-wal", "-shm"] {
        std::fs::remove_file(scene.journal_dir().join(format!("journal.sqlite{companion}"))).ok();
    }
    let name = scene.journal_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let told = scene.run_all(&[&["changes"], &["changes"], &["undo"]]).replace(&name, "$JOURNAL");
    expect![[r#"
        $ bowline changes
        --- stderr
        bowline: the journal of changes cannot be used: it is damaged (file is not a database); it was moved to $HOME/.local/state/bowline/workspaces/$JOURNAL/journal.sqlite.set-aside-1 and a new one was begun
        --- 1
        $ bowline changes
        no agent has changed anything in $PROJECT yet
        --- 0
        $ bowline undo
        --- stderr
        bowline: there is nothing to undo: no change of an agent is in effect here
        --- 1
    "#]].assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "1");
}

#[test]
fn a_locked_journal_is_waited_for_and_then_reported() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: 1");
    let (journal, _) = Journal::open(&scene.journal_dir(), Retention::default(), Timestamp(0)).unwrap();
    let lock = journal.lock().unwrap();
    let name = scene.journal_dir().file_name().unwrap().to_str().unwrap().to_owned();
    expect![[r#"
        $ bowline undo
        --- stderr
        bowline: another Bowline holds $HOME/.local/state/bowline/workspaces/$JOURNAL/lock: wait for it or end it
        --- 1
    "#]].assert_eq(&scene.run_all(&[&["undo"]]).replace(&name, "$JOURNAL"));
    assert_eq!(scene.read_file("a.txt"), "1");
    // Another process that only has it open does not block.
    drop(lock);
    expect![[r#"
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: write a.txt: 1), in 1 file
          a.txt  deleted
        `bowline redo` brings it back
        --- 0
    "#]]
    .assert_eq(&scene.run_all(&[&["undo"]]));
}

#[test]
fn ten_thousand_changes_are_listed_and_a_reader_may_stop_early() {
    let scene = CliFixture::new();
    let (mut journal, _) = Journal::open(&scene.journal_dir(), Retention::default(), Timestamp(0)).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = Timestamp(now.as_millis() as i64);
    let texts: Vec<String> = (0..10_000).map(|number| format!("line {number}\n")).collect();
    let names: Vec<String> = (0..10_000).map(|number| scene.file_path(&format!("f{number}"))).collect();
    let origin = ChangeOrigin { session: Some("s".to_owned()), turn: Some(1), ..ChangeOrigin::default() };
    let drafts: Vec<ChangeDraft<'_>> = names
        .iter()
        .zip(&texts)
        .map(|(path, text)| ChangeDraft {
            origin: &origin,
            source: ChangeSource::Written,
            path,
            moved_from: None,
            before: None,
            after: Some(DraftSide { content: DraftContent::Bytes(text.as_bytes()), mode: 0o644 }),
            reverses: &[],
            method: ApplyMethod::AlreadyApplied,
        })
        .collect();
    journal.record(&drafts, now).unwrap();
    let output = scene.run_command(scene.command(&["changes", "--full"]), "");
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told.lines().count(), 10_004);
    assert!(told.ends_with(
        "\n10000 changes; bowline undo takes the last turn back, bowline undo --change 10000 one change\n"
    ));

    for arguments in [&["changes", "--full"][..], &["changes", "--json"], &["diff"]] {
        let mut child =
            scene.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
}

#[test]
fn names_that_are_not_utf_8_are_told_of() {
    let scene = CliFixture::new();
    scene.run_agent("write a.txt: 1");
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff");
    let mut command = scene.command(&["undo", "--file"]);
    command.arg(odd);
    let mut told = scene.describe_output(&scene.run_command(command, ""));
    std::fs::create_dir(scene.project().join(odd)).unwrap();
    for arguments in [&["changes"][..], &["policy", "show"]] {
        let mut command = scene.command(arguments);
        command.current_dir(scene.project().join(odd));
        told += &scene.describe_output(&scene.run_command(command, ""));
    }
    expect![[r#"
        --- stderr
        bowline: $PROJECT/odd� is not named in UTF-8, so no agent can have changed it
        --- 2
        --- stderr
        bowline: $PROJECT/odd� is not named in UTF-8, so no agent works there
        --- 2
        --- stderr
        bowline: $PROJECT/odd� is not named in UTF-8, so no agent works there
        --- 2
    "#]]
    .assert_eq(&told);
}

#[test]
fn names_that_would_steer_a_terminal_are_shown_harmless() {
    let scene = CliFixture::new();
    scene.run_agent("run printf x > \"$(printf 'a\\033[31mb')\"");
    expect![[r#"
        $ bowline changes
        session $SHORT
          turn 1 · run printf x > "$(printf 'a\033[31mb')" · WHEN (just now)
            $ /bin/sh -c 'printf x > "$(printf '\''a\033[31mb'\'')"'  call turn1_1
            1 created  a\u{1b}[31mb +1  observed

        1 change; bowline undo takes the last turn back, bowline undo --change 1 one change
        --- 0
        $ bowline diff --stat
         a\u{1b}[31mb | 1 +
         1 file changed, +1 −0
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: run printf x > "$(printf 'a\033[31mb')"), in 1 file
          a\u{1b}[31mb  deleted (found on disk after a command)
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
    "#]]
    .assert_eq(&scene.run_all(&[&["changes"], &["diff", "--stat"], &["undo"]]));
}

#[test]
fn an_undo_that_leaves_something_says_what_and_fails() {
    let scene = CliFixture::new();
    std::fs::write(scene.project().join("bin"), vec![0; 2 << 20]).unwrap();
    std::fs::write(scene.project().join("small"), [0; 3000]).unwrap();
    scene.run_agent("run sh -c 'echo bad > bin; echo x > new; echo bad > small'");
    expect![[r#"
        diff --git a/small b/small
        Binary files a/small and b/small differ
        diff --git a/new b/new
        deleted file mode 100644
        --- a/new
        +++ /dev/null
        @@ -1 +0,0 @@
        -x
        --- stderr
        bowline: the last turn (turn 1 of session $SHORT: run sh -c 'echo bad > bin; echo x > new; echo bad > small') would be undone, in 2 files
        bowline: what was found on disk may be your own work, saved meanwhile, or that of another program: new, small; --written-only leaves that alone
        bowline: bin: change 1 was found on disk, and what was there before is not known
        bowline: not all could be undone: 1 change is left as it was found
        --- 1
    "#]]
    .assert_eq(&scene.run(&["undo", "--dry-run"]));
    expect![[r#"
        undone the last turn (turn 1 of session $SHORT: run sh -c 'echo bad > bin; echo x > new; echo bad > small'), in 2 files
          new    deleted (found on disk after a command)
          small  as it was before (found on disk after a command)
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- stderr
        bowline: bin: change 1 was found on disk, and what was there before is not known
        bowline: not all could be undone: 1 change is left as it was found
        --- 1
    "#]]
    .assert_eq(&scene.run(&["undo"]));
    assert!(!scene.has_file("new"));
    assert_eq!(std::fs::read(scene.project().join("small")).unwrap(), [0; 3000]);
}

#[test]
fn kept_texts_are_reported_listed_printed_and_restored() {
    let scene = CliFixture::new();
    // A write was cut short, and its temporary file contains neither the old text nor the new one.
    let temp = format!(".bowline-{:032x}.tmp", 7);
    scene.write_file("a.txt", "by the agent\n");
    scene.write_file(&temp, "by me\n");
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let now = Timestamp(since.as_millis() as i64);
    let (mut journal, _) = Journal::open(&scene.journal_dir(), Retention::default(), now).unwrap();
    let side = |content: &'static str| {
        Some(DraftSide { content: DraftContent::Bytes(content.as_bytes()), mode: 0o644 })
    };
    let origin = ChangeOrigin { session: Some("s1".to_owned()), turn: Some(1), ..ChangeOrigin::default() };
    let draft = ChangeDraft {
        origin: &origin,
        source: ChangeSource::Written,
        path: &scene.file_path("a.txt"),
        moved_from: None,
        before: side("before\n"),
        after: side("after\n"),
        reverses: &[],
        method: ApplyMethod::Rename { temp },
    };
    journal.begin(&[draft], now).unwrap();
    drop(journal);
    let told = scene.run_all(&[
        &["changes"],
        &["restore"],
        &["restore", "1", "--print"],
        &["restore", "2", "--print"],
        &["restore", "2"],
        &["restore", "2"],
        &["restore"],
        &["restore", "--print"],
    ]);
    expect![[r#"
        $ bowline changes
        session s1
          turn 1 · WHEN (just now)
            1 edited   a.txt +1 −1  was interrupted; its outcome is unknown

        beside the agents: you, or other programs
            2 edited   a.txt +1 −1  kept, not in the file: bowline restore 2  WHEN

        2 changes; bowline undo takes the last turn back, bowline undo --change 2 one change
        --- stderr
        bowline: a write of $PROJECT/a.txt was interrupted, and the file was changed since: look at it
        bowline: text saved to $PROJECT/a.txt while it was being replaced could not be merged into it and is only in the journal: `bowline restore 2` puts it into the file, with --print it is shown
        --- 0
        $ bowline restore
        2 a.txt  6 bytes  WHEN
        1 text is only in the journal; bowline restore ID puts it into its file
        --- 0
        $ bowline restore 1 --print
        --- stderr
        bowline: there is no kept text 1 here: `bowline restore` lists them
        --- 1
        $ bowline restore 2 --print
        by me
        --- 0
        $ bowline restore 2
        restored text 2 to a.txt; `bowline redo` takes that back
        --- 0
        $ bowline restore 2
        --- stderr
        bowline: text 2 was restored before; --print shows it
        --- 1
        $ bowline restore
        no text is only in the journal
        --- 0
        $ bowline restore --print
        --- stderr
        bowline: the following required arguments were not provided: <ID> (see --help)
        --- 2
    "#]].assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "by me\n");
}

#[test]
fn a_pruned_change_is_listed_and_its_undo_says_so() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "the original\n");
    scene.run_agent("write a.txt: first\\n\nwrite b.txt: one\\n");
    scene.run_next_turn("write b.txt: two\\n");
    // The change is old, and newer ones exist.
    let retention = Retention { max_age_ms: 0, ..Retention::default() };
    drop(Journal::open(&scene.journal_dir(), retention, Timestamp(i64::MAX)).unwrap());
    let told = scene.run_all(&[
        &["changes"],
        &["diff", "--stat"],
        &["undo", "--turn", "1"],
        &["undo", "--turn", "1", "--keep-going"],
        &["undo"],
        &["undo"],
    ]);
    expect![[r#"
        $ bowline changes
        session $SHORT
          turn 1 · write a.txt: first\n · WHEN (just now)
            1 edited   a.txt 13 → 6 bytes  pruned, call turn1_1
            2 created  b.txt 0 → 4 bytes  pruned, call turn1_2
          turn 2 · write b.txt: two\n · WHEN (just now)
            3 edited   b.txt +1 −1  call turn2_1

        3 changes; bowline undo takes the last turn back, bowline undo --change 3 one change
        --- 0
        $ bowline diff --stat
         b.txt | 2 +-
         1 file changed, +1 −1
        --- stderr
        bowline: a.txt: change 1 is pruned, its text is no longer in the journal
        bowline: b.txt: change 2 is pruned, its text is no longer in the journal
        --- 0
        $ bowline undo --turn 1
        --- stderr
        bowline: b.txt: change 2: its text was pruned, because the journal keeps only so much, and for so long: the file stays as it is
        bowline: a.txt: change 1: its text was pruned, because the journal keeps only so much, and for so long: the file stays as it is
        bowline: cannot undo 2 of 2 files, so nothing is undone
        --- 1
        $ bowline undo --turn 1 --keep-going
        --- stderr
        bowline: b.txt: change 2: its text was pruned, because the journal keeps only so much, and for so long: the file stays as it is
        bowline: a.txt: change 1: its text was pruned, because the journal keeps only so much, and for so long: the file stays as it is
        bowline: cannot undo 2 of 2 files, so nothing is undone
        --- 1
        $ bowline undo
        undone the last turn (turn 2 of session $SHORT: write b.txt: two\n), in 1 file
          b.txt  as it was before
        `bowline redo` brings it back
        --- 0
        $ bowline undo
        --- stderr
        bowline: what is left of what agents changed here cannot be taken back, its text is not kept: `bowline changes` lists it
        --- 1
    "#]].assert_eq(&told);
    assert_eq!(
        (scene.read_file("a.txt"), scene.read_file("b.txt")),
        ("first\n".to_owned(), "one\n".to_owned())
    );
}

#[test]
fn a_name_in_an_error_steers_no_terminal() {
    let scene = CliFixture::new();
    scene.run_agent("run printf x > 'e\u{1b}[31mRED\u{7}.txt'");
    let name = scene.project().join("e\u{1b}[31mRED\u{7}.txt");
    assert!(name.exists());
    std::fs::remove_file(&name).unwrap();
    std::os::unix::fs::symlink(scene.home().join("x"), &name).unwrap();
    std::fs::write(scene.home().join("x"), "x").unwrap();
    expect![[r#"
        --- stderr
        bowline: e\u{1b}[31mRED\u{7}.txt: $PROJECT/e\u{1b}[31mRED\u{7}.txt is outside the session's directories
        bowline: cannot undo 1 of 1 file, so nothing is undone
        --- 1
    "#]].assert_eq(&scene.run(&["undo"]));
}

#[test]
fn an_irreversible_change_does_not_hide_earlier_ones() {
    let scene = CliFixture::new();
    std::fs::write(scene.project().join("bin"), vec![0; 2 << 20]).unwrap();
    scene.run_agent("write a: one\\n");
    scene.run_next_turn("run echo bad > bin");
    scene.run_next_turn("run rm bin; echo x > b");
    let told = scene.run_all(&[&["undo"], &["undo", "--dry-run"], &["undo"], &["undo"], &["undo", "--turn"]]);
    expect![[r#"
        $ bowline undo
        undone the last turn (turn 3 of session $SHORT: run rm bin; echo x > b), in 2 files
          b    deleted (found on disk after a command)
          bin  there again (found on disk after a command)
        `bowline redo` brings it back
        what was found on disk may be your own work, saved meanwhile, or that of another program; undo --written-only leaves that alone
        --- 0
        $ bowline undo --dry-run
        diff --git a/a b/a
        deleted file mode 100644
        --- a/a
        +++ /dev/null
        @@ -1 +0,0 @@
        -one
        --- stderr
        bowline: the last turn (turn 1 of session $SHORT: write a: one\n) would be undone, in 1 file
        --- 0
        $ bowline undo
        undone the last turn (turn 1 of session $SHORT: write a: one\n), in 1 file
          a  deleted
        `bowline redo` brings it back
        --- 0
        $ bowline undo
        --- stderr
        bowline: what is left of what agents changed here cannot be taken back, its text is not kept: `bowline changes` lists it
        --- 1
        $ bowline undo --turn
        --- stderr
        bowline: bin: change 2: its text is not kept
        bowline: cannot undo 1 of 1 file, so nothing is undone
        --- 1
    "#]].assert_eq(&told);
    assert!(!scene.has_file("a") && !scene.has_file("b"));
}

#[test]
fn a_directory_means_the_files_below_it() {
    let scene = CliFixture::new();
    scene.write_file("srcs", "beside\n");
    scene.run_agent("write src/a: one\\n\nwrite src/deep/b: two\\n\nwrite srcs: other\\n");
    let told = scene.run_all(&[
        &["changes", "--file", "src"],
        &["diff", "--stat", "--file", "src/deep/"],
        &["undo", "--file", "src/nothing"],
        &["undo", "--file", "src"],
        &["redo", "--file", "src/deep"],
        &["undo", "--file", "."],
    ]);
    expect![[r#"
        $ bowline changes --file src
        session $SHORT
          turn 1 · write src/a: one\n · WHEN (just now)
            1 created  src/a      +1  call turn1_1
            2 created  src/deep/b +1  call turn1_2

        2 changes; bowline undo takes the last turn back, bowline undo --change 2 one change
        --- 0
        $ bowline diff --stat --file src/deep/
         src/deep/b | 1 +
         1 file changed, +1 −0
        --- 0
        $ bowline undo --file src/nothing
        --- stderr
        bowline: there is nothing to undo of what agents did to src/nothing
        --- 1
        $ bowline undo --file src
        undone what agents did to src, in 2 files
          src/a       deleted
          src/deep/b  deleted
        removed empty directories: src, src/deep
        `bowline redo` brings it back
        --- 0
        $ bowline redo --file src/deep
        redone what agents did to src/deep, in 1 file
          src/deep/b  there again
        --- 0
        $ bowline undo --file .
        undone what agents did to $PROJECT, in 2 files
          src/deep/b  deleted
          srcs        as it was before
        removed empty directories: src, src/deep
        `bowline redo` brings it back
        --- 0
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("srcs"), "beside\n");
}

#[test]
fn unreadable_state_is_not_taken_for_missing() {
    let scene = CliFixture::new();
    std::fs::create_dir_all(scene.home().join(".local/state")).unwrap();
    std::fs::write(scene.home().join(".local/state/bowline"), "").unwrap();
    let told =
        scene.run_all(&[&["changes"], &["diff"], &["undo"], &["sessions"], &["sessions", "show", "last"]]);
    let told: String = told
        .split_inclusive('\n')
        .map(|line| match line.split_once("/workspaces/project-") {
            Some((before, after)) => format!(
                "{before}/workspaces/project-HASH{}",
                after.trim_start_matches(|c: char| c.is_ascii_hexdigit())
            ),
            None => line.to_owned(),
        })
        .collect();
    expect![[r#"
        $ bowline changes
        --- stderr
        bowline: cannot look at $HOME/.local/state/bowline/workspaces/project-HASH/journal.sqlite: Not a directory (os error 20)
        --- 1
        $ bowline diff
        --- stderr
        bowline: cannot look at $HOME/.local/state/bowline/workspaces/project-HASH/journal.sqlite: Not a directory (os error 20)
        --- 1
        $ bowline undo
        --- stderr
        bowline: cannot look at $HOME/.local/state/bowline/workspaces/project-HASH/journal.sqlite: Not a directory (os error 20)
        --- 1
        $ bowline sessions
        --- stderr
        bowline: cannot look at $HOME/.local/state/bowline/sessions.db: Not a directory (os error 20)
        --- 1
        $ bowline sessions show last
        --- stderr
        bowline: cannot look at $HOME/.local/state/bowline/sessions.db: Not a directory (os error 20)
        --- 1
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn undo_of_many_files_shows_progress() {
    let scene = CliFixture::new();
    scene.run_agent("run for i in $(seq 250); do echo $i > f$i; done");
    for (command, done) in [("undo", "undone"), ("redo", "redone")] {
        let mut screen = Screen::start(&scene, &[command]);
        assert_eq!(screen.wait_for_exit().await, Some(0));
        let written = String::from_utf8_lossy(&screen.raw_output).into_owned();
        let told: String =
            written.split_inclusive('\r').filter(|part| part.contains(" of 250 files")).collect();
        let steps = [50, 100, 150, 200].map(|step| format!("{done} {step} of 250 files\r"));
        assert_eq!(told, steps.concat(), "{written}");
        // The progress line is cleared before the rest is printed.
        assert!(written.contains("\r\u{1b}[K"), "{written}");
    }
    // Programs get no progress line.
    let told = scene.run(&["undo"]);
    assert!(!told.contains("of 250 files") && told.contains("in 250 files"), "{told}");
}
