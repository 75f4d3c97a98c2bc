//! The workarounds for known faults of other programs, as the environment sets them.

use bowline_protocol::quirks::{DISABLE_VARIABLE, QuirkMode};

/// Returns the mode that the user chose.
pub(crate) fn quirk_mode() -> QuirkMode {
    QuirkMode::from_variable(std::env::var_os(DISABLE_VARIABLE).as_deref())
}
