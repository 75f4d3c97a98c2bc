//! The nested objects of a message, such as the `_meta` of its params.

use serde_json::{Map, Value};

/// Returns an object's field that is an object. Anything else there is replaced.
pub fn object_entry<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    let entry = object.entry(name).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}
