//! Bowline's peer client: the counterpart of the clients in `tests/peers`.

fn main() -> anyhow::Result<()> {
    test_support::scripted_client::run(std::env::args().skip(1))
}
