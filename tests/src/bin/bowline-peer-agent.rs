//! Bowline's own peer, the agent, beside those in `tests/peers`.

fn main() -> std::io::Result<()> {
    test_support::scripted_agent::run()
}
