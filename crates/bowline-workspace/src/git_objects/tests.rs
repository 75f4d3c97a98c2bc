//! Tests of reading packs that git made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use test_support::git::{commit_and_pack, git};

use super::pack::inflate;
use super::*;
use crate::roots::RootSpec;

/// Bytes that cannot be compressed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Files that a pack stores in different ways: whole, as chains of differences, empty, large, incompressible.
fn files() -> Vec<(String, Vec<u8>)> {
    let lines = |count: usize, changed: usize| -> Vec<u8> {
        let line = |at| if at == changed { "changed\n".to_owned() } else { format!("line {}\n", at * at) };
        (0..count).map(line).collect::<String>().into_bytes()
    };
    let mut files = vec![
        ("empty".to_owned(), Vec::new()),
        ("short".to_owned(), b"x".to_vec()),
        ("noise".to_owned(), noise(100_000)),
        ("zeros".to_owned(), vec![0; 300_000]),
        ("long".to_owned(), lines(20_000, 20_000)),
    ];
    files
        .extend((0..40).map(|version| (format!("version-{version}.txt"), lines(300 + version, version * 7))));
    files
}

fn project() -> (TempDir, PathBuf) {
    let scratch = TempDir::new().unwrap();
    let top = scratch.path().canonicalize().unwrap().join("project");
    fs::create_dir_all(top.join("sub")).unwrap();
    files().into_iter().for_each(|(name, bytes)| fs::write(top.join("sub").join(name), bytes).unwrap());
    commit_and_pack(&top);
    (scratch, top)
}

fn open_at(directory: &Path) -> GitObjects {
    GitObjects::open(&Roots::open(&RootSpec::writable(directory.to_str().unwrap()), &[]).unwrap())
}

/// Returns how many of the files are found, and fails if one is found with other bytes.
fn readable(objects: &mut GitObjects) -> usize {
    let mut found = 0;
    for (name, bytes) in files() {
        let Some(id) = objects.find_file(&bytes) else { continue };
        let read = objects.read_file(&id);
        assert!(read.as_ref() == Some(&bytes), "{name}: {:?}", read.map(|read| read.len()));
        found += 1;
    }
    found
}

#[test]
fn every_file_of_a_pack_is_read_whatever_its_encoding() {
    let (_scratch, top) = project();
    let all = files().len();
    let deltas = |name: &str| git(&top, &["verify-pack", "--verbose", name]).matches("chain length").count();
    let index = || {
        let packs = fs::read_dir(top.join(".git/objects/pack")).unwrap();
        let index = packs.map(|entry| entry.unwrap().path()).find(|path| path.extension().unwrap() == "idx");
        index.unwrap().to_str().unwrap().to_owned()
    };
    assert!(deltas(&index()) > 1, "the pack has no chains of differences");
    assert_eq!(readable(&mut open_at(&top)), all);
    // Differences that name their base by its id, and an index with large offsets.
    git(&top, &["-c", "repack.useDeltaBaseOffset=false", "-c", "pack.indexVersion=2", "repack", "-adfq"]);
    assert_eq!(readable(&mut open_at(&top)), all);
    fs::set_permissions(index(), PermissionsExt::from_mode(0o644)).unwrap();
    let pack = index().replace(".idx", ".pack");
    git(&top, &["index-pack", "--index-version=2,0x40", "-o", &index(), &pack]);
    assert_eq!(readable(&mut open_at(&top)), all);
}

#[test]
fn the_repository_around_a_subdirectory_and_behind_a_worktree_is_found() {
    let (_scratch, top) = project();
    assert_eq!(readable(&mut open_at(&top.join("sub"))), files().len());
    git(&top, &["worktree", "add", "--quiet", "../other"]);
    assert_eq!(readable(&mut open_at(&top.with_file_name("other"))), files().len());
    fs::remove_dir_all(top.join(".git")).unwrap();
    assert_eq!(readable(&mut open_at(&top)), 0);
}

#[test]
fn packs_are_readable_after_the_repository_is_deleted() {
    let (_scratch, top) = project();
    let mut objects = open_at(&top);
    fs::remove_dir_all(top.join(".git")).unwrap();
    assert_eq!(readable(&mut objects), files().len());
}

#[test]
fn objects_that_are_in_no_pack_are_not_found() {
    let (_scratch, top) = project();
    fs::write(top.join("loose"), "loose\n").unwrap();
    git(&top, &["add", "loose"]);
    assert_eq!(open_at(&top).find_file(b"loose\n"), None);
    // The ids of such a repository are SHA-256.
    let (_other_scratch, other) = project();
    fs::remove_dir_all(other.join(".git")).unwrap();
    git(&other, &["init", "--quiet", "--object-format=sha256"]);
    commit_and_pack(&other);
    assert_eq!(readable(&mut open_at(&other)), 0);
}

