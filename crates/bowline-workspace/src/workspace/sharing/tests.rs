//! Who reads hears of every document and of what is wrong, whoever changed it.

use bowline_state::changes::Origin;
use bowline_state::diagnostics::{Diagnostic, Range, Severity};
use bowline_state::undo::Selection;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use super::{MAX_NEWS, SharedNews};
use crate::workspace::fixture::Project;

fn wrong(message: &str) -> Vec<Diagnostic> {
    let (range, severity) = (Range::default(), Severity::Error);
    vec![Diagnostic { range, severity, message: message.to_owned(), source: None, code: None }]
}

/// Returns what was told, in the order it was.
fn told(project: &Project, news: &mut Receiver<SharedNews>) -> Vec<String> {
    let name = |path: String| path.replace(&project.path(""), "");
    std::iter::from_fn(|| match news.try_recv() {
        Ok(SharedNews::Document(path)) => Some(format!("text of {}", name(path))),
        Ok(SharedNews::Documents) => Some("documents".to_owned()),
        Ok(SharedNews::Diagnostics(path)) => Some(format!("diagnostics of {}", name(path))),
        Ok(SharedNews::Changes) => Some("changes".to_owned()),
        Ok(SharedNews::TextsKept) => Some("texts kept".to_owned()),
        Err(TryRecvError::Lagged(missed)) => Some(format!("missed {missed}")),
        Err(TryRecvError::Empty | TryRecvError::Closed) => None,
    })
    .collect()
}

#[test]
fn whoever_changes_a_document_is_told_of_and_nothing_else_is() {
    let project = Project::new(&[("a", "one\n")]);
    let (workspace, path) = (&project.workspace, project.path("a"));
    let mut news = workspace.shared_news();
    let opened = workspace.open_document(&path).unwrap();
    assert_eq!(told(&project, &mut news), ["documents"]);
    workspace.open_document(&path).unwrap();
    workspace.close_document(&path).unwrap();
    assert_eq!(told(&project, &mut news), Vec::<String>::new(), "it was open, and is");
    let typed = workspace.change_document(&path, "two\n".to_owned(), opened.revision).unwrap();
    assert_eq!(told(&project, &mut news), ["text of a", "documents"], "it is not saved any more");
    let typed = workspace.change_document(&path, "three\n".to_owned(), typed.revision).unwrap();
    assert_eq!(told(&project, &mut news), ["text of a"]);
    workspace.change_document(&path, "three\n".to_owned(), typed.revision).unwrap();
    assert_eq!(told(&project, &mut news), Vec::<String>::new(), "nothing changed");
    workspace.save_document(&path).unwrap();
    assert_eq!(told(&project, &mut news), ["documents"], "it is saved now");
    project.write("a", "from beside\n");
    workspace.document(&path).unwrap();
    assert_eq!(told(&project, &mut news), ["text of a"]);
    workspace.close_document(&path).unwrap();
    assert_eq!(told(&project, &mut news), ["documents"]);
}

#[test]
fn diagnostics_are_told_of_and_who_sleeps_is_told_how_much_was_missed() {
    let project = Project::new(&[("a", "one\n")]);
    let (workspace, path) = (&project.workspace, project.path("a"));
    let mut news = workspace.shared_news();
    workspace.share_diagnostics(&path, wrong("x")).unwrap();
    workspace.share_diagnostics(&path, wrong("x")).unwrap();
    assert_eq!(told(&project, &mut news), ["diagnostics of a"]);
    project.observe(&Origin::default());
    project.write("a", "two and more\n");
    project.observe(&Origin::default());
    assert_eq!(told(&project, &mut news), ["diagnostics of a"], "they are old");
    for number in 0..MAX_NEWS + 2 {
        workspace.share_diagnostics(&path, wrong(&number.to_string())).unwrap();
    }
    let all = told(&project, &mut news);
    assert_eq!((all[0].as_str(), all.len()), ("missed 2", MAX_NEWS + 1));
}

#[test]
fn what_is_taken_back_or_done_again_is_told_of_and_what_cannot_be_is_not() {
    let project = Project::new(&[("a", "one\n")]);
    let (workspace, path) = (&project.workspace, project.path("a"));
    let mut news = workspace.shared_news();
    workspace.undo(&Selection::default()).unwrap_err();
    workspace.session("s").write(&path, "two\n", &Origin::default()).unwrap();
    assert_eq!(told(&project, &mut news), Vec::<String>::new());
    workspace.undo(&Selection::default()).unwrap();
    assert_eq!(told(&project, &mut news), ["changes"]);
    workspace.redo(&Selection::default()).unwrap();
    assert_eq!(told(&project, &mut news), ["changes"]);
}
