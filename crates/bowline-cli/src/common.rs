//! Shared parts of the commands that work on records: locating the workspace, and formatting output.

pub(crate) mod console;
pub(crate) mod names;
pub(crate) mod other_workspaces;
pub(crate) mod pager;
pub(crate) mod times;
pub(crate) mod workspace_location;
