//! Which side serves which capability, and why: by the same decision, in the same words, as in a session.

use bowline_agent::runtime::BackendChoice;
use bowline_host::HostCapabilities;
use bowline_protocol::capabilities::{ClientCapabilityGate, ClientMethod};
use bowline_tools::mcp_tools::workspace::WorkspaceToolset;
use bowline_wire::schema::v1::ClientCapabilities;

use super::report::{DoctorFinding, ReportSection};

/// Describes who serves the tools of Bowline's agent, and what Bowline serves to other agents.
pub(super) fn describe_serving() -> ReportSection {
    let mut section = ReportSection::new("Who serves what");
    let with_editor =
        section.add_info("Bowline's agent (with --shell), in an editor that offers files and terminals:");
    add_choice_for(with_editor, HostCapabilities::default().to_client_capabilities());
    let without_editor = section.add_info("the same, in an editor that offers neither:");
    add_choice_for(without_editor, ClientCapabilities::new());
    let with_server = section
        .add_info("the same, where a server over MCP has the tools of a workspace, as `bowline mcp` has:");
    let choice = BackendChoice::from_gate(&ClientCapabilityGate::new(ClientCapabilities::new()));
    let all = WorkspaceToolset { can_write: true, can_stat: true, can_batch: true, can_run: true };
    add_choice(with_server, choice.with_workspace(all, true));
    section
        .add_info("with --tools dual the model chooses the machine:")
        .add_detail("the editor's, by ide_read_file, ide_write_file, ide_edit_file and ide_terminal, as far as it is offered")
        .add_detail("the agent's own, by read_file, write_file, edit_file and bash");
    describe_offer(section.add_info("another agent, started by `bowline run` or `chat`, is offered:"));
    section
}

/// Answers common questions about editors that do not show what users expect.
pub(super) fn troubleshooting() -> ReportSection {
    let mut section = ReportSection::new("If something is missing in an editor");
    let questions: [(&str, &[&str]); 4] = [
        (
            "a tool is not there:",
            &[
                "ask Bowline's agent `/tools` and `/status`: they show what is available, and who serves it",
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
    for (question, answers) in questions {
        let finding = section.add_info(question);
        for answer in answers {
            finding.add_detail(*answer);
        }
    }
    section
}

fn add_choice_for(finding: &mut DoctorFinding, capabilities: ClientCapabilities) {
    add_choice(finding, BackendChoice::from_gate(&ClientCapabilityGate::new(capabilities)));
}

fn add_choice(finding: &mut DoctorFinding, choice: BackendChoice) {
    for line in choice.describe(true) {
        finding.add_detail(line);
    }
}

/// Describes what an agent is offered, in the host's words.
pub(super) fn describe_offer(finding: &mut DoctorFinding) {
    let gate = ClientCapabilityGate::new(HostCapabilities::default().to_client_capabilities());
    let methods = [
        (ClientMethod::ReadTextFile, "reading files, with unsaved text"),
        (ClientMethod::WriteTextFile, "writing files, merged with your edits, undoable"),
        (ClientMethod::CreateTerminal, "terminals, with the whole process tree ended after them"),
        (ClientMethod::ElicitForm, "forms to ask you by"),
        (ClientMethod::ElicitUrl, "pages to send you to"),
    ];
    for (method, description) in methods {
        match gate.check(method) {
            Ok(()) => finding.add_detail(format!("{description} ({})", method.wire_name())),
            Err(missing) => finding.add_detail(format!("not {description}: {missing}")),
        };
    }
}
