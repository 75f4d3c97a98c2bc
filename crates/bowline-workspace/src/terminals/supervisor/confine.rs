//! Confined commands, restricted by the kernel.
//!
//! Landlock and seccomp apply to the calling thread and everything it starts. A dedicated thread starts the command, so
//! that the supervisor stays free to clean up, and out of reach of the command's signals.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use super::super::protocol::{Confinement, StartError};
use super::to_start_error;

// The first version that restricts all ways to change a file's content, including truncation.
const REQUIRED_ABI: ABI = ABI::V3;

// The devices that every command may write to.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/full", "/dev/zero"];

const EACCES: u32 = 13;

/// The kernel's support for confinement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfinementSupport {
    /// The version of Landlock that confines files, or why files cannot be confined.
    pub files: Result<i32, String>,
    /// Why network access cannot be denied, if it cannot.
    pub network: Result<(), String>,
}

impl ConfinementSupport {
    /// Detects the support by confining a dedicated thread.
    #[must_use]
    pub fn detect() -> Self {
        let nothing = Confinement { writable: Vec::new() };
        let tried = thread::scope(|scope| {
            let confined = scope.spawn(|| (restrict_files(&nothing, None), restrict_network()));
            confined.join()
        });
        let ended = || Err("the thread that tried it ended early".to_owned());
        let (files, network) = tried.unwrap_or_else(|_| (ended(), Err(String::new())));
        Self { files, network }
    }
}

/// Starts a confined command.
pub(super) fn spawn_confined(
    command: &mut Command,
    confinement: &Confinement,
    scratch: Option<&Path>,
) -> Result<Child, StartError> {
    let spawned = thread::scope(|scope| {
        let confined = scope.spawn(|| {
            restrict_files(confinement, scratch).map_err(StartError::Unconfinable)?;
            restrict_network().map_err(StartError::Unconfinable)?;
            command.spawn().map_err(|error| to_start_error(&error))
        });
        confined.join()
    });
    spawned
        .unwrap_or_else(|_| Err(StartError::Unconfinable("the thread that confines ended early".to_owned())))
}

/// Confines the current thread, and returns the version of Landlock in force.
fn restrict_files(confinement: &Confinement, scratch: Option<&Path>) -> Result<i32, String> {
    let everything = AccessFs::from_write(REQUIRED_ABI);
    let asked = || {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let ruleset = ruleset.handle_access(everything)?.set_compatibility(CompatLevel::BestEffort);
        ruleset.scope(Scope::from_all(ABI::V6))?.create()
    };
    let mut ruleset = asked().map_err(|why| format!("the kernel does not confine files: {why}"))?;
    let own = confinement.writable.iter().map(|path| (path.as_path(), true));
    let own = own.chain(scratch.map(|path| (path, true)));
    for (path, needed) in own.chain(DEVICES.iter().map(|path| (Path::new(path), false))) {
        let opened = match PathFd::new(path) {
            Ok(opened) => opened,
            Err(_) if !needed => continue,
            Err(why) => return Err(format!("cannot open {}: {why}", path.display())),
        };
        let access = if path.is_dir() { everything } else { everything & AccessFs::from_file(REQUIRED_ABI) };
        ruleset = ruleset
            .add_rule(PathBeneath::new(opened, access))
            .map_err(|why| format!("cannot allow {}: {why}", path.display()))?;
    }
    let status = ruleset.restrict_self().map_err(|why| format!("the kernel does not confine: {why}"))?;
    match status.ruleset {
        // Only the protection of other processes from its signals may be missing.
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced if status.no_new_privs => {
            Ok(match status.landlock {
                LandlockStatus::Available { effective_abi, kernel_abi } => {
                    kernel_abi.unwrap_or(effective_abi as i32)
                }
                LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
            })
        }
        _ => Err("the kernel does not confine files".to_owned()),
    }
}

fn restrict_network() -> Result<(), String> {
    let (architecture, socket, ring) = if cfg!(target_arch = "x86_64") {
        (TargetArch::x86_64, 41, 425)
    } else if cfg!(target_arch = "aarch64") {
        (TargetArch::aarch64, 198, 425)
    } else {
        return Err("it is not known how to forbid sockets on this kind of processor".to_owned());
    };
    // On x86_64, the same calls are also available by numbers with this bit set, if the kernel was built so (x32).
    let other = 0x4000_0000;
    let rules: BTreeMap<i64, Vec<_>> =
        [socket, ring, socket | other, ring | other].into_iter().map(|call| (call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EACCES), architecture)
        .and_then(BpfProgram::try_from)
        .map_err(|why| format!("sockets cannot be forbidden: {why}"))?;
    apply_filter(&filter).map_err(|why| format!("the kernel does not forbid sockets: {why}"))
}
