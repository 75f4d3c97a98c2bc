//! Tests with random values of the most frequent messages, with strings that are hard to put on a line.

use std::fmt::Debug;

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{
    Annotations, AudioContent, AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate,
    BlobResourceContents, CompactionStatus, CompactionSummaryChunk, CompactionUpdate, ConfigOptionUpdate,
    Content, ContentBlock, ContentChunk, Cost, CreateTerminalRequest, CurrentModeUpdate, Diff,
    EmbeddedResource, EmbeddedResourceResource, EnvVariable, ImageContent, Meta, Notice, NoticeSeverity,
    PermissionOption, PermissionOptionKind, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    PromptRequest, ReadTextFileRequest, ReadTextFileResponse, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, ResourceLink, Role, SelectedPermissionOutcome,
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectGroup, SessionConfigSelectOption,
    SessionInfoUpdate, SessionNotification, SessionUpdate, Terminal, TextContent, TextResourceContents,
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind, UnstructuredCommandInput, UsageUpdate, WriteTextFileRequest,
};
use bowline_wire::message::methods::{RpcNotification, RpcRequest};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value};

use crate::messages::WireType;
use crate::official_schema;
use crate::peer_pair::PeerPair;

/// Sends random params from one peer to another and validates the wire text against the schema.
fn check_request<R: RpcRequest + WireType + Clone>(params: impl Strategy<Value = R>) {
    check(params, "params", |params| PeerPair::default().carry_request(R::METHOD, params));
}

/// As [`check_request`], for the answer to the request `R`.
fn check_response<R: RpcRequest>(result: impl Strategy<Value = R::Response>)
where
    R::Response: WireType + Clone,
{
    check(result, "result", |result| PeerPair::default().carry_response(R::METHOD, result));
}

fn check<T: WireType>(values: impl Strategy<Value = T>, member: &str, carry: impl Fn(&T) -> String) {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&values, |value| {
        let line: Value = serde_json::from_str(&carry(&value)).expect("JSON");
        official_schema::validate(&T::schema_name(), &line[member]);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn any_update_survives() {
    for update in updates() {
        let params = (text(), update, meta())
            .prop_map(|(session, update, meta)| SessionNotification::new(session, update).meta(meta));
        check(params, "params", |params| {
            PeerPair::default().carry_notification(SessionNotification::METHOD, params)
        });
    }
}

#[test]
fn any_read_survives() {
    check_request((text(), path(), of(any::<u32>()), of(any::<u32>()), meta()).prop_map(
        |(session, path, line, limit, meta)| {
            ReadTextFileRequest::new(session, path).line(line).limit(limit).meta(meta)
        },
    ));
    check_response::<ReadTextFileRequest>(
        (text(), meta()).prop_map(|(content, meta)| ReadTextFileResponse::new(content).meta(meta)),
    );
}

#[test]
fn any_write_survives() {
    check_request((text(), path(), text(), meta()).prop_map(|(session, path, content, meta)| {
        WriteTextFileRequest::new(session, path, content).meta(meta)
    }));
}

#[test]
fn any_permission_survives() {
    let kinds = vec![
        PermissionOptionKind::AllowOnce,
        PermissionOptionKind::AllowAlways,
        PermissionOptionKind::RejectOnce,
        PermissionOptionKind::RejectAlways,
    ];
    let option = (text(), text(), select(kinds), meta())
        .prop_map(|(id, name, kind, meta)| PermissionOption::new(id, name, kind).meta(meta));
    check_request((text(), tool_call_update(), vec(option, 0..4), meta()).prop_map(
        |(session, call, options, meta)| RequestPermissionRequest::new(session, call, options).meta(meta),
    ));

    let selected = (text(), meta()).prop_map(|(id, meta)| {
        RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id).meta(meta))
    });
    let outcome = prop_oneof![Just(RequestPermissionOutcome::Cancelled), selected];
    check_response::<RequestPermissionRequest>(
        (outcome, meta()).prop_map(|(outcome, meta)| RequestPermissionResponse::new(outcome).meta(meta)),
    );
}

#[test]
fn any_command_survives() {
    let variable =
        (text(), text(), meta()).prop_map(|(name, value, meta)| EnvVariable::new(name, value).meta(meta));
    let arguments = (vec(text(), 0..4), vec(variable, 0..4));
    check_request((text(), text(), arguments, of(path()), of(any::<u64>()), meta()).prop_map(
        |(session, command, (args, env), cwd, limit, meta)| {
            let request = CreateTerminalRequest::new(session, command).args(args).env(env);
            request.cwd(cwd.map(Into::into)).output_byte_limit(limit).meta(meta)
        },
    ));
}

