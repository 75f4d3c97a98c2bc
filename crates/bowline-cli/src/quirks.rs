//! Whether known faults of other programs are worked around, as the environment says.

use bowline_state::quirks::{OFF_SWITCH, QuirkMode};

/// Returns what the user wants.
pub(crate) fn quirk_mode() -> QuirkMode {
    QuirkMode::from_variable(std::env::var_os(OFF_SWITCH).as_deref())
}
