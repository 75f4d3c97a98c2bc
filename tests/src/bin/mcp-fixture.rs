//! The server under test of the MCP conformance suite: its tools, resources and prompts, on Bowline's transport.
//!
//! It prints its address and the token that requests must carry, and exits when its stdin closes.
#![allow(clippy::print_stdout, reason = "the program that starts it reads there where it listens")]
#![allow(deprecated, reason = "the suite checks revisions of MCP that have logging and sampling")]

use std::borrow::Cow;
use std::time::Duration;

use bowline_mcp::server::{HttpServer, HttpServerOptions};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ElicitRequestParams, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, ServiceError};
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The token that requests must carry. It may be public, because only the test knows the port.
const TOKEN: &str = "fixture";

/// An image of one red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A sound without samples.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// The server of one session. It is stateless.
struct ConformanceServer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let settings = HttpServerOptions {
        token: TOKEN.to_owned(),
        hosts: Vec::new(),
        idle_timeout: Duration::from_secs(3600),
    };
    let server = HttpServer::start_with(|| ConformanceServer, listener, settings)?;
    println!("{} {TOKEN}", server.url());
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    server.stop().await;
    Ok(())
}

/// Deserialises a protocol value from the suite's description.
fn from_json<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn not_found_error(kind: &str, name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no {kind} {name}"), None)
}

fn service_error(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn text_content(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

fn image_content() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn resource_content(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

/// Returns the tools, each with its description and the schema of its input.
fn tools() -> Value {
    let nothing = || json!({"type": "object", "properties": {}});
    let one =
        |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let tools = [
        ("test_simple_text", "Returns text", nothing()),
        ("test_image_content", "Returns an image", nothing()),
        ("test_audio_content", "Returns audio", nothing()),
        ("test_embedded_resource", "Returns a resource", nothing()),
        ("test_multiple_content_types", "Returns text, an image and a resource", nothing()),
        ("test_tool_with_logging", "Logs three messages", nothing()),
        ("test_error_handling", "Always fails", nothing()),
        ("test_tool_with_progress", "Tells how far it is", nothing()),
        ("test_reconnection", "Returns text", nothing()),
        ("test_sampling", "Asks the client's model", one("prompt")),
        ("test_elicitation", "Asks the user", one("message")),
        ("test_elicitation_sep1034_defaults", "Asks the user, with defaults", nothing()),
        ("test_elicitation_sep1330_enums", "Asks the user to choose", nothing()),
        ("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", address_schema()),
    ];
    tools.map(|(name, description, schema)| json!({"name": name, "description": description, "inputSchema": schema})).into()
}

fn address_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": false,
    })
}

/// Returns the content of the tools that ask no question.
fn plain_content(tool: &str) -> Option<Value> {
    let data = r#"{"test":"data","value":123}"#;
    Some(match tool {
        "test_simple_text" => json!([text_content("This is a simple text response for testing.")]),
        "test_image_content" => json!([image_content()]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => {
            json!([resource_content(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        "test_multiple_content_types" => json!([
            text_content("Multiple content types test:"),
            image_content(),
            resource_content("test://mixed-content-resource", "application/json", data),
        ]),
        // The suite suggests that this tool closes its stream before it responds, which a handler cannot do. It is not
        // required.
        "test_reconnection" | "json_schema_2020_12_tool" => json!([text_content("Done.")]),
        _ => return None,
    })
}

/// Returns the schema of the question that a tool asks the user.
fn requested_schema(tool: &str) -> Option<Value> {
    Some(match tool {
        "test_elicitation" => json!({
            "type": "object",
            "properties": {
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            },
            "required": ["username", "email"],
        }),
        "test_elicitation_sep1034_defaults" => json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                "verified": {"type": "boolean", "default": true},
            },
        }),
        "test_elicitation_sep1330_enums" => {
            let titled = json!([
                {"const": "value1", "title": "First"},
                {"const": "value2", "title": "Second"},
                {"const": "value3", "title": "Third"},
            ]);
            let options = ["option1", "option2", "option3"];
            json!({
                "type": "object",
                "properties": {
                    "untitledSingle": {"type": "string", "enum": options},
                    "titledSingle": {"type": "string", "oneOf": titled},
                    "legacyEnum": {
                        "type": "string",
                        "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"],
                    },
                    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                    "titledMulti": {"type": "array", "items": {"anyOf": titled}},
                },
            })
        }
        _ => return None,
    })
}

async fn send_log_messages(context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
        context.peer.notify_logging_message(message).await.map_err(service_error)?;
    }
    Ok("Logged.".to_owned())
}

