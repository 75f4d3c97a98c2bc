//! Bowline's own peer, the client, beside those in `tests/peers`.

fn main() -> anyhow::Result<()> {
    test_support::scripted_client::run(std::env::args().skip(1))
}
