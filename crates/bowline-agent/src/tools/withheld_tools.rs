//! The tools that a model is not offered in a session, and the reasons, for the user.

use bowline_policy::mode::AgentMode;

use super::Toolbox;

impl Toolbox {
    /// Returns the tools that a model is not offered in a mode, each with a short reason.
    #[must_use]
    pub fn withheld_tools(&self, mode: AgentMode) -> Vec<(String, String)> {
        let mut withheld = Vec::new();
        let changing = self.inner.own_tools.iter().filter(|tool| tool.tool.is_mutating());
        let changing: Vec<String> = changing.map(|tool| format!("`{}`", tool.name)).collect();
        let others = self.inner.mcp.as_ref().map(|source| source.specs()).unwrap_or_default();
        if !mode.can_change() {
            let why =
                format!("the mode {} changes and runs nothing; `/mode ask` does, and asks first", mode.id());
            withheld.push((changing.join(", "), why));
        }
        if !mode.can_change() && !others.is_empty() {
            let tools = if others.len() == 1 { "tool" } else { "tools" };
            let why = format!("what they do is not known, and the mode {} changes nothing", mode.id());
            withheld.push((format!("{} {tools} of MCP servers", others.len()), why));
        }
        if !self.runtime().options().is_shell_enabled {
            let why = "the agent was started without `--shell`, as `--no-terminal` has it";
            withheld.push(("commands".to_owned(), why.to_owned()));
        }
        if let Some(adopted) = self.runtime().adopted_workspace() {
            let why = format!("the tools above call those of the MCP server {:?}", adopted.server().name);
            withheld.push((format!("{} tools of a workspace", adopted.server().tools.len()), why));
        }
        withheld
    }
}