async fn send_progress(context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok("No progress was requested.".to_owned());
    };
    for done in [0.0, 50.0, 100.0] {
        let mut progress = ProgressNotificationParam::new(token.clone(), done);
        progress.total = Some(100.0);
        context.peer.notify_progress(progress).await.map_err(service_error)?;
    }
    Ok("Told.".to_owned())
}

async fn sample(context: &RequestContext<RoleServer>, prompt: &Value) -> Result<String, ErrorData> {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    let request = from_json(json!({"messages": [message], "maxTokens": 100}))?;
    let answer = json!(context.peer.create_message(request).await.map_err(service_error)?);
    Ok(format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default()))
}

async fn elicit(
    context: &RequestContext<RoleServer>,
    message: &Value,
    schema: Value,
) -> Result<String, ErrorData> {
    let message = message.as_str().unwrap_or("Please answer.");
    let request: ElicitRequestParams =
        from_json(json!({"mode": "form", "message": message, "requestedSchema": schema}))?;
    let answer = json!(context.peer.create_elicitation(request).await.map_err(service_error)?);
    Ok(format!("User response: action={}, content={}", answer["action"], answer["content"]))
}

impl ServerHandler for ConformanceServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_logging()
            .enable_completions()
            .build();
        InitializeResult::new(capabilities)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
            .with_server_info(Implementation::new("mcp-fixture", "1"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        from_json(json!({"tools": tools()}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        let arguments = Value::from(request.arguments.unwrap_or_default());
        let said = match name {
            "test_tool_with_logging" => send_log_messages(&context).await?,
            "test_tool_with_progress" => send_progress(&context).await?,
            "test_sampling" => sample(&context, &arguments["prompt"]).await?,
            "test_error_handling" => {
                let told = text_content("This tool intentionally returns an error for testing");
                let result: CallToolResult = from_json(json!({"content": [told], "isError": true}))?;
                return Ok(result.into());
            }
            name => match (requested_schema(name), plain_content(name)) {
                (Some(schema), _) => elicit(&context, &arguments["message"], schema).await?,
                (None, Some(content)) => {
                    return Ok(from_json::<CallToolResult>(json!({"content": content}))?.into());
                }
                (None, None) => return Err(not_found_error("tool", name)),
            },
        };
        Ok(from_json::<CallToolResult>(json!({"content": [text_content(said)]}))?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |name: &str, kind: &str| json!({"uri": format!("test://{name}"), "name": name, "description": name, "mimeType": kind});
        let resources = [
            resource("static-text", "text/plain"),
            resource("static-binary", "image/png"),
            resource("watched-resource", "text/plain"),
        ];
        from_json(json!({"resources": resources}))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = json!({
            "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json",
        });
        from_json(json!({"resourceTemplates": [template]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let content = match (uri, id) {
            (_, Some(id)) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            ("test://static-text", _) => {
                let text = "This is the content of the static text resource.";
                json!({"uri": uri, "mimeType": "text/plain", "text": text})
            }
            ("test://static-binary", _) => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
            ("test://watched-resource", _) => {
                json!({"uri": uri, "mimeType": "text/plain", "text": "It never changes."})
            }
            _ => return Err(ErrorData::resource_not_found(format!("there is no resource {uri}"), None)),
        };
        Ok(from_json::<ReadResourceResult>(json!({"contents": [content]}))?.into())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |name: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(|name| json!({"name": name, "required": true}));
            json!({"name": name, "description": name, "arguments": arguments.collect::<Vec<_>>()})
        };
        let prompts = [
            prompt("test_simple_prompt", &[]),
            prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
            prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
            prompt("test_prompt_with_image", &[]),
        ];
        from_json(json!({"prompts": prompts}))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default();
        let contents = match request.name.as_str() {
            "test_simple_prompt" => vec![text_content("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                let (one, two) = (argument("arg1"), argument("arg2"));
                vec![text_content(format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
            }
            "test_prompt_with_embedded_resource" => {
                let held = "Embedded resource content for testing.";
                let embedded = resource_content(argument("resourceUri"), "text/plain", held);
                vec![embedded, text_content("Please process the embedded resource above.")]
            }
            "test_prompt_with_image" => {
                vec![image_content(), text_content("Please analyze the image above.")]
            }
            name => return Err(not_found_error("prompt", name)),
        };
        let messages: Vec<Value> =
            contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
        Ok(from_json::<GetPromptResult>(json!({"messages": messages}))?.into())
    }
}
