//! Bowline's peer agent: the counterpart of the agents in `tests/peers`.

fn main() -> std::io::Result<()> {
    test_support::scripted_agent::run()
}
