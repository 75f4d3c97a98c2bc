//! Spike.
use agent_client_protocol_schema::v1::*;
#[test]
fn spike() {
    let mut generator = schemars::SchemaGenerator::default();
    generator.subschema_for::<JsonRpcMessage<Request<ClientRequest>>>();
    generator.subschema_for::<JsonRpcMessage<Request<AgentRequest>>>();
    generator.subschema_for::<JsonRpcMessage<Response<ClientResponse>>>();
    generator.subschema_for::<JsonRpcMessage<Response<AgentResponse>>>();
    generator.subschema_for::<JsonRpcMessage<Notification<ClientNotification>>>();
    generator.subschema_for::<JsonRpcMessage<Notification<AgentNotification>>>();
    generator.subschema_for::<JsonRpcMessage<Notification<ProtocolLevelNotification>>>();
    let defs = generator.take_definitions(true);
    std::fs::write("/tmp/gen.json", serde_json::to_string_pretty(&defs).unwrap()).unwrap();
    let one = serde_json::to_value(schemars::schema_for!(SessionNotification)).unwrap();
    std::fs::write("/tmp/one.json", serde_json::to_string_pretty(&one).unwrap()).unwrap();
    let v = jsonschema::validator_for(&one).unwrap();
    let e = v.evaluate(&serde_json::json!({"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","kind":"read"}}));
    println!("{}", serde_json::to_string_pretty(&e.list()).unwrap());
}
