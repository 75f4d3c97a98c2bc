//! The agent with every protocol method, as a program.

fn main() -> std::io::Result<()> {
    test_support::complete_agent::run()
}
