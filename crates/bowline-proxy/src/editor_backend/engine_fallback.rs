//! The engine in place of the editor, for the methods that the editor lacks.

use bowline_protocol::file_extension::{BatchError, FileError};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::Error;
use bowline_wire::message::methods::RpcRequest;
use serde_json::value::to_raw_value;

use super::EditorBackend;

impl EditorBackend {
    /// Sends the engine a request meant for an editor. The engine applies its own rules, journal and audit log.
    pub(super) async fn call_engine<R: RpcRequest>(
        &self,
        request: &R,
        path: Option<&str>,
    ) -> Result<R::Response, RpcError> {
        self.send_to_engine(request, path).await?.map_err(|error| RpcError::from_error(&error))
    }

    /// As [`EditorBackend::call_engine`], for a method of the file extension.
    pub(super) async fn call_engine_for_files<R: RpcRequest>(
        &self,
        request: &R,
        path: Option<&str>,
    ) -> Result<R::Response, BatchError> {
        let answer = self.send_to_engine(request, path).await.map_err(FileError::from)?;
        answer.map_err(|error| BatchError::from_error(&error))
    }

    async fn send_to_engine<R: RpcRequest>(
        &self,
        request: &R,
        path: Option<&str>,
    ) -> Result<Result<R::Response, Error>, RpcError> {
        let context = self.session.context().await?;
        let call = context.zip(path).and_then(|(context, path)| context.open_call_naming(path));
        let engine = self.session.engine().await?;
        let to_rpc_error = |error: serde_json::Error| RpcError::Internal { reason: error.to_string() };
        let params = to_raw_value(request).map_err(to_rpc_error)?;
        match engine.serve(R::METHOD.to_owned(), params, call).await {
            Ok(answer) => serde_json::from_str(answer.get()).map(Ok).map_err(to_rpc_error),
            Err(error) => Ok(Err(error)),
        }
    }
}
