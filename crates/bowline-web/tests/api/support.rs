//! A server with the page, and requests to it.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::environment::UserDirs;
use bowline_history::changes::ChangeOrigin;
use bowline_serve::http::{Access, AccessOptions, Endpoint, ListenerOptions, serve};
use bowline_serve::metrics::Metrics;
use bowline_serve::store::{Mutation, PendingWork, SqliteServerStore, StoredSession};
use bowline_serve::token::{Role, StoredToken};
use bowline_serve::{AgentLauncher, AgentStreams, Hub, HubOptions};
use bowline_storage::clock::now;
use bowline_text::time::Timestamp;
use bowline_web::{AssetSource, WebOptions};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::net::TcpListener;

/// These tests need no agent.
#[derive(Debug)]
struct NoAgent;

impl AgentLauncher for NoAgent {
    fn launch(&self, _: &str, _: Option<&str>) -> BoxFuture<'_, Result<AgentStreams, String>> {
        Box::pin(async { Err("there is no agent".to_owned()) })
    }
}

/// A server with the page, for the directory `project`.
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    pub(crate) url: String,
    pub(crate) project: PathBuf,
    pub(crate) user_dirs: UserDirs,
    pub(crate) http: reqwest::Client,
    // Removed at the end.
    pub(crate) place: tempfile::TempDir,
}

/// What a request got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns the status and the error, in short.
    pub(crate) fn refusal(&self) -> String {
        let error = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        format!("{} {}", self.status, error["error"].as_str().unwrap_or("-"))
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let project = root.join("project");
        std::fs::create_dir(&project).unwrap();
        let user_dirs = UserDirs {
            state: root.join("state"),
            config: root.join("config"),
            anchors: root.join("anchors"),
        };
        let store = Arc::new(SqliteServerStore::open_for_server(&root.join("store")).unwrap());
        let options = HubOptions { roots: vec![project.clone()], ..HubOptions::default() };
        let hub = Hub::new(store, Arc::new(NoAgent), Arc::new(Metrics::default()), options);
        tokio::spawn(Arc::clone(&hub).run());
        let access = Access::new(AccessOptions { is_loopback: true, ..AccessOptions::default() }).unwrap();
        let options = WebOptions {
            user_dirs: user_dirs.clone(),
            roots: vec![project.clone()],
            agents: vec!["other".to_owned()],
            is_local: false,
            assets: AssetSource::Embedded,
        };
        let router = bowline_web::router(Endpoint { hub: Arc::clone(&hub), access }, options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let options = ListenerOptions { tls: None, max_connections: 100 };
        tokio::spawn(serve(listener, router, options, std::future::pending()));
        // It fails if another test did it before.
        rustls::crypto::ring::default_provider().install_default().ok();
        let http = reqwest::Client::builder().build().unwrap();
        Self { hub, url, project, user_dirs, http, place }
    }

    pub(crate) async fn token(&self, name: &str, role: Role) -> String {
        let (token, text) = StoredToken::generate(name, role, now(), None).unwrap();
        self.hub.store().add_token(token).await.unwrap();
        text
    }

    /// Stores a session, as changed at a time.
    pub(crate) async fn session(&self, id: &str, principal: &str, title: &str, at: i64) {
        let session = StoredSession {
            id: id.into(),
            principal: principal.to_owned(),
            cwd: self.project.clone(),
            title: Some(title.to_owned()),
            setup: Value::Null,
            pending: PendingWork::default(),
            created_at: Timestamp(at),
            updated_at: Timestamp(at),
            archived_at: None,
        };
        self.hub.store().commit(vec![Mutation::Create(Box::new(session))]).await.unwrap();
    }

    /// Sends a request with some headers, `name: value`.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url)).body(body.to_owned());
        for header in headers {
            let (name, value) = header.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, body: response.bytes().await.unwrap().to_vec() }
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Answer {
        self.send("GET", path, &[&format!("authorization: Bearer {token}")], "").await
    }

    pub(crate) async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        let authorization = format!("authorization: Bearer {token}");
        self.send("POST", path, &[&authorization, "content-type: application/json"], &body.to_string()).await
    }

    /// Writes a file as the agent of a session does, in a turn.
    pub(crate) fn write_as_agent(&self, session: &str, turn: u64, name: &str, content: &str) {
        let location =
            WorkspaceLocation::locate_in(&self.user_dirs, Some(&self.project), WorkspaceMarker::Directory);
        let workspace = location.unwrap().open(&[]).unwrap();
        let origin = ChangeOrigin {
            session: Some(session.to_owned()),
            turn: Some(turn),
            call: Some(format!("call{turn}")),
            command: None,
        };
        let path = self.project.join(name);
        let session = workspace.session(session);
        if path.exists() {
            session.read(path.to_str().unwrap(), Default::default()).unwrap();
        }
        session.write(path.to_str().unwrap(), content, &origin).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.project.join(name)).unwrap_or_else(|error| error.kind().to_string())
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.project.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}
