//! A toolbox connected to a fake editor, and a project on disk.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_access::audit::{self, AuditFilter};
use bowline_agent::agent_options::{AgentOptions, AgentPaths};
use bowline_agent::reporter::Reporter;
use bowline_agent::runtime::SessionRuntime;
use bowline_agent::tools::mcp::McpSource;
use bowline_agent::tools::{CallContext, ToolCallOutcome, Toolbox};
use bowline_conversation::conversation::{ToolUse, ToolUseInput};
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::{ExtRequest, SessionId};
use bowline_workspace::terminals::{self, SupervisorProgram};
use bowline_workspace::workspace::Workspace;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use test_support::editor::{EditorCapabilities, FakeEditor};
use test_support::host_harness::PuppetAgent;

pub(crate) struct ToolboxFixture {
    pub(crate) editor: Arc<FakeEditor>,
    pub(crate) toolbox: Toolbox,
    pub(crate) cx: CallContext,
    base: TempDir,
    calls: AtomicU64,
}

impl ToolboxFixture {
    /// Opens a session in the mode that edits and runs without asking.
    pub(crate) async fn open(capabilities: EditorCapabilities) -> Self {
        Self::open_with(capabilities, AgentMode::Full, |_| (), None).await
    }

    pub(crate) async fn open_with(
        capabilities: EditorCapabilities,
        mode: AgentMode,
        configure: impl FnOnce(&mut AgentOptions),
        mcp: Option<Arc<dyn McpSource>>,
    ) -> Self {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let paths = AgentPaths {
            state_dir: base.path().join("state"),
            policy_file: base.path().join("config/policy.toml"),
            anchors_dir: base.path().join("anchors"),
            keys_file: base.path().join("config/keys.toml"),
        };
        let supervisor = SupervisorProgram { program: "/no/supervisor".into(), args: Vec::new() };
        let mut options = AgentOptions::new(paths, terminals::TerminalOptions::new(supervisor));
        options.is_shell_enabled = true;
        options.client_timeout = Duration::from_secs(2);
        options.review_timeout = Duration::from_secs(4);
        configure(&mut options);
        let editor = FakeEditor::new(capabilities);
        let root = project.display().to_string();
        editor.replace_in_log(&root, "$ROOT");
        let (client, _) = editor.connect(PuppetAgent::new(Vec::new())).await.unwrap();
        let session = SessionId::new("s1");
        let runtime =
            SessionRuntime::new(client.clone(), session.clone(), &root, &[], Arc::new(options)).unwrap();
        let toolbox = Toolbox::new(runtime, mcp);
        toolbox.permissions().set_mode(mode);
        let cx = CallContext { reporter: Reporter::new(client, session, 1), turn: 1 };
        Self { editor, toolbox, cx, base, calls: AtomicU64::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.base.path().join("project").join(name).display().to_string()
    }

    /// Writes a file on disk, unnoticed by the editor.
    pub(crate) fn write_to_disk(&self, name: &str, text: &str) {
        let path = PathBuf::from(self.path(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read_from_disk(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Opens a document in the editor only.
    pub(crate) fn open_document(&self, name: &str, text: &str) {
        self.editor.set_document(&self.path(name), text);
    }

    pub(crate) fn document(&self, name: &str) -> String {
        self.editor.document(&self.path(name)).unwrap_or_default()
    }

    pub(crate) fn tool_use(&self, name: &str, input: Value) -> ToolUse {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        ToolUse { id: format!("call{id}"), name: name.to_owned(), input: ToolUseInput::Value(input) }
    }

    /// Calls a tool; returns the result for the model.
    pub(crate) async fn call_tool(&self, name: &str, input: Value) -> String {
        self.run_call(&self.tool_use(name, input)).await
    }

    pub(crate) async fn run_call(&self, call: &ToolUse) -> String {
        let text = match self.toolbox.run_call(call, &self.cx).await {
            ToolCallOutcome::Result(result) => {
                assert_eq!((&result.id, &result.name), (&call.id, &call.name));
                let sign = if result.failed { "!" } else { "=" };
                format!("{sign} {}\n", result.text.trim_end())
            }
            ToolCallOutcome::Cancelled => "cancelled\n".to_owned(),
        };
        self.normalize(&text)
    }

    /// Calls a tool; returns what the editor saw of it, then the result for the model.
    pub(crate) async fn call_and_log(&self, name: &str, input: Value) -> String {
        self.wait_until_settled().await;
        self.editor.take_log();
        let output = self.call_tool(name, input).await;
        self.wait_until_settled().await;
        self.normalize(&self.editor.take_log()) + &output
    }

    /// Waits until the editor has processed all messages.
    pub(crate) async fn wait_until_settled(&self) {
        // The editor rejects this unknown method, after everything that came before.
        let request = ExtRequest::new("_settled", Arc::from(RawValue::NULL.to_owned()));
        self.cx.reporter.client().ext_request(request).await.unwrap_err();
    }

    /// Returns a text without the parts that vary between runs: directories and durations.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let base = self.base.path().display().to_string();
        let text = text.replace(&format!("{base}/project"), "$ROOT").replace(&base, "$BASE");
        let mut normalized = String::new();
        let mut rest = text.as_str();
        while let Some(position) = rest.find(" s]").into_iter().chain(rest.find(" s;")).min() {
            let start = rest[..position].rfind(' ').map_or(0, |start| start + 1);
            let is_time = rest[start..position].parse::<f32>().is_ok();
            normalized += if is_time { &rest[..start] } else { &rest[..position] };
            normalized += if is_time { "N" } else { "" };
            normalized += &rest[position..position + 3];
            rest = &rest[position + 3..];
        }
        normalized + rest
    }

    pub(crate) fn write_rules(&self, toml: &str) {
        let path = self.base.path().join("config/policy.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::set_permissions(path.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(&path, toml).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }

    pub(crate) fn read_rules(&self) -> String {
        let text = std::fs::read_to_string(self.base.path().join("config/policy.toml")).unwrap_or_default();
        self.normalize(&text)
    }

    /// Returns the entries of the audit log, one per line.
    pub(crate) async fn audit_text(&self) -> String {
        let roots = self.toolbox.runtime().roots().await.unwrap();
        let journal = Workspace::journal_directory(&self.base.path().join("state"), roots);
        let mut text = String::new();
        for record in audit::read_entries(&journal.join("audit"), AuditFilter::default()).unwrap() {
            let entry = record.unwrap().entry;
            let reason = entry.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            text += &format!("{} {} by {}{reason}\n", entry.action, entry.decision, entry.decided_by);
        }
        self.normalize(&text)
    }

    pub(crate) fn has_journal(&self) -> bool {
        fn contains_journal(directory: &Path) -> bool {
            let Ok(entries) = std::fs::read_dir(directory) else { return false };
            entries.flatten().any(|entry| {
                entry.file_name().to_string_lossy().contains("journal")
                    || entry.path().is_dir() && contains_journal(&entry.path())
            })
        }
        contains_journal(&self.base.path().join("state"))
    }
}