#[test]
fn any_prompt_survives() {
    check_request(
        (text(), vec(content_block(), 0..5), meta())
            .prop_map(|(session, prompt, meta)| PromptRequest::new(session, prompt).meta(meta)),
    );
}

/// One strategy for each kind of update.
fn updates() -> Vec<BoxedStrategy<SessionUpdate>> {
    vec![
        chunk().prop_map(SessionUpdate::UserMessageChunk).boxed(),
        chunk().prop_map(SessionUpdate::AgentMessageChunk).boxed(),
        chunk().prop_map(SessionUpdate::AgentThoughtChunk).boxed(),
        tool_call().prop_map(SessionUpdate::ToolCall).boxed(),
        tool_call_update().prop_map(SessionUpdate::ToolCallUpdate).boxed(),
        (vec(plan_entry(), 0..4), meta())
            .prop_map(|(entries, meta)| SessionUpdate::Plan(Plan::new(entries).meta(meta)))
            .boxed(),
        (vec(command(), 0..4), meta())
            .prop_map(|(commands, meta)| {
                SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands).meta(meta))
            })
            .boxed(),
        (text(), meta())
            .prop_map(|(mode, meta)| {
                SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode).meta(meta))
            })
            .boxed(),
        (vec(config_option(), 0..4), meta())
            .prop_map(|(options, meta)| {
                SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options).meta(meta))
            })
            .boxed(),
        (maybe(text()), maybe(text()), meta())
            .prop_map(|(title, at, meta)| {
                SessionUpdate::SessionInfoUpdate(
                    SessionInfoUpdate::new().title(title).updated_at(at).meta(meta),
                )
            })
            .boxed(),
        (any::<u64>(), any::<u64>(), of((number(), text(), meta())), meta())
            .prop_map(|(used, size, cost, meta)| {
                let cost = cost.map(|(amount, currency, meta)| Cost::new(amount, currency).meta(meta));
                SessionUpdate::UsageUpdate(UsageUpdate::new(used, size).cost(cost).meta(meta))
            })
            .boxed(),
        // The schema requires a title that is not empty; the type does not.
        (severity(), text(), of(text()), meta())
            .prop_map(|(severity, title, description, meta)| {
                let notice = Notice::new(severity, format!("!{title}"));
                SessionUpdate::Notice(notice.description(description).meta(meta))
            })
            .boxed(),
        (text(), compaction_status(), maybe(vec(content_block(), 0..3)), maybe(text()), maybe(object()))
            .prop_map(|(id, status, summary, error, meta)| {
                let update = CompactionUpdate::new(id, status).summary(summary).error(error).meta(meta);
                SessionUpdate::CompactionUpdate(update)
            })
            .boxed(),
        (text(), content_block(), meta())
            .prop_map(|(id, content, meta)| {
                SessionUpdate::CompactionSummaryChunk(CompactionSummaryChunk::new(id, content).meta(meta))
            })
            .boxed(),
    ]
}

fn chunk() -> impl Strategy<Value = ContentChunk> {
    (content_block(), of(text()), meta()).prop_map(|(content, message, meta)| {
        ContentChunk::new(content).message_id(message.map(Into::into)).meta(meta)
    })
}

fn tool_call() -> impl Strategy<Value = ToolCall> {
    let lists = (vec(tool_content(), 0..4), vec(location(), 0..3));
    let raw = (of(raw()), of(raw()));
    (text(), text(), of(text()), (kind(), status()), lists, raw, meta()).prop_map(
        |(id, title, name, (kind, status), (content, locations), (input, output), meta)| {
            let call = ToolCall::new(id, title).name(name).kind(kind).status(status).content(content);
            call.locations(locations).raw_input(input).raw_output(output).meta(meta)
        },
    )
}

fn tool_call_update() -> impl Strategy<Value = ToolCallUpdate> {
    let lists = (of(vec(tool_content(), 0..4)), of(vec(location(), 0..3)));
    let raw = (of(raw()), of(raw()));
    (text(), of(text()), of(text()), (of(kind()), of(status())), lists, raw, meta()).prop_map(
        |(id, title, name, (kind, status), (content, locations), (input, output), meta)| {
            let fields = ToolCallUpdateFields::new().title(title).name(name).kind(kind).status(status);
            let fields = fields.content(content).locations(locations).raw_input(input).raw_output(output);
            ToolCallUpdate::new(id, fields).meta(meta)
        },
    )
}

