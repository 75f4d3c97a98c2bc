//! What the engine does in the editor's place, by the methods that the editor lacks.

use bowline_state::failure::Failure;
use bowline_wire::methods::Request;
use serde_json::value::to_raw_value;

use super::Editor;

impl Editor {
    /// Asks the engine what an editor would be asked. Rules, journal and log are its own.
    pub(super) async fn here<R: Request>(
        &self,
        request: &R,
        path: Option<&str>,
    ) -> Result<R::Response, Failure> {
        let beside = self.known.beside().await?;
        let call = beside.zip(path).and_then(|(beside, path)| beside.call_naming(path));
        let engine = self.known.engine().await?;
        let unfit = |error: serde_json::Error| Failure::Internal { reason: error.to_string() };
        let params = to_raw_value(request).map_err(unfit)?;
        let answer = engine.serves(R::METHOD.to_owned(), params, call).await;
        let answer = answer.map_err(|error| Failure::from_error(&error))?;
        serde_json::from_str(answer.get()).map_err(unfit)
    }
}
