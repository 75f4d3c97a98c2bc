//! The floor's client: serves `fs/read_text_file` under `/bench` and counts updates, as fast as simple code gets.

use std::io::Write;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, ClientCapabilities, FileSystemCapabilities, InitializeRequest,
    InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReadTextFileResponse, SessionNotification,
};
use anyhow::{Context, Result, bail, ensure};
use bowline_benches::floor::{FloorReader, FloorWriter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use test_support::contract::{BenchTexts, PeerClientArgs, StepLog};

fn main() -> Result<()> {
    let PeerClientArgs { plan, agent, .. } = PeerClientArgs::parse(std::env::args().skip(1))?;
    let (program, arguments) = agent.split_first().context("the agent's command is missing")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let mut client = FloorClient {
        lines: FloorReader::new(child.stdout.take().context("the agent has no stdout")?),
        outbox: FloorWriter::new(child.stdin.take().context("the agent has no stdin")?),
        requests: 0,
        texts: BenchTexts::default(),
        log: StepLog::default(),
    };

    let capabilities = ClientCapabilities::new()
        .fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
        .terminal(true);
    let initialize = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities);
    let agent: InitializeResponse = client.call(AGENT_METHOD_NAMES.initialize, &initialize)?;
    let name = agent.agent_info.map(|info| info.name);
    print(&json!({"agent": name, "protocolVersion": agent.protocol_version}).to_string())?;
    let cwd = std::env::current_dir()?;
    let session: NewSessionResponse =
        client.call(AGENT_METHOD_NAMES.session_new, &NewSessionRequest::new(cwd))?;
    for step in plan {
        ensure!(!step.cancel_on_first_chunk, "the floor cancels nothing");
        client.log = StepLog::default();
        let prompt = PromptRequest::new(session.session_id.clone(), vec![step.prompt.to_string().into()]);
        let start = Instant::now();
        let answer: PromptResponse = client.call(AGENT_METHOD_NAMES.session_prompt, &prompt)?;
        print(&client.log.to_json_line(answer.stop_reason, start.elapsed())?)?;
    }

    drop(client);
    let status = child.wait()?;
    ensure!(status.success(), "the agent ended with {status}");
    Ok(())
}

struct FloorClient {
    lines: FloorReader<ChildStdout>,
    outbox: FloorWriter<ChildStdin>,
    requests: usize,
    texts: BenchTexts,
    log: StepLog,
}

impl FloorClient {
    /// Sends a request, and serves the agent until the response arrives.
    fn call<T: DeserializeOwned>(&mut self, method: &str, params: &impl Serialize) -> Result<T> {
        self.requests += 1;
        self.outbox.request(self.requests, method, params)?;
        loop {
            if !self.lines.has_line() {
                self.outbox.flush()?;
            }
            let message = self.lines.read_message()?;
            match (message.method, message.id) {
                (None, _) => return message.result().with_context(|| format!("{method} failed")),
                (Some(method), None) if method == CLIENT_METHOD_NAMES.session_update => {
                    let notification: SessionNotification = message.params()?;
                    self.log.record(notification.update);
                }
                (Some(method), Some(id)) if method == CLIENT_METHOD_NAMES.fs_read_text_file => {
                    let request: ReadTextFileRequest = message.params()?;
                    let text = self.texts.get(&request.path).context("the floor serves /bench only")?;
                    // The handler returns an owned copy of the text, as in every other peer.
                    self.outbox.respond(id, &ReadTextFileResponse::new(text))?;
                }
                (Some(method), _) => bail!("the floor does not serve {method}"),
            }
        }
    }
}

fn print(line: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("cannot write to stdout")
}