fn tool_content() -> impl Strategy<Value = ToolCallContent> {
    prop_oneof![
        (content_block(), meta())
            .prop_map(|(content, meta)| ToolCallContent::Content(Content::new(content).meta(meta))),
        (path(), of(text()), text(), meta()).prop_map(|(path, old, new, meta)| {
            ToolCallContent::Diff(Diff::new(path, new).old_text(old).meta(meta))
        }),
        (text(), meta()).prop_map(|(id, meta)| ToolCallContent::Terminal(Terminal::new(id).meta(meta))),
    ]
}

fn location() -> impl Strategy<Value = ToolCallLocation> {
    (path(), of(any::<u32>()), meta())
        .prop_map(|(path, line, meta)| ToolCallLocation::new(path).line(line).meta(meta))
}

fn content_block() -> impl Strategy<Value = ContentBlock> {
    prop_oneof![
        (text(), of(annotations()), meta()).prop_map(|(text, annotations, meta)| {
            ContentBlock::Text(TextContent::new(text).annotations(annotations).meta(meta))
        }),
        (text(), text(), of(text()), of(annotations()), meta()).prop_map(
            |(data, mime, uri, annotations, meta)| {
                ContentBlock::Image(
                    ImageContent::new(data, mime).uri(uri).annotations(annotations).meta(meta),
                )
            }
        ),
        (text(), text(), of(annotations()), meta()).prop_map(|(data, mime, annotations, meta)| {
            ContentBlock::Audio(AudioContent::new(data, mime).annotations(annotations).meta(meta))
        }),
        (text(), text(), (of(text()), of(text()), of(text())), of(any::<i64>()), of(annotations()), meta())
            .prop_map(|(name, uri, (title, description, mime), size, annotations, meta)| {
                let link = ResourceLink::new(name, uri).title(title).description(description);
                ContentBlock::ResourceLink(
                    link.mime_type(mime).size(size).annotations(annotations).meta(meta),
                )
            }),
        (resource(), of(annotations()), meta()).prop_map(|(resource, annotations, meta)| {
            ContentBlock::Resource(EmbeddedResource::new(resource).annotations(annotations).meta(meta))
        }),
    ]
}

fn resource() -> impl Strategy<Value = EmbeddedResourceResource> {
    prop_oneof![
        (text(), text(), of(text()), meta()).prop_map(|(text, uri, mime, meta)| {
            let contents = TextResourceContents::new(text, uri).mime_type(mime).meta(meta);
            EmbeddedResourceResource::TextResourceContents(contents)
        }),
        (text(), text(), of(text()), meta()).prop_map(|(blob, uri, mime, meta)| {
            let contents = BlobResourceContents::new(blob, uri).mime_type(mime).meta(meta);
            EmbeddedResourceResource::BlobResourceContents(contents)
        }),
    ]
}

fn annotations() -> impl Strategy<Value = Annotations> {
    let audience = of(vec(select(vec![Role::Assistant, Role::User]), 0..3));
    (audience, of(text()), of(number()), meta()).prop_map(|(audience, modified, priority, meta)| {
        Annotations::new().audience(audience).last_modified(modified).priority(priority).meta(meta)
    })
}

fn plan_entry() -> impl Strategy<Value = PlanEntry> {
    let priority = select(vec![PlanEntryPriority::High, PlanEntryPriority::Medium, PlanEntryPriority::Low]);
    let status =
        select(vec![PlanEntryStatus::Pending, PlanEntryStatus::InProgress, PlanEntryStatus::Completed]);
    (text(), priority, status, meta())
        .prop_map(|(content, priority, status, meta)| PlanEntry::new(content, priority, status).meta(meta))
}

fn command() -> impl Strategy<Value = AvailableCommand> {
    let input = (text(), meta()).prop_map(|(hint, meta)| {
        AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint).meta(meta))
    });
    (text(), text(), of(input), meta()).prop_map(|(name, description, input, meta)| {
        AvailableCommand::new(name, description).input(input).meta(meta)
    })
}

