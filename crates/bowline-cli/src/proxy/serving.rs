//! Files and terminals of this machine for an agent whose editor has none, by the methods of the protocol.

use bowline_host::LocalSession;
use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::schema::v1::{
    CLIENT_METHOD_NAMES, CreateTerminalRequest, CreateTerminalResponse, Error, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_workspace::files::{Asker, Files};
use bowline_workspace::terminals::{Asked, Terminals};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

/// Does what a method says, and returns its answer.
pub(super) async fn serve(
    session: LocalSession,
    method: String,
    params: Box<RawValue>,
    call: Option<String>,
) -> Result<Box<RawValue>, Error> {
    let answered = answer(&session, &method, &params, call).await;
    Ok(answered?)
}

/// Says whether files may be others when a method is done: it writes one, or a command has ended.
pub(super) fn may_change(method: &str) -> bool {
    let names = CLIENT_METHOD_NAMES;
    [names.fs_write_text_file, names.terminal_wait_for_exit, names.terminal_kill, names.terminal_release]
        .contains(&method)
}

async fn answer(
    session: &LocalSession,
    method: &str,
    params: &RawValue,
    call: Option<String>,
) -> Result<Box<RawValue>, Failure> {
    let names = CLIENT_METHOD_NAMES;
    if method == names.fs_read_text_file {
        let ReadTextFileRequest { path, line, limit, .. } = read(params)?;
        let read = Files::read(session, &utf8(&path)?, Window { line, limit }).await?;
        return written(&ReadTextFileResponse::new(read.text.as_str()));
    }
    if method == names.fs_write_text_file {
        let WriteTextFileRequest { path, content, .. } = read(params)?;
        let asker = Asker { turn: session.turn(), call };
        Files::write(session, &utf8(&path)?, content, &asker).await?;
        return written(&WriteTextFileResponse::new());
    }
    if method == names.terminal_create {
        let request: CreateTerminalRequest = read(params)?;
        let asked = Asked {
            command: request.command,
            args: request.args,
            env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            output_limit: request.output_byte_limit,
        };
        return written(&CreateTerminalResponse::new(Terminals::create(session, asked).await?));
    }
    if method == names.terminal_output {
        let request: TerminalOutputRequest = read(params)?;
        let shown = Terminals::output(session, &request.terminal_id).await?;
        let exit = shown.exit.as_ref().map(Into::into);
        return written(&TerminalOutputResponse::new(shown.text, shown.truncated).exit_status(exit));
    }
    if method == names.terminal_wait_for_exit {
        let request: WaitForTerminalExitRequest = read(params)?;
        let exit = Terminals::wait(session, &request.terminal_id).await?;
        return written(&WaitForTerminalExitResponse::new((&exit).into()));
    }
    if method == names.terminal_kill {
        let request: KillTerminalRequest = read(params)?;
        Terminals::kill(session, &request.terminal_id).await?;
        return written(&KillTerminalResponse::new());
    }
    if method == names.terminal_release {
        let request: ReleaseTerminalRequest = read(params)?;
        Terminals::release(session, &request.terminal_id).await?;
        return written(&ReleaseTerminalResponse::new());
    }
    Err(Failure::UnknownMethod { method: Some(method.to_owned()) })
}

fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(params.get()).map_err(|why| Failure::InvalidParams { reason: why.to_string() })
}

fn written(answer: &impl Serialize) -> Result<Box<RawValue>, Failure> {
    to_raw_value(answer).map_err(|why| Failure::Internal { reason: why.to_string() })
}

fn utf8(path: &std::path::Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::InvalidParams { reason: "the path is not UTF-8".to_owned() })
}
