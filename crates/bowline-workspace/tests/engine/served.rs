//! The steps of scripts, served by the engine itself.

use agent_client_protocol_schema::v1::Error;
use anyhow::{Result, bail};
use bowline_state::changes::{Change, Source};
use bowline_state::failure::Failure;
use bowline_state::ledger::{Unseen, Verdict};
use bowline_state::lines::Window;
use bowline_state::paths::Protection;
use bowline_state::undo::Selection;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::{Resolver, RootSpec, Roots};
use bowline_workspace::workspace::{
    self, Changed, Guard, OpenDocument, Reversed, Session, Settings, Workspace,
};
use test_support::fixture::{Actor, Answer, Outcome, Steps, World};

/// A workspace that takes the steps of a script.
pub(crate) struct Served {
    workspace: Workspace,
}

impl Served {
    pub(crate) fn open(world: &World) -> Result<Self> {
        Self::open_with(world, Resolver::Kernel)
    }

    pub(crate) fn open_walking(world: &World) -> Result<Self> {
        Self::open_with(world, Resolver::Walk)
    }

    fn open_with(world: &World, resolver: Resolver) -> Result<Self> {
        let more: Vec<RootSpec> = world
            .more_roots()
            .iter()
            .map(|(path, mode)| RootSpec { path: path.clone(), mode: *mode })
            .collect();
        let mut cwd = RootSpec::writable(world.cwd());
        let mut settings = Settings::default();
        let mut journal = world.state();
        for setting in world.settings() {
            match (setting.name.as_str(), setting.value.as_str()) {
                ("unseen", "refuse") => settings.unseen = Unseen::Refuse,
                ("hard-links", "allow") => settings.hard_links = Guard::Allow,
                ("read-only-files", "allow") => settings.read_only_files = Guard::Allow,
                ("max-read", bytes) => settings.max_read = bytes.parse()?,
                ("max-write", bytes) => settings.max_write = bytes.parse()?,
                ("journal", path) => journal = path.into(),
                ("cwd-read-only", _) => cwd = RootSpec::read_only(world.cwd()),
                (name, value) => bail!("there is no setting {name} {value}"),
            }
        }
        let roots = Roots::open_with(&cwd, &more, resolver)?;
        let opened = Workspace::open(roots, &journal, settings)?;
        Ok(Self { workspace: opened.workspace })
    }

    fn session(&self, actor: &Actor) -> Session {
        self.workspace.session(&actor.session)
    }
}

/// Returns the error as a peer gets it.
fn refused(error: FilesError) -> Error {
    Failure::from(error).into()
}

fn protected(protection: Option<Protection>) -> impl Iterator<Item = String> {
    protection.into_iter().map(|protection| format!("asks: {}", protection.reason()))
}

impl Steps for Served {
    fn read(&mut self, actor: &Actor, path: &str, window: Window) -> Outcome {
        let read = self.session(actor).read(path, window).map_err(refused)?;
        let mut notes: Vec<String> = protected(read.protection).collect();
        match read.served {
            workspace::Served::Disk => {}
            workspace::Served::Document => notes.push("from the editor".to_owned()),
            workspace::Served::DocumentBesideChangedFile => {
                notes.push("from the editor, the file was changed too".to_owned());
            }
        }
        Ok(Answer { notes, text: Some(read.text.to_string()) })
    }

    fn write(&mut self, actor: &Actor, path: &str, content: &str) -> Outcome {
        let session = self.session(actor);
        let origin = session.origin(actor.turn, actor.call.as_deref());
        let written = session.write(path, content, &origin).map_err(refused)?;
        let verdict = match written.verdict {
            None => "unchanged",
            Some(Verdict::Created) => "created",
            Some(Verdict::Replaced) => "replaced",
            Some(Verdict::Merged) => "merged",
            Some(Verdict::ReplacedPartlySeen) => "replaced, partly seen",
            Some(Verdict::ReplacedUnseen) => "replaced, unseen",
        };
        let notes = protected(written.protection).chain([verdict.to_owned()]).collect();
        let text = (*written.text != content).then(|| written.text.to_string());
        Ok(Answer { notes, text })
    }

