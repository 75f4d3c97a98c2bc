//! What a session's stream sends while its client loads the session again.

use super::*;
use crate::store::SqliteServerStore;

/// Starts no agent.
#[derive(Debug)]
struct NoLauncher;

impl AgentLauncher for NoLauncher {
    fn launch(&self, _: &str, _: Option<&str>) -> BoxFuture<'_, Result<AgentStreams, String>> {
        Box::pin(async { Err("there is no agent".to_owned()) })
    }
}

/// A stream that has sent everything looks for requests. If its client loads the session again meanwhile, the request
/// follows the history, and is not sent before it, too.
#[tokio::test]
async fn a_request_is_not_sent_before_the_history_of_a_client_that_loads_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteServerStore::open_for_server(directory.path()).unwrap());
    let hub = Hub::new(store, Arc::new(NoLauncher), Arc::default(), HubOptions::default());
    let (connection, session): (ConnectionId, SessionId) = ("c".into(), "s".into());
    let name = "me".to_owned();
    let key = WorkerKey { principal: name.clone(), capabilities: String::new(), agent: None };
    let principal = Principal { name, role: Role::User, token: String::new() };
    let mut client = Connection::new(principal, json!({}), key, vec![connection.clone()]);
    let earlier = Attachment::after(3);
    let again = Attachment::load(Some(&earlier), 3, Bytes::new());
    let request = AgentRequest {
        worker: 1,
        id: RequestId::Number(1),
        method: "fs/read_text_file".to_owned(),
        session: session.clone(),
        body: Bytes::from_static(b"the request"),
        seq: Some(3),
        target: Some(connection.clone()),
        number: 1,
        is_question: false,
        deadline: Instant::now() + Duration::from_secs(600),
    };
    let opened = Session { last_request: 1, ..Session::opening(Vec::new()) };
    let loads = [earlier.loads, again.loads];
    client.attached.insert(session.clone(), again);
    {
        let mut state = hub.lock();
        state.connections.insert(connection.clone(), client);
        state.sessions.insert(session.clone(), opened);
        state.agent_requests.insert("request".to_owned(), request);
    }
    let subscription = hub.log.subscribe(&session, 3);
    let mut sent = 0;
    let [before, after] =
        loads.map(|loads| messages_of(&hub, &connection, &subscription, Some(loads), &[], &mut sent));
    assert_eq!(before, []);
    assert_eq!(after, [StreamMessage { id: None, body: Bytes::from_static(b"the request") }]);
    assert_eq!(sent, 1);
}
