//! Tests of the file extension: messages, validation, errors, schema and documentation.

mod batches;
mod capability;
mod data;
mod documentation;
mod errors;
mod messages;
mod schema;
mod validation;

use agent_client_protocol_schema::v1::Error;
use std::fmt::{Debug, Write};

/// Shows a validated operation, or the error as it is on the wire.
fn describe<T: Debug>(text: &mut String, outcome: Result<T, impl Into<Error>>) {
    match outcome {
        Ok(operation) => writeln!(text, "{operation:?}").unwrap(),
        Err(error) => writeln!(text, "! {}", serde_json::to_string(&error.into()).unwrap()).unwrap(),
    }
}
