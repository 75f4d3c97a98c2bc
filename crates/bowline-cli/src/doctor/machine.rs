//! What this machine can do for commands and paths, and what the terminal is.

use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;

use bowline_workspace::roots::Resolver;
use bowline_workspace::terminals::Settings;
use bowline_workspace::terminals::Supervisor;
use bowline_workspace::terminals::supervisor::Confinable;
use rustix::termios::tcgetwinsize;

use super::report::Section;
use crate::SUPERVISOR;

/// Looks at the machine.
pub(super) fn look() -> Section {
    let mut section = Section::new("This machine");
    match Resolver::of_this_system() {
        Resolver::Kernel => section.well("paths: resolved by the kernel beneath the workspace (openat2)"),
        Resolver::Walk => section.lacking(
            "paths: resolved one name after the other, as there is no openat2 or no /proc",
            "nothing to do: it is as safe, and slower; Linux 5.6 or later has it",
        ),
    };
    let Confinable { files, network } = Confinable::of_this_system();
    let is_confinable = files.is_ok() && network.is_ok();
    match files {
        Ok(version) => section.well(format!("confinement: files, by Landlock {version}: commands can be kept from writing elsewhere")),
        Err(why) => section.lacking(
            format!("confinement: not of files: {why}"),
            "commands that have to be confined are refused; it takes Linux 6.2 or later with Landlock enabled",
        ),
    };
    match network {
        Ok(()) => section.well("confinement: network, by seccomp: commands can be kept from it"),
        Err(why) => section.lacking(
            format!("confinement: not of the network: {why}"),
            "commands that have to be kept from the network are refused",
        ),
    };
    match std::fs::File::options().read(true).write(true).open("/dev/ptmx") {
        Ok(_) => section.well("pseudo-terminals: there are some"),
        Err(error) => section
            .lacking(format!("pseudo-terminals: /dev/ptmx: {error}"), "commands get pipes in their place"),
    };
    look_at_shell(&mut section);
    look_at_terminal(&mut section);
    section.summary(match is_confinable {
        true => "commands can be kept from writing elsewhere, and from the network",
        false => "commands cannot be confined",
    });
    section
}

fn look_at_shell(section: &mut Section) {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            section.broken(
                format!("the bowline program cannot find itself: {error}"),
                "start it by its whole path",
            );
            return;
        }
    };
    let shell = Settings::new(Supervisor { program, args: vec![SUPERVISOR.into()] }).shell;
    match std::fs::metadata(&shell) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => {
            section.well(format!("shell: {shell}"));
        }
        Ok(_) => {
            section.broken(
                format!("shell: {shell} cannot be executed"),
                "commands that are lines for a shell fail: put one there",
            );
        }
        Err(error) => {
            section.broken(
                format!("shell: {shell}: {error}"),
                "commands that are lines for a shell fail: put one there",
            );
        }
    }
}

fn look_at_terminal(section: &mut Section) {
    let out = std::io::stdout();
    if !out.is_terminal() {
        section.plain("terminal: none on stdout, so no colours, and no chat");
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
        "" | "dumb" => section.lacking(
            format!("terminal: TERM is `{kind}`"),
            "`bowline chat` needs a terminal that can move its cursor; `bowline run` does not",
        ),
        kind => section.well(format!("terminal: {kind}, {size}, {colours}")),
    };
}
