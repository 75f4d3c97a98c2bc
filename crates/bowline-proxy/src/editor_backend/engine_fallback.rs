//! The engine in place of the editor, for the methods that the editor lacks.

use bowline_protocol::rpc_error::RpcError;
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
        let context = self.session.context().await?;
        let call = context.zip(path).and_then(|(context, path)| context.open_call_naming(path));
        let engine = self.session.engine().await?;
        let to_rpc_error = |error: serde_json::Error| RpcError::Internal { reason: error.to_string() };
        let params = to_raw_value(request).map_err(to_rpc_error)?;
        let answer = engine.serve(R::METHOD.to_owned(), params, call).await;
        let answer = answer.map_err(|error| RpcError::from_error(&error))?;
        serde_json::from_str(answer.get()).map_err(to_rpc_error)
    }
}
