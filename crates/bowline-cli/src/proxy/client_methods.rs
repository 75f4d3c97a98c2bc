//! The client methods of the protocol and of the file extension, served from this machine: files and terminals for an
//! agent whose editor has none.

use bowline_host::LocalSession;
use bowline_protocol::file_extension::{
    BATCH_METHOD, FileError, LIST_METHOD, READ_METHOD, STAT_METHOD, UNWATCH_METHOD, WRITE_METHOD,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CLIENT_METHOD_NAMES, CreateTerminalRequest, CreateTerminalResponse, Error, KillTerminalRequest,
    KillTerminalResponse, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_text::lines::LineWindow;
use bowline_workspace::files::{FileBackend, Requester};
use bowline_workspace::terminals::{CommandRequest, TerminalBackend};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

/// Serves a method, and returns its answer.
pub(super) async fn serve(
    session: LocalSession,
    method: String,
    params: Box<RawValue>,
    call: Option<String>,
) -> Result<Box<RawValue>, Error> {
    if let Some(result) = handle_file_extension(&session, &method, &params, call.as_deref()).await {
        return result;
    }
    let result = handle(&session, &method, &params, call).await;
    Ok(result?)
}

/// Returns whether files may differ after a method: it writes one, or a command has ended.
pub(super) fn may_change(method: &str) -> bool {
    let names = CLIENT_METHOD_NAMES;
    [
        names.fs_write_text_file, names.terminal_wait_for_exit, names.terminal_kill, names.terminal_release,
        WRITE_METHOD, BATCH_METHOD,
    ]
    .contains(&method)
}

/// Serves a method of the file extension; `None` for another method.
async fn handle_file_extension(
    session: &LocalSession,
    method: &str,
    params: &RawValue,
    call: Option<&str>,
) -> Option<Result<Box<RawValue>, Error>> {
    let result = match method {
        LIST_METHOD => with_params(method, params, |request| session.list_directory(request)).await,
        STAT_METHOD => with_params(method, params, |request| session.stat_file(request)).await,
        READ_METHOD => with_params(method, params, |request| session.read_file(request)).await,
        WRITE_METHOD => with_params(method, params, |request| session.write_file(request, call)).await,
        BATCH_METHOD => with_params(method, params, |request| session.batch_files(request, call)).await,
        UNWATCH_METHOD => with_params(method, params, |request| session.unwatch_files(request)).await,
        _ => return None,
    };
    Some(result)
}

/// Reads the params, runs a method with them, and returns its answer.
pub(super) async fn with_params<P, T, E, F>(
    method: &str,
    params: &RawValue,
    run: impl FnOnce(P) -> F,
) -> Result<Box<RawValue>, Error>
where
    P: DeserializeOwned,
    T: Serialize,
    E: Into<Error>,
    F: Future<Output = Result<T, E>>,
{
    let request = parse_params(method, params).map_err(FileError::from)?;
    let response = run(request).await.map_err(Into::into)?;
    Ok(to_raw_result(&response)?)
}

async fn handle(
    session: &LocalSession,
    method: &str,
    params: &RawValue,
    call: Option<String>,
) -> Result<Box<RawValue>, RpcError> {
    let names = CLIENT_METHOD_NAMES;
    if method == names.fs_read_text_file {
        let ReadTextFileRequest { path, line, limit, .. } = parse_params(method, params)?;
        let read = FileBackend::read(session, &path_to_utf8(&path)?, LineWindow { line, limit }).await?;
        return to_raw_result(&ReadTextFileResponse::new(read.text.as_str()));
    }
    if method == names.fs_write_text_file {
        let WriteTextFileRequest { path, content, .. } = parse_params(method, params)?;
        let requester = Requester { turn: session.current_turn(), call };
        FileBackend::write(session, &path_to_utf8(&path)?, content, &requester).await?;
        return to_raw_result(&WriteTextFileResponse::new());
    }
    if method == names.terminal_create {
        let request: CreateTerminalRequest = parse_params(method, params)?;
        let command_request = CommandRequest {
            command: request.command,
            args: request.args,
            env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            output_limit: request.output_byte_limit,
        };
        return to_raw_result(&CreateTerminalResponse::new(
            TerminalBackend::create(session, command_request).await?,
        ));
    }
    if method == names.terminal_output {
        let request: TerminalOutputRequest = parse_params(method, params)?;
        let snapshot = TerminalBackend::output(session, &request.terminal_id).await?;
        let exit = snapshot.exit.as_ref().map(Into::into);
        return to_raw_result(
            &TerminalOutputResponse::new(snapshot.text, snapshot.truncated).exit_status(exit),
        );
    }
    if method == names.terminal_wait_for_exit {
        let request: WaitForTerminalExitRequest = parse_params(method, params)?;
        let exit = TerminalBackend::wait(session, &request.terminal_id).await?;
        return to_raw_result(&WaitForTerminalExitResponse::new((&exit).into()));
    }
    if method == names.terminal_kill {
        let request: KillTerminalRequest = parse_params(method, params)?;
        TerminalBackend::kill(session, &request.terminal_id).await?;
        return to_raw_result(&KillTerminalResponse::new());
    }
    if method == names.terminal_release {
        let request: ReleaseTerminalRequest = parse_params(method, params)?;
        TerminalBackend::release(session, &request.terminal_id).await?;
        return to_raw_result(&ReleaseTerminalResponse::new());
    }
    Err(RpcError::UnknownMethod { method: Some(method.to_owned()) })
}

fn parse_params<T: DeserializeOwned>(method: &str, params: &RawValue) -> Result<T, RpcError> {
    serde_json::from_str(params.get()).map_err(|error| RpcError::invalid_params(method, &error))
}

fn to_raw_result(response: &impl Serialize) -> Result<Box<RawValue>, RpcError> {
    to_raw_value(response).map_err(|error| RpcError::Internal { reason: error.to_string() })
}

fn path_to_utf8(path: &std::path::Path) -> Result<String, RpcError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| RpcError::InvalidParams { reason: "the path is not UTF-8".to_owned() })
}
