//! A toolbox with an editor at the other end of a connection, and a project on disk beside it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_agent::reporter::Reporter;
use bowline_agent::runtime::Runtimes;
use bowline_agent::settings::{Places, Settings};
use bowline_agent::tools::mcp::McpSource;
use bowline_agent::tools::{Calling, Ran, ToolParts, Toolbox};
use bowline_state::conversation::{Input, ToolUse};
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{ExtRequest, SessionId};
use bowline_workspace::audit::{self, Filter};
use bowline_workspace::terminals::{self, Supervisor};
use bowline_workspace::workspace::Workspace;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use test_support::editor::{Editor, Offers};
use test_support::lab::Puppet;

pub(crate) struct Stage {
    pub(crate) editor: Arc<Editor>,
    pub(crate) toolbox: Toolbox,
    pub(crate) cx: Calling,
    base: TempDir,
    calls: AtomicU64,
}

impl Stage {
    /// Opens a session in the mode that edits and runs without asking.
    pub(crate) async fn open(offers: Offers) -> Self {
        Self::with(offers, Mode::Full, |_| (), None).await
    }

    pub(crate) async fn with(
        offers: Offers,
        mode: Mode,
        set: impl FnOnce(&mut Settings),
        mcp: Option<Arc<dyn McpSource>>,
    ) -> Self {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let places = Places {
            state: base.path().join("state"),
            policy: base.path().join("config/policy.toml"),
            anchors: base.path().join("anchors"),
            keys: base.path().join("config/keys.toml"),
        };
        let supervisor = Supervisor { program: "/no/supervisor".into(), args: Vec::new() };
        let mut settings = Settings::new(places, terminals::Settings::new(supervisor));
        settings.shell = true;
        settings.client_timeout = Duration::from_secs(2);
        settings.review_timeout = Duration::from_secs(4);
        set(&mut settings);
        let editor = Editor::new(offers);
        let root = project.display().to_string();
        editor.hide(&root, "$ROOT");
        let (client, _) = editor.connect(Puppet::new(Vec::new())).await.unwrap();
        let session = SessionId::new("s1");
        let runtimes =
            Runtimes::new(client.clone(), session.clone(), &root, &[], Arc::new(settings)).unwrap();
        let toolbox = Toolbox::new(ToolParts { runtimes, mcp });
        toolbox.permissions().set_mode(mode);
        let cx = Calling { reporter: Reporter::new(client, session, 1), turn: 1 };
        Self { editor, toolbox, cx, base, calls: AtomicU64::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.base.path().join("project").join(name).display().to_string()
    }

    /// Writes a file on disk, where the editor does not see it.
    pub(crate) fn save(&self, name: &str, text: &str) {
        let path = PathBuf::from(self.path(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn saved(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Opens a document in the editor alone.
    pub(crate) fn put(&self, name: &str, text: &str) {
        self.editor.put(&self.path(name), text);
    }

    pub(crate) fn get(&self, name: &str) -> String {
        self.editor.get(&self.path(name)).unwrap_or_default()
    }

    pub(crate) fn use_of(&self, name: &str, input: Value) -> ToolUse {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        ToolUse { id: format!("call{id}"), name: name.to_owned(), input: Input::Value(input) }
    }

    /// Calls a tool; returns what the model is told.
    pub(crate) async fn call(&self, name: &str, input: Value) -> String {
        self.run(&self.use_of(name, input)).await
    }

    pub(crate) async fn run(&self, call: &ToolUse) -> String {
        let told = match self.toolbox.run(call, &self.cx).await {
            Ran::Result(result) => {
                assert_eq!((&result.id, &result.name), (&call.id, &call.name));
                let sign = if result.failed { "!" } else { "=" };
                format!("{sign} {}\n", result.text.trim_end())
            }
            Ran::Cancelled => "cancelled\n".to_owned(),
        };
        self.hide(&told)
    }

    /// Calls a tool; returns what the editor saw of it, and then what the model is told.
    pub(crate) async fn watch(&self, name: &str, input: Value) -> String {
        self.settled().await;
        self.editor.take_log();
        let told = self.call(name, input).await;
        self.settled().await;
        self.hide(&self.editor.take_log()) + &told
    }

    /// Waits until the editor has taken in whatever it was told.
    pub(crate) async fn settled(&self) {
        // It does not know this, and says so after all that came before.
        let asked = ExtRequest::new("_settled", Arc::from(RawValue::NULL.to_owned()));
        self.cx.reporter.client().ext_request(asked).await.unwrap_err();
    }

    /// Returns a text without what is another one each time: directories, and how long something took.
    pub(crate) fn hide(&self, text: &str) -> String {
        let base = self.base.path().display().to_string();
        let text = text.replace(&format!("{base}/project"), "$ROOT").replace(&base, "$BASE");
        let mut hidden = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(" s]").into_iter().chain(rest.find(" s;")).min() {
            let start = rest[..at].rfind(' ').map_or(0, |start| start + 1);
            let is_time = rest[start..at].parse::<f32>().is_ok();
            hidden += if is_time { &rest[..start] } else { &rest[..at] };
            hidden += if is_time { "N" } else { "" };
            hidden += &rest[at..at + 3];
            rest = &rest[at + 3..];
        }
        hidden + rest
    }

    pub(crate) fn rules(&self, toml: &str) {
        let path = self.base.path().join("config/policy.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::set_permissions(path.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(&path, toml).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }

    pub(crate) fn kept_rules(&self) -> String {
        let text = std::fs::read_to_string(self.base.path().join("config/policy.toml")).unwrap_or_default();
        self.hide(&text)
    }

    /// Returns what the audit log says, one line each.
    pub(crate) async fn audited(&self) -> String {
        let roots = self.toolbox.runtimes().roots().await.unwrap();
        let journal = Workspace::journal_directory(&self.base.path().join("state"), roots);
        let mut text = String::new();
        for record in audit::entries(&journal.join("audit"), Filter::default()).unwrap() {
            let entry = record.unwrap().entry;
            let reason = entry.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            text += &format!("{} {} by {}{reason}\n", entry.action, entry.decision, entry.by);
        }
        self.hide(&text)
    }

    pub(crate) fn has_journal(&self) -> bool {
        fn look(directory: &Path) -> bool {
            let Ok(entries) = std::fs::read_dir(directory) else { return false };
            entries.flatten().any(|entry| {
                entry.file_name().to_string_lossy().contains("journal")
                    || entry.path().is_dir() && look(&entry.path())
            })
        }
        look(&self.base.path().join("state"))
    }
}
