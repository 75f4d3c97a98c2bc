//! Diagnostics belong to files of the workspace, and are outdated after any change of those files.

use std::os::unix::fs::symlink;
use std::sync::mpsc::Receiver;

use bowline_history::changes::ChangeOrigin;
use bowline_protocol::diagnostics::{Diagnostic, DiagnosticSeverity, TextRange};

use crate::workspace::fixture::TestProject;

fn error_diagnostic(message: &str) -> Vec<Diagnostic> {
    let (range, severity) = (TextRange::default(), DiagnosticSeverity::Error);
    vec![Diagnostic { range, severity, message: message.to_owned(), source: None, code: None }]
}

fn drain_paths(events: &Receiver<String>) -> Vec<String> {
    let names = events.try_iter().map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
    names.collect()
}

#[test]
fn what_is_shared_is_known_by_the_files_own_name_and_old_once_the_file_is_changed() {
    let project = TestProject::new(&[("a", "one\n"), ("b", "two\n")]);
    let workspace = &project.workspace;
    let events = workspace.diagnostic_events();
    let outside =
        workspace.share_diagnostics("/etc/hostname", error_diagnostic("x")).unwrap_err().to_string();
    assert!(outside.contains("outside"), "{outside}");
    symlink("a", project.path("link")).unwrap();
    assert_eq!(
        workspace.share_diagnostics(&project.path("link"), error_diagnostic("x")).unwrap(),
        project.path("a")
    );
    workspace.share_diagnostics(&project.path("b"), error_diagnostic("y")).unwrap();
    assert_eq!(drain_paths(&events), ["a", "b"]);
    let is_old =
        |name: &str| workspace.file_diagnostics(&project.path(name)).unwrap().map(|known| known.is_stale);
    assert_eq!((is_old("a"), is_old("b")), (Some(false), Some(false)));

    // Through the engine, and outside of it.
    let session = workspace.session("s");
    session.write(&project.path("a"), "1\n", &ChangeOrigin::default()).unwrap();
    assert_eq!(
        (drain_paths(&events), is_old("a"), is_old("b")),
        (vec!["a".to_owned()], Some(true), Some(false))
    );
    project.write("b", "2 and more\n");
    project.observe(&ChangeOrigin::default());
    assert_eq!((drain_paths(&events), is_old("b")), (vec!["b".to_owned()], Some(true)));

    workspace.share_diagnostics(&project.path("b"), error_diagnostic("z")).unwrap();
    workspace.share_diagnostics(&project.path("a"), Vec::new()).unwrap();
    assert_eq!(drain_paths(&events), ["b", "a"]);
    let left: Vec<String> = workspace.diagnostics().into_iter().map(|(path, _)| path).collect();
    assert_eq!(left, [project.path("b")]);
}

#[test]
fn a_listener_that_does_not_listen_is_dropped() {
    let project = TestProject::new(&[("a", "one\n")]);
    let events = project.workspace.diagnostic_events();
    for number in 0..super::MAX_EVENTS + 2 {
        project
            .workspace
            .share_diagnostics(&project.path("a"), error_diagnostic(&number.to_string()))
            .unwrap();
    }
    assert_eq!(events.iter().count(), super::MAX_EVENTS, "and then it ends");
}
