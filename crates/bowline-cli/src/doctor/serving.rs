//! Who would serve what to whom, and why: by the same decision, in the same words, as in a session.

use bowline_agent::runtime::Choice;
use bowline_host::Offer;
use bowline_state::capabilities::{ClientGate, ClientMethod};
use bowline_state::mcp_tools::workspace::Workspace;
use bowline_wire::schema::v1::ClientCapabilities;

use super::report::{Finding, Section};

/// Says who serves the tools of Bowline's agent, and what Bowline serves to other agents.
pub(super) fn look() -> Section {
    let mut section = Section::new("Who serves what");
    let able = section.plain("Bowline's agent (with --shell), in an editor that offers files and terminals:");
    choice(able, Offer::default().capabilities());
    let unable = section.plain("the same, in an editor that offers neither:");
    choice(unable, ClientCapabilities::new());
    let by_server = section
        .plain("the same, where a server over MCP has the tools of a workspace, as `bowline mcp` has:");
    let neither = Choice::by_gate(&ClientGate::new(ClientCapabilities::new()));
    describe(by_server, neither.with_workspace(Workspace { writes: true, runs: true }, true));
    section
        .plain("with --tools dual the model chooses the machine:")
        .detail("the editor's, by ide_read_file, ide_write_file, ide_edit_file and ide_terminal, as far as it is offered")
        .detail("the agent's own, by read_file, write_file, edit_file and bash");
    offer(section.plain("another agent, started by `bowline run` or `chat`, is offered:"));
    section
}

/// Answers what people ask when an editor does not show what they expect.
pub(super) fn questions() -> Section {
    let mut section = Section::new("If something is missing in an editor");
    let all: [(&str, &[&str]); 4] = [
        (
            "a tool is not there:",
            &[
                "ask Bowline's agent `/tools` and `/status`: it has what somebody serves, and says who and why",
                "commands take --shell, and changes another mode than read-only",
                "`bowline agent --log FILE` writes what the editor advertised, for every session",
            ],
        ),
        (
            "unsaved text is not seen:",
            &[
                "the editor has to advertise fs.readTextFile, and to have the file open in the project of the session",
                "some editors advertise it and read the disk all the same: compare with `bowline run --open FILE=TEXTFILE`",
            ],
        ),
        (
            "a file cannot be read or written:",
            &[
                "it has to lie in the session's directory, or in one that was added, after all links are followed",
                "paths in the protocol are absolute; an editor that opens sessions in `.` takes --allow-relative-cwd",
                "an editor may offer reading and not writing: `/status` tells the two apart",
                "what rules or a person denied: `bowline audit show`; which rule: `bowline policy explain`",
            ],
        ),
        (
            "nothing happens at all:",
            &[
                "`bowline doctor -- COMMAND`, with what the editor is set to start, as it is in its configuration",
                "an editor may have another PATH and other keys than this shell: `bowline setup` names the whole path, and \
                 `bowline agent --login` stores a key",
            ],
        ),
    ];
    for (question, answers) in all {
        let finding = section.plain(question);
        for answer in answers {
            finding.detail(*answer);
        }
    }
    section
}

fn choice(finding: &mut Finding, capabilities: ClientCapabilities) {
    describe(finding, Choice::by_gate(&ClientGate::new(capabilities)));
}

fn describe(finding: &mut Finding, choice: Choice) {
    for line in choice.describe(true) {
        finding.detail(line);
    }
}

/// Says what an agent is offered, as the host says it.
pub(super) fn offer(finding: &mut Finding) {
    let gate = ClientGate::new(Offer::default().capabilities());
    let all = [
        (ClientMethod::ReadTextFile, "reading files, with unsaved text"),
        (ClientMethod::WriteTextFile, "writing files, merged with your edits, undoable"),
        (ClientMethod::CreateTerminal, "terminals, with the whole process tree ended after them"),
        (ClientMethod::ElicitForm, "forms to ask you by"),
        (ClientMethod::ElicitUrl, "pages to send you to"),
    ];
    for (method, what) in all {
        match gate.check(method) {
            Ok(()) => finding.detail(format!("{what} ({})", method.wire_name())),
            Err(missing) => finding.detail(format!("not {what}: {missing}")),
        };
    }
}