    fn delete(&mut self, actor: &Actor, path: &str) -> Outcome {
        let session = self.session(actor);
        let origin = session.origin(actor.turn, actor.call.as_deref());
        session.delete(path, &origin).map_err(refused)?;
        Ok(Answer::note("deleted"))
    }

    fn undo(&mut self, actor: &Actor, selection: &Selection) -> Outcome {
        let session = self.session(actor);
        let origin = session.origin(actor.turn, actor.call.as_deref());
        session.undo(selection, &origin).map(|taken| reversed(taken.files)).map_err(refused)
    }

    fn redo(&mut self, actor: &Actor, selection: &Selection) -> Outcome {
        let session = self.session(actor);
        let origin = session.origin(actor.turn, actor.call.as_deref());
        session.redo(selection, &origin).map(|taken| reversed(taken.files)).map_err(refused)
    }

    fn changes(&mut self, selection: &Selection) -> Outcome {
        let changes = self.workspace.changes(selection).map_err(refused)?;
        let notes: Vec<String> = changes.iter().map(line).collect();
        Ok(Answer { notes: if notes.is_empty() { vec!["no changes".to_owned()] } else { notes }, text: None })
    }

    fn diff(&mut self, selection: &Selection) -> Outcome {
        let patch = self.workspace.diff(selection).map_err(refused)?;
        let notes = if patch.is_empty() { vec!["no difference".to_owned()] } else { Vec::new() };
        Ok(Answer { notes, text: Some(patch).filter(|patch| !patch.is_empty()) })
    }

    fn open(&mut self, path: &str) -> Outcome {
        self.workspace.open_document(path).map(|document| shown(&document)).map_err(refused)
    }

    fn change(&mut self, path: &str, text: &str) -> Outcome {
        let shown = self.workspace.document(path).map_err(refused)?;
        let revision = shown.map_or(0, |shown| shown.revision);
        let changed = self.workspace.change_document(path, text.to_owned(), revision).map_err(refused)?;
        Ok(Answer::note(if changed.dirty { "unsaved" } else { "saved" }))
    }

    fn save(&mut self, path: &str) -> Outcome {
        self.workspace.save_document(path).map(|document| shown(&document)).map_err(refused)
    }

    fn close(&mut self, path: &str) -> Outcome {
        self.workspace.close_document(path).map(|()| Answer::default()).map_err(refused)
    }

    fn show(&mut self, path: &str) -> Outcome {
        let document = self.workspace.document(path).map_err(refused)?;
        Ok(document.map_or_else(|| Answer::note("not open"), |document| shown(&document)))
    }
}

fn shown(document: &OpenDocument) -> Answer {
    let state = if document.dirty { "unsaved" } else { "saved" };
    Answer { notes: vec![format!("{} {state}", document.path)], text: Some(document.text.to_string()) }
}

fn reversed(files: Vec<Reversed>) -> Answer {
    let line = |file: Reversed| {
        let end = if file.changed { "" } else { ", as it was already" };
        format!("change {} of {}{end}", file.change, file.path)
    };
    Answer { notes: files.into_iter().map(line).collect(), text: None }
}

fn line(changed: &Changed) -> String {
    let Change { id, origin, source, path, before, after, reverses, .. } = &changed.change;
    let mut line = format!("{id}");
    for part in [origin.session.clone(), origin.turn.map(|turn| format!("turn {turn}")), origin.call.clone()]
    {
        line.extend(part.map(|part| format!(" {part}")));
    }
    line.push_str(match source {
        Source::Written => "",
        Source::Observed => " observed",
        Source::Claimed => " claimed",
    });
    line.push_str(match (before, after) {
        (None, Some(_)) => " creates",
        (Some(_), None) => " deletes",
        _ => " changes",
    });
    line.push_str(&format!(" {path}"));
    for reversal in reverses {
        line.push_str(&format!(", takes back {}", reversal.change));
        if let Some(hunks) = &reversal.hunks {
            line.push_str(&format!(" hunks {hunks:?}"));
        }
    }
    line.push_str(if changed.in_effect { "" } else { " (taken back)" });
    line.push_str(if changed.uncertain { " (uncertain)" } else { "" });
    line
}