fn config_option() -> impl Strategy<Value = SessionConfigOption> {
    let choices = || {
        let choice = (text(), text(), of(text()), meta()).prop_map(|(value, name, description, meta)| {
            SessionConfigSelectOption::new(value, name).description(description).meta(meta)
        });
        vec(choice, 0..3)
    };
    // Without groups, a list of groups is a list of choices: at least one.
    let group = (text(), text(), choices(), meta())
        .prop_map(|(id, name, options, meta)| SessionConfigSelectGroup::new(id, name, options).meta(meta));
    let category = prop_oneof![
        select(vec![
            SessionConfigOptionCategory::Mode,
            SessionConfigOptionCategory::Model,
            SessionConfigOptionCategory::ModelConfig,
            SessionConfigOptionCategory::ThoughtLevel,
        ]),
        text().prop_map(|text| SessionConfigOptionCategory::Other(format!("_{text}"))),
    ];
    let option = prop_oneof![
        (text(), text(), any::<bool>()).prop_map(|(id, name, on)| SessionConfigOption::boolean(id, name, on)),
        (text(), text(), text(), choices())
            .prop_map(|(id, name, value, choices)| SessionConfigOption::select(id, name, value, choices)),
        (text(), text(), text(), vec(group, 1..3))
            .prop_map(|(id, name, value, groups)| SessionConfigOption::select(id, name, value, groups)),
    ];
    (option, of(text()), of(category), meta()).prop_map(|(option, description, category, meta)| {
        option.description(description).category(category).meta(meta)
    })
}

fn kind() -> impl Strategy<Value = ToolKind> {
    select(vec![
        ToolKind::Read,
        ToolKind::Edit,
        ToolKind::Delete,
        ToolKind::Move,
        ToolKind::Search,
        ToolKind::Execute,
        ToolKind::Think,
        ToolKind::Fetch,
        ToolKind::SwitchMode,
        ToolKind::Other,
    ])
}

fn status() -> impl Strategy<Value = ToolCallStatus> {
    select(vec![
        ToolCallStatus::Pending,
        ToolCallStatus::InProgress,
        ToolCallStatus::Completed,
        ToolCallStatus::Failed,
    ])
}

fn severity() -> impl Strategy<Value = NoticeSeverity> {
    prop_oneof![
        select(vec![NoticeSeverity::Info, NoticeSeverity::Warning, NoticeSeverity::Error]),
        text().prop_map(|text| NoticeSeverity::Other(format!("_{text}"))),
    ]
}

fn compaction_status() -> impl Strategy<Value = CompactionStatus> {
    prop_oneof![
        select(vec![
            CompactionStatus::InProgress,
            CompactionStatus::Completed,
            CompactionStatus::Failed,
            CompactionStatus::Cancelled,
        ]),
        text().prop_map(|text| CompactionStatus::Other(format!("_{text}"))),
    ]
}

fn maybe<T: Debug + Clone + 'static>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = MaybeUndefined<T>> {
    prop_oneof![
        Just(MaybeUndefined::Undefined),
        Just(MaybeUndefined::Null),
        value.prop_map(MaybeUndefined::Value),
    ]
}

/// Unusual text: empty, or with characters that JSON, a line or a terminal treats specially.
fn text() -> impl Strategy<Value = String> {
    let odd = [
        "", "\0", "\u{1f}", "\u{7f}", "\u{85}", "\n", "\r\n", "\t", "\"", "\\", "\\n", "\\u0000", "/", "{}",
        "null", "\u{2028}", "\u{2029}", "\u{202e}", "\u{feff}", "\u{fffd}", "\u{ffff}", "e\u{301}",
        "\u{1f600}", "\u{10ffff}", "\u{1b}[31m",
    ];
    let piece = prop_oneof![select(odd.map(str::to_owned).to_vec()), any::<char>().prop_map(String::from)];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("/{text}"))
}

/// A number that its shortest text restores exactly, which JSON parsers do not guarantee for all.
fn number() -> impl Strategy<Value = f64> {
    any::<i32>().prop_map(|eighths| f64::from(eighths) / 8.0)
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((text(), inner), 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    vec((text(), json()), 0..3).prop_map(|fields| fields.into_iter().collect())
}

fn meta() -> impl Strategy<Value = Option<Meta>> {
    of(object())
}

/// Raw input or output. Null counts as missing, so it does not survive a round trip.
fn raw() -> impl Strategy<Value = Value> {
    json().prop_filter("null is none", |value| !value.is_null())
}
