//! Subscribers are notified of every change of a document or its diagnostics, regardless of its author.

use bowline_history::changes::ChangeOrigin;
use bowline_history::undo::ChangeSelection;
use bowline_protocol::diagnostics::{Diagnostic, DiagnosticSeverity, TextRange};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use super::{MAX_NOTIFICATIONS, WorkspaceNotification};
use crate::workspace::fixture::TestProject;

fn error_diagnostic(message: &str) -> Vec<Diagnostic> {
    let (range, severity) = (TextRange::default(), DiagnosticSeverity::Error);
    vec![Diagnostic { range, severity, message: message.to_owned(), source: None, code: None }]
}

/// Returns the pending notifications, in order.
fn drain_notifications(project: &TestProject, news: &mut Receiver<WorkspaceNotification>) -> Vec<String> {
    let name = |path: String| path.replace(&project.path(""), "");
    std::iter::from_fn(|| match news.try_recv() {
        Ok(WorkspaceNotification::Document(path)) => Some(format!("text of {}", name(path))),
        Ok(WorkspaceNotification::Documents) => Some("documents".to_owned()),
        Ok(WorkspaceNotification::Diagnostics(path)) => Some(format!("diagnostics of {}", name(path))),
        Ok(WorkspaceNotification::Changes) => Some("changes".to_owned()),
        Ok(WorkspaceNotification::TextsKept) => Some("texts kept".to_owned()),
        Err(TryRecvError::Lagged(missed)) => Some(format!("missed {missed}")),
        Err(TryRecvError::Empty | TryRecvError::Closed) => None,
    })
    .collect()
}

#[test]
fn every_document_change_is_announced_and_nothing_else() {
    let project = TestProject::new(&[("a", "one\n")]);
    let (workspace, path) = (&project.workspace, project.path("a"));
    let mut news = workspace.subscribe();
    let opened = workspace.open_document(&path).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["documents"]);
    workspace.open_document(&path).unwrap();
    workspace.close_document(&path).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), Vec::<String>::new(), "it was open, and is");
    let typed = workspace.change_document(&path, "two\n".to_owned(), opened.revision).unwrap();
    assert_eq!(
        drain_notifications(&project, &mut news),
        ["text of a", "documents"],
        "it is not saved any more"
    );
    let typed = workspace.change_document(&path, "three\n".to_owned(), typed.revision).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["text of a"]);
    workspace.change_document(&path, "three\n".to_owned(), typed.revision).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), Vec::<String>::new(), "nothing changed");
    workspace.save_document(&path).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["documents"], "it is saved now");
    project.write("a", "from beside\n");
    workspace.document(&path).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["text of a"]);
    workspace.close_document(&path).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["documents"]);
}

#[test]
fn diagnostics_are_announced_and_missed_notifications_counted() {
    let project = TestProject::new(&[("a", "one\n")]);
    let (workspace, path) = (&project.workspace, project.path("a"));
    let mut news = workspace.subscribe();
    workspace.share_diagnostics(&path, error_diagnostic("x")).unwrap();
    workspace.share_diagnostics(&path, error_diagnostic("x")).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["diagnostics of a"]);
    project.observe(&ChangeOrigin::default());
    project.write("a", "two and more\n");
    project.observe(&ChangeOrigin::default());
    assert_eq!(drain_notifications(&project, &mut news), ["diagnostics of a"], "they are old");
    for number in 0..MAX_NOTIFICATIONS + 2 {
        workspace.share_diagnostics(&path, error_diagnostic(&number.to_string())).unwrap();
    }
    let all = drain_notifications(&project, &mut news);
    assert_eq!((all[0].as_str(), all.len()), ("missed 2", MAX_NOTIFICATIONS + 1));
}

#[test]
fn only_successful_undo_and_redo_are_announced() {
    let project = TestProject::new(&[("a", "one\n")]);
    let (workspace, path) = (&project.workspace, project.path("a"));
    let mut news = workspace.subscribe();
    workspace.undo(&ChangeSelection::default()).unwrap_err();
    workspace.session("s").write(&path, "two\n", &ChangeOrigin::default()).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), Vec::<String>::new());
    workspace.undo(&ChangeSelection::default()).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["changes"]);
    workspace.redo(&ChangeSelection::default()).unwrap();
    assert_eq!(drain_notifications(&project, &mut news), ["changes"]);
}
