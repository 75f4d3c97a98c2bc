//! What a model is not offered in a session, and why, for a person who misses it.

use bowline_state::mode::Mode;

use super::Toolbox;

impl Toolbox {
    /// Returns which tools a model is not offered in a mode, and why, each in a few words.
    #[must_use]
    pub fn withheld(&self, mode: Mode) -> Vec<(String, String)> {
        let mut withheld = Vec::new();
        let changing = self.inner.tools.iter().filter(|tool| tool.tool.changes());
        let changing: Vec<String> = changing.map(|tool| format!("`{}`", tool.name)).collect();
        let others = self.inner.mcp.as_ref().map(|source| source.specs()).unwrap_or_default();
        if !mode.may_change() {
            let why =
                format!("the mode {} changes and runs nothing; `/mode ask` does, and asks first", mode.id());
            withheld.push((changing.join(", "), why));
        }
        if !mode.may_change() && !others.is_empty() {
            let tools = if others.len() == 1 { "tool" } else { "tools" };
            let why = format!("what they do is not known, and the mode {} changes nothing", mode.id());
            withheld.push((format!("{} {tools} of MCP servers", others.len()), why));
        }
        if !self.runtimes().settings().shell {
            let why = "the agent was started without `--shell`, as `--no-terminal` has it";
            withheld.push(("commands".to_owned(), why.to_owned()));
        }
        if let Some(adopted) = self.runtimes().workspace() {
            let why = format!("the tools above call those of the MCP server {:?}", adopted.server().name);
            withheld.push((format!("{} tools of a workspace", adopted.server().tools.len()), why));
        }
        withheld
    }
}
