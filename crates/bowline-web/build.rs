//! Embeds `assets/`: compresses each file, and names all of them by one hash of their content.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let assets = variable("CARGO_MANIFEST_DIR")?.join("assets");
    let out = variable("OUT_DIR")?;
    let mut paths = Vec::new();
    collect(&assets, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    let mut hasher = DefaultHasher::new();
    for path in paths {
        let name = path.strip_prefix(&assets).map_err(io::Error::other)?;
        let name = name.to_str().ok_or(io::ErrorKind::InvalidData)?.to_owned();
        let content = fs::read(&path)?;
        (&name, &content).hash(&mut hasher);
        files.push((name, content));
    }
    let hash = format!("{:016x}", hasher.finish());
    // Imports between modules are relative, so only the page itself has to name the hash.
    if let Some((_, page)) = files.iter_mut().find(|(name, _)| name == "index.html") {
        let text = str::from_utf8(page).map_err(io::Error::other)?;
        *page = text.replace("\"/assets/", &format!("\"/assets/{hash}/")).into_bytes();
    }
    let mut table =
        format!("pub(super) const VERSION: &str = {hash:?};\npub(super) static FILES: &[Asset] = &[\n");
    for (index, (name, content)) in files.iter().enumerate() {
        let (plain, packed) = (out.join(format!("{index}")), out.join(format!("{index}.gz")));
        fs::write(&plain, content)?;
        fs::write(&packed, gzip(content))?;
        writeln!(
            table,
            "    Asset {{ name: {name:?}, plain: include_bytes!({plain:?}), packed: include_bytes!({packed:?}) }},"
        )
        .map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    fs::write(out.join("assets.rs"), table)
}

/// Collects the files below a directory, which the build then depends on.
fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", directory.display());
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { collect(&path, paths)? } else { paths.push(path) }
    }
    Ok(())
}

/// Compresses in gzip's format (RFC 1952).
fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(miniz_oxide::deflate::compress_to_vec(content, 9));
    let mut crc = u32::MAX;
    for byte in content {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    packed.extend((!crc).to_le_bytes());
    packed.extend((content.len() as u32).to_le_bytes());
    packed
}
