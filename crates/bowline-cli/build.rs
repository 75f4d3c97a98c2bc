//! Packs the relocations of a program that is built to be small, which takes 2 MB less.
//!
//! glibc loads them from 2.36 on. A program optimised for speed is the one that is shipped, so it keeps the form that older
//! systems load, too.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_native = env::var("TARGET").ok() == env::var("HOST").ok();
    if is("OPT_LEVEL", "z") && is("CARGO_CFG_TARGET_ENV", "gnu") && is_native && loads_packed_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Returns whether the glibc of this machine is 2.36 or later.
fn loads_packed_relocations() -> bool {
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version.is_some_and(|(major, minor)| (major.parse().ok(), minor.parse().ok()) >= (Some(2), Some(36)))
}
