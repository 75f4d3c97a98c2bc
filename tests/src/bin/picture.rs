//! The program behind `cargo xtask picture`: it draws the screen of `bowline chat` for the README.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bowline_tests::picture::{PICTURE_PATH, draw_chat};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let root = arguments.next().context("the first argument is the root of the repository")?;
    let bowline = arguments.next().context("the second argument is the program bowline")?;
    let picture = root.join(PICTURE_PATH);
    if let Some(directory) = picture.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(&picture, draw_chat(&bowline).await)
        .with_context(|| format!("cannot write {PICTURE_PATH}"))
}
