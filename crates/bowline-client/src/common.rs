//! Shared parts of the commands that work on records: locating the workspace, and formatting output.

pub mod console;
pub mod leftovers;
pub mod names;
pub mod other_workspaces;
pub mod pager;
pub mod reversal;
pub mod rules;
pub mod times;
pub mod workspace_location;