#[test]
fn a_pack_that_was_cut_off_is_not_used() {
    let (_scratch, top) = project();
    let packs = fs::read_dir(top.join(".git/objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    let pack = packs.into_iter().find(|path| path.extension().unwrap() == "pack").unwrap();
    fs::set_permissions(&pack, PermissionsExt::from_mode(0o644)).unwrap();
    let whole = fs::read(&pack).unwrap();
    for kept in [0, 11, 31, whole.len() / 2, whole.len() - 20, whole.len() - 1] {
        fs::write(&pack, &whole[..kept]).unwrap();
        // Every text is stored again then, also those whose bytes are still there.
        let mut objects = open_at(&top);
        assert_eq!(readable(&mut objects), 0, "{kept} of {} bytes", whole.len());
    }
    fs::write(&pack, &whole).unwrap();
    assert_eq!(readable(&mut open_at(&top)), files().len());
}

#[test]
fn a_damaged_pack_is_no_panic() {
    let scratch = TempDir::new().unwrap();
    let texts: Vec<String> = (0..8).map(|version| format!("{}{version}\n", "a line\n".repeat(20))).collect();
    for (text, name) in texts.iter().zip(0..) {
        fs::write(scratch.path().join(format!("{name}.txt")), text).unwrap();
    }
    commit_and_pack(scratch.path());
    let ids: Vec<_> = texts.iter().map(|text| GitObjectId::of_file(text.as_bytes())).collect();
    let mut wrong = 0;
    for entry in fs::read_dir(scratch.path().join(".git/objects/pack")).unwrap() {
        let path = entry.unwrap().path();
        let whole = fs::read(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 100 + 1) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let kept = if at % 2 == 0 { damaged.len() } else { at };
            fs::write(&path, &damaged[..kept]).unwrap();
            let mut objects = open_at(scratch.path());
            // Bytes that are read nevertheless have another hash, which the caller compares.
            for (id, text) in ids.iter().zip(&texts) {
                wrong += usize::from(objects.read_file(id).is_none_or(|read| read != text.as_bytes()));
            }
        }
        fs::write(&path, &whole).unwrap();
    }
    assert!(wrong > 0, "no damage was met");
}

/// Streams that zlib made: a stored block, a fixed code, no bytes, and a code of its own.
const STREAMS: [(&str, &[u8]); 4] = [
    ("7801010c00f3ff73746f7265642062797465731fcf04d9", b"stored bytes"),
    ("78014bcbac484d5148432293f353528b016793089f", b"fixed fixed fixed codes"),
    ("78da030000000001", b""),
    (
        "78da458cc90dc3400c035b71011ec03a57eb6e64a782f4ff887e79910486d3cfb7dffef4c479f47fdcc785e06c24d1c012df\
         a45382a18e2f96a29890ca1ec258f351c2d843cf7704d39db82832d04515e1a852631b5520422599fc007f991f4c",
        b"abracadabra, abracadabra: 0-1-4-9-16-25-36-49-64-81-3-24-47-72-2-31-62-95-33-70-12-53-96-44-91-43-94\
          -50-8-65-27-88-54-22-89-61-35-11-86-66-",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_kind_of_block_is_inflated_and_what_follows_is_ignored() {
    for (stream, content) in STREAMS {
        let mut stream = bytes(stream);
        assert_eq!(inflate(&stream, content.len()).as_deref(), Some(content));
        stream.extend(b"the next object");
        assert_eq!(inflate(&stream, content.len()).as_deref(), Some(content));
    }
}

#[test]
fn a_stream_of_another_size_or_cut_off_or_invalid_is_refused() {
    for (stream, content) in STREAMS {
        let stream = bytes(stream);
        assert_eq!(inflate(&stream, content.len() + 1), None);
        assert_eq!(inflate(&stream, usize::MAX), None);
        assert!(content.is_empty() || inflate(&stream, content.len() - 1).is_none());
        for length in 0..stream.len() {
            assert_eq!(inflate(&stream[..length], content.len()), None, "{length}");
        }
    }
    for (what, stream) in [
        ("another method", "799c0300"),
        ("a wrong header", "789d0300"),
        ("a preset dictionary", "78bb0300"),
        ("a reserved block type", "789c0700"),
        ("a stored length that does not match its complement", "789c01010000ff61"),
        ("a distance before the start", "789c03020000"),
        ("a repeated length without a previous one", "789c0500000000800000000000"),
    ] {
        assert_eq!(inflate(&bytes(stream), 3), None, "{what}");
    }
}
