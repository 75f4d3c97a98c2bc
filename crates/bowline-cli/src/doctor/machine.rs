//! Checks of this machine's support for commands and paths, and of the terminal.

use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;

use bowline_workspace::roots::Resolver;
use bowline_workspace::terminals::SupervisorProgram;
use bowline_workspace::terminals::TerminalOptions;
use bowline_workspace::terminals::supervisor::ConfinementSupport;
use rustix::termios::tcgetwinsize;

use super::report::ReportSection;
use bowline_client::launch::SUPERVISOR_COMMAND;

/// Checks the machine.
pub(super) fn check_machine() -> ReportSection {
    let mut section = ReportSection::new("This machine");
    match Resolver::detect() {
        Resolver::Kernel => section.add_ok("paths: resolved by the kernel beneath the workspace (openat2)"),
        Resolver::Walk => section.add_warning(
            "paths: resolved one name after the other, as there is no openat2 or no /proc",
            "nothing to do: it is as safe, and slower; Linux 5.6 or later has it",
        ),
    };
    let ConfinementSupport { files, network } = ConfinementSupport::detect();
    let is_confinable = files.is_ok() && network.is_ok();
    match files {
        Ok(version) => section.add_ok(format!("confinement: files, by Landlock {version}: commands can be kept from writing elsewhere")),
        Err(reason) => section.add_warning(
            format!("confinement: not of files: {reason}"),
            "commands that have to be confined are refused; it takes Linux 6.2 or later with Landlock enabled",
        ),
    };
    match network {
        Ok(()) => section.add_ok("confinement: network, by seccomp: commands can be kept from it"),
        Err(reason) => section.add_warning(
            format!("confinement: not of the network: {reason}"),
            "commands that have to be kept from the network are refused",
        ),
    };
    check_shell(&mut section);
    check_terminal(&mut section);
    section.set_summary(match is_confinable {
        true => "commands can be kept from writing elsewhere, and from the network",
        false => "commands cannot be confined",
    });
    section
}

fn check_shell(section: &mut ReportSection) {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            section.add_broken(
                format!("the bowline program cannot find itself: {error}"),
                "start it by its whole path",
            );
            return;
        }
    };
    let shell =
        TerminalOptions::new(SupervisorProgram { program, args: vec![SUPERVISOR_COMMAND.into()] }).shell;
    match std::fs::metadata(&shell) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => {
            section.add_ok(format!("shell: {shell}"));
        }
        Ok(_) => {
            section.add_broken(
                format!("shell: {shell} cannot be executed"),
                "commands that are lines for a shell fail: put one there",
            );
        }
        Err(error) => {
            section.add_broken(
                format!("shell: {shell}: {error}"),
                "commands that are lines for a shell fail: put one there",
            );
        }
    }
}

fn check_terminal(section: &mut ReportSection) {
    let out = std::io::stdout();
    if !out.is_terminal() {
        section.add_info("terminal: none on stdout, so no colours, and no chat");
        return;
    }
    let kind = std::env::var("TERM").unwrap_or_default();
    let colours = match std::env::var_os("NO_COLOR") {
        Some(value) if !value.is_empty() => "no colours, as NO_COLOR is set",
        _ => "colours",
    };
    let size = tcgetwinsize(&out).map_or_else(
        |_| "of unknown size".to_owned(),
        |size| format!("{} columns, {} rows", size.ws_col, size.ws_row),
    );
    match kind.as_str() {
        "" | "dumb" => section.add_warning(
            format!("terminal: TERM is `{kind}`"),
            "`bowline chat` needs a terminal that can move its cursor; `bowline run` does not",
        ),
        kind => section.add_ok(format!("terminal: {kind}, {size}, {colours}")),
    };
}
