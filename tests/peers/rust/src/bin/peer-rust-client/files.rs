//! The files that the client serves: the generated ones under `/bench`, and the disk.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use agent_client_protocol::v1::schema::{self, ReadTextFileRequest};
use agent_client_protocol::{Error, Result};
use serde_json::json;

/// The line that the files under `/bench` repeat.
const LINE: &str = "        if let Some(value) = map.get(\"key\") { out.push(value); }\n";

/// The texts under `/bench` by length, generated once and cached.
#[derive(Default)]
pub(crate) struct Files {
    bench: Mutex<HashMap<usize, String>>,
}

impl Files {
    /// Returns the requested text.
    pub(crate) fn read(&self, request: &ReadTextFileRequest) -> Result<String> {
        let path = request.path.display().to_string();
        if let Some(bytes) = path.strip_prefix("/bench/").and_then(|n| n.parse().ok()) {
            let mut bench = self.bench.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(bench.entry(bytes).or_insert_with(|| bench_text(bytes)).clone());
        }
        match std::fs::read_to_string(&request.path) {
            Ok(text) => Ok(window(text, request.line, request.limit)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Error::from(schema::Error::resource_not_found(Some(path))))
            }
            Err(error) => Err(Error::internal_error().data(json!(format!("cannot read {path}: {error}")))),
        }
    }
}

fn bench_text(bytes: usize) -> String {
    let mut text = LINE.repeat(bytes.div_ceil(LINE.len()));
    text.truncate(bytes);
    text
}

fn window(text: String, line: Option<u32>, limit: Option<u32>) -> String {
    if line.is_none() && limit.is_none() {
        return text;
    }
    let first = line.unwrap_or(1).saturating_sub(1) as usize;
    let lines = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(first).take(lines).collect()
}
