//! The schema that the schema crate generates, and validation against it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use agent_client_protocol_schema::v1::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse, Error,
    JsonRpcMessage, Notification, ProtocolLevelNotification, Request, Response,
};
use jsonschema::{Validator, ValidatorMap};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The names given here to the envelopes; the schema has none for them.
const ENVELOPES: [&str; 3] = ["JsonRpcRequest", "JsonRpcResponse", "JsonRpcNotification"];

/// Every definition under its name, and the three envelopes of JSON-RPC.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    fn either<A: JsonSchema, B: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
        json!({ "anyOf": [generator.subschema_for::<A>(), generator.subschema_for::<B>()] })
    }
    type RequestMessage<T> = JsonRpcMessage<Request<T>>;
    type ResponseMessage<T> = JsonRpcMessage<Response<T>>;
    type NotificationMessage<T> = JsonRpcMessage<Notification<T>>;

    let generator = &mut SchemaGenerator::default();
    generator.subschema_for::<Error>();
    let envelopes = [
        either::<RequestMessage<ClientRequest>, RequestMessage<AgentRequest>>(generator),
        either::<ResponseMessage<ClientResponse>, ResponseMessage<AgentResponse>>(generator),
        json!({ "anyOf": [
            either::<NotificationMessage<ClientNotification>, NotificationMessage<AgentNotification>>(generator),
            generator.subschema_for::<NotificationMessage<ProtocolLevelNotification>>(),
        ] }),
    ];
    let mut definitions = generator.take_definitions(true);
    definitions.extend(ENVELOPES.map(str::to_owned).into_iter().zip(envelopes));
    json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": definitions })
});

static VALIDATORS: LazyLock<ValidatorMap> = LazyLock::new(|| {
    jsonschema::options()
        .should_validate_formats(true)
        .build_map(&SCHEMA)
        .expect("the schema is a JSON schema")
});

/// Returns every definition under its name.
pub(crate) fn definitions() -> impl Iterator<Item = (&'static String, &'static Value)> {
    let all = SCHEMA["$defs"].as_object().expect("an object");
    all.iter().filter(|(name, _)| !ENVELOPES.contains(&name.as_str()))
}

/// Panics unless the value matches the definition `name`.
pub(crate) fn validate(name: &str, value: &Value) {
    if let Err(error) = validator(name).validate(value) {
        panic!("{value} is no {name} at {}: {error}", error.instance_path());
    }
}

/// Returns whether the value matches the definition `name`.
pub(crate) fn is_valid(name: &str, value: &Value) -> bool {
    validator(name).is_valid(value)
}

fn validator(name: &str) -> &'static Validator {
    VALIDATORS.get(&format!("#/$defs/{name}")).unwrap_or_else(|| panic!("the schema does not define {name}"))
}

/// An object in a value, and one of the schemas that describe it.
pub(crate) struct DescribedObject {
    /// The location of the object in the value.
    pub(crate) object: String,
    /// The location of the schema.
    schema: String,
}

impl DescribedObject {
    /// Returns the properties that the schema names.
    pub(crate) fn properties(&self) -> &'static Map<String, Value> {
        SCHEMA.pointer(&self.schema).and_then(|schema| schema["properties"].as_object()).expect("properties")
    }
}

/// Returns every object of a valid value that a schema describes, once for each such schema.
pub(crate) fn described_objects(name: &str, value: &Value) -> Vec<DescribedObject> {
    let mut described = Vec::new();
    walk(name, value, &mut |schema, object, unit| {
        // The annotation of the keyword `properties` lists the present ones.
        if let Some(schema) = schema.strip_suffix("/properties")
            && unit["annotations"].is_array()
        {
            described.push(DescribedObject { object: object.to_owned(), schema: schema.to_owned() });
        }
    });
    described
}

/// Returns what the texts have to show: each field present and, if optional, missing, and each variant.
pub(crate) fn required_coverage() -> BTreeSet<String> {
    let mut required = BTreeSet::new();
    for (name, schema) in definitions() {
        collect_coverage(&format!("/$defs/{name}"), schema, &mut required);
    }
    required
}

fn collect_coverage(at: &str, schema: &Value, coverage: &mut BTreeSet<String>) {
    let required = schema["required"].as_array();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        coverage.insert(format!("{at}/properties/{name}"));
        if !required.is_some_and(|required| required.contains(&json!(name))) {
            coverage.insert(format!("{at} without {name}"));
        }
        collect_coverage(&format!("{at}/properties/{name}"), property, coverage);
    }
    for keyword in ["oneOf", "anyOf", "allOf"] {
        let branches = schema[keyword].as_array().into_iter().flatten().enumerate();
        // Null for an optional field is not a separate variant, and has its own test.
        for (index, branch) in branches.filter(|(_, branch)| branch["type"] != "null") {
            coverage.insert(format!("{at}/{keyword}/{index}"));
            collect_coverage(&format!("{at}/{keyword}/{index}"), branch, coverage);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            collect_coverage(&format!("{at}/{keyword}"), &schema[keyword], coverage);
        }
    }
}

/// Returns the part of [`required_coverage`] that a text shows.
pub(crate) fn covered_by(name: &str, value: &Value) -> BTreeSet<String> {
    let mut covered = BTreeSet::new();
    walk(name, value, &mut |schema, _, _| {
        covered.insert(schema.to_owned());
    });
    for described in described_objects(name, value) {
        let object = value.pointer(&described.object).expect("it is there");
        let missing = described.properties().keys().filter(|name| object.get(name).is_none());
        covered.extend(missing.map(|name| format!("{} without {name}", described.schema)));
    }
    covered
}

/// Calls `visit` with the location in the schema, the location in the value, and the output of the validator, for
/// each part of the schema that accepts its part of the value.
fn walk(name: &str, value: &Value, visit: &mut impl FnMut(&str, &str, &Value)) {
    fn visit_unit(name: &str, unit: &Value, visit: &mut impl FnMut(&str, &str, &Value)) {
        let location = |key: &str| unit[key].as_str().unwrap_or_default();
        if unit["valid"] == true {
            // Before the first reference, a location is relative to the definition.
            let schema = location("schemaLocation");
            let prefix = if schema.starts_with("/$defs/") { String::new() } else { format!("/$defs/{name}") };
            visit(&format!("{prefix}{schema}"), location("instanceLocation"), unit);
            // A variant for unnamed values also accepts named ones, so the first variant that accepts counts.
            let is_choice = schema.ends_with("/anyOf") && !schema.ends_with("/properties/anyOf");
            let limit = if is_choice { 1 } else { usize::MAX };
            let accepted =
                unit["details"].as_array().into_iter().flatten().filter(|unit| unit["valid"] == true);
            accepted.take(limit).for_each(|unit| visit_unit(name, unit, visit));
        }
    }
    let evaluation = validator(name).evaluate(value);
    visit_unit(name, &serde_json::to_value(evaluation.hierarchical()).expect("JSON"), visit);
}
