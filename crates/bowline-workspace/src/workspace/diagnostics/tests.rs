//! Diagnostics belong to files of the workspace, and are outdated after any change of those files.

use std::os::unix::fs::symlink;

use bowline_history::changes::ChangeOrigin;
use bowline_protocol::diagnostics::{Diagnostic, DiagnosticSeverity, TextRange};

use tokio::sync::broadcast::Receiver;

use crate::workspace::WorkspaceNotification;
use crate::workspace::fixture::TestProject;

fn error_diagnostic(message: &str) -> Vec<Diagnostic> {
    let (range, severity) = (TextRange::default(), DiagnosticSeverity::Error);
    vec![Diagnostic { range, severity, message: message.to_owned(), source: None, code: None }]
}

/// Returns the names of the files whose diagnostics changed.
fn drain_names(events: &mut Receiver<WorkspaceNotification>) -> Vec<String> {
    std::iter::from_fn(|| events.try_recv().ok())
        .filter_map(|event| match event {
            WorkspaceNotification::Diagnostics(path) => path.rsplit('/').next().map(str::to_owned),
            _ => None,
        })
        .collect()
}

#[test]
fn what_is_shared_is_known_by_the_files_own_name_and_old_once_the_file_is_changed() {
    let project = TestProject::new(&[("a", "one\n"), ("b", "two\n")]);
    let workspace = &project.workspace;
    let mut events = workspace.subscribe();
    let outside =
        workspace.share_diagnostics("/etc/hostname", error_diagnostic("x")).unwrap_err().to_string();
    assert!(outside.contains("outside"), "{outside}");
    symlink("a", project.path("link")).unwrap();
    assert_eq!(
        workspace.share_diagnostics(&project.path("link"), error_diagnostic("x")).unwrap(),
        project.path("a")
    );
    workspace.share_diagnostics(&project.path("b"), error_diagnostic("y")).unwrap();
    assert_eq!(drain_names(&mut events), ["a", "b"]);
    let is_old = |name: &str| {
        let known = workspace.diagnostics().into_iter().find(|(path, _)| *path == project.path(name));
        known.map(|(_, diagnostics)| diagnostics.is_stale)
    };
    assert_eq!((is_old("a"), is_old("b")), (Some(false), Some(false)));

    // Through the engine, and outside of it.
    let session = workspace.session("s");
    session.write(&project.path("a"), "1\n", &ChangeOrigin::default()).unwrap();
    assert_eq!(
        (drain_names(&mut events), is_old("a"), is_old("b")),
        (vec!["a".to_owned()], Some(true), Some(false))
    );
    project.write("b", "2 and more\n");
    project.observe(&ChangeOrigin::default());
    assert_eq!((drain_names(&mut events), is_old("b")), (vec!["b".to_owned()], Some(true)));

    workspace.share_diagnostics(&project.path("b"), error_diagnostic("z")).unwrap();
    workspace.share_diagnostics(&project.path("a"), Vec::new()).unwrap();
    assert_eq!(drain_names(&mut events), ["b", "a"]);
    let left: Vec<String> = workspace.diagnostics().into_iter().map(|(path, _)| path).collect();
    assert_eq!(left, [project.path("b")]);
}
