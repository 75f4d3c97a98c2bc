//! Tests of the trait `FileBackend`, as served by this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bowline_history::ledger::WriteVerdict;
use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::LineWindow;
use bowline_workspace::files::{FileBackend, LocalFiles, MAX_CONCURRENT_READS, Requester};
use bowline_workspace::list::ListOptions;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::search::SearchQuery;
use bowline_workspace::workspace::{TextSource, Workspace, WorkspaceOptions};
use tempfile::TempDir;

fn open_project() -> (LocalFiles, PathBuf, TempDir) {
    let scratch = TempDir::new().unwrap();
    let root = scratch.path().canonicalize().unwrap().join("project");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
    let workspace =
        Workspace::open(roots, &scratch.path().join("state"), WorkspaceOptions::default()).unwrap().workspace;
    (LocalFiles::new(workspace.session("s1")), root, scratch)
}

/// An agent's tool, generic over the backend.
async fn uppercase_file(
    files: &impl FileBackend,
    path: &str,
    asker: &Requester,
) -> Result<Option<WriteVerdict>, RpcError> {
    let text = files.read(path, LineWindow::default()).await?.text;
    Ok(files.write(path, text.to_uppercase(), asker).await?.verdict)
}

#[tokio::test]
async fn a_tool_reads_writes_lists_and_searches() {
    let (files, root, _scratch) = open_project();
    let path = root.join("a.txt").to_str().unwrap().to_owned();
    let asker = Requester { turn: Some(3), call: Some("c7".to_owned()) };
    let line = files.read(&path, LineWindow { line: Some(2), limit: Some(1) }).await.unwrap();
    assert_eq!((line.text.as_str(), line.source), ("two\n", TextSource::Disk));
    assert_eq!(uppercase_file(&files, &path, &asker).await.unwrap(), Some(WriteVerdict::Replaced));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "ONE\nTWO\nTHREE\n");

    let listing = files.list(root.to_str().unwrap(), ListOptions::default()).await.unwrap();
    assert_eq!(listing.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["a.txt"]);
    let found = files.search(SearchQuery::literal("TWO"), None).await.unwrap();
    assert_eq!(found.matches.iter().map(|found| found.line).collect::<Vec<_>>(), [2]);

    let changes =
        files.session().workspace().changes(&bowline_history::undo::ChangeSelection::default()).unwrap();
    let origin = &changes[0].change.origin;
    assert_eq!(
        (origin.session.as_deref(), origin.turn, origin.call.as_deref()),
        (Some("s1"), Some(3), Some("c7"))
    );
}

#[tokio::test]
async fn failures_are_reported_as_protocol_errors() {
    let (files, root, _scratch) = open_project();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let read = async |name: &str| files.read(&path(name), LineWindow::default()).await.unwrap_err();
    assert_eq!(read("missing").await, RpcError::ResourceNotFound { uri: Some(path("missing")) });
    assert_eq!(read("../x").await, RpcError::OutsideRoots { path: path("../x") });
    let past = files.read(&path("a.txt"), LineWindow { line: Some(9), limit: None }).await.unwrap_err();
    assert_eq!(past, RpcError::PastEnd { lines: 3 });
    std::fs::write(path("a.txt"), "ONE\ntwo\nthree\n").unwrap();
    files.read(&path("a.txt"), LineWindow::default()).await.unwrap();
    std::fs::write(path("a.txt"), "1\ntwo\nthree\n").unwrap();
    match write_stale(&files, &path("a.txt")).await {
        RpcError::Conflict { hunks, .. } => assert_eq!((hunks.len(), hunks[0].ours.as_str()), (1, "1\n")),
        other => panic!("{other:?}"),
    }
}

async fn write_stale(files: &LocalFiles, path: &str) -> RpcError {
    files.write(path, "uno\ntwo\nthree\n".to_owned(), &Requester::default()).await.unwrap_err()
}

#[tokio::test]
async fn many_at_once_are_all_served() {
    let (files, root, _scratch) = open_project();
    let tasks: Vec<_> = (0..4 * MAX_CONCURRENT_READS)
        .map(|at| {
            let (files, path) = (files.clone(), root.join(format!("{at}.txt")).to_str().unwrap().to_owned());
            tokio::spawn(async move {
                files.write(&path, format!("{at}\n"), &Requester::default()).await.unwrap();
                files.read(&path, LineWindow::default()).await.unwrap().text.to_string()
            })
        })
        .collect();
    for (at, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), format!("{at}\n"));
    }
}

#[tokio::test]
async fn a_dropped_write_is_done_completely_or_not_at_all() {
    let (files, root, _scratch) = open_project();
    let path = root.join("large.txt").to_str().unwrap().to_owned();
    let text = "a line\n".repeat(100_000);
    for _ in 0..20 {
        let asker = Requester::default();
        let write = files.write(&path, text.clone(), &asker);
        // Polled once, which starts the operation, and dropped.
        tokio::select! {
            biased;
            written = write => { written.unwrap(); }
            () = std::future::ready(()) => {}
        }
    }
    // The next write waits for those before it.
    files.write(&path, text.clone(), &Requester::default()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let names: Vec<_> = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_command_works_in_a_directory_of_the_session_and_nowhere_else() {
    let (files, root, scratch) = open_project();
    let session = files.session();
    std::fs::create_dir(root.join("src")).unwrap();
    std::os::unix::fs::symlink(root.join("src"), root.join("inside")).unwrap();
    std::os::unix::fs::symlink(scratch.path(), root.join("outside")).unwrap();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let there = session.working_directory(&path("inside")).unwrap();
    assert_eq!(there.path, path("src"));
    let handle = std::fs::File::from(there.handle).metadata().unwrap();
    assert_eq!(handle.ino(), std::fs::metadata(path("src")).unwrap().ino());
    for name in ["outside", "a.txt", "missing", "../project"] {
        let failure = session.working_directory(&path(name)).map_err(RpcError::from);
        assert_eq!(failure.is_ok(), name == "../project", "{name}: {failure:?}");
    }
}

#[test]
fn a_project_has_one_journal_for_every_path_to_it() {
    let (files, root, scratch) = open_project();
    std::os::unix::fs::symlink(&root, scratch.path().join("alias")).unwrap();
    let state = Path::new("/state");
    let directory = |path: &Path| {
        let roots = Roots::open(&RootSpec::read_only(path.to_str().unwrap()), &[]).unwrap();
        Workspace::journal_directory(state, &roots)
    };
    let own = Workspace::journal_directory(state, files.session().roots());
    assert_eq!(directory(&scratch.path().join("alias")), own);
    assert!(own.starts_with("/state/workspaces") && own.to_str().unwrap().contains("/project-"), "{own:?}");
    assert_ne!(directory(scratch.path()), own);
}
