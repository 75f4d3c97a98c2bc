//! Tests of stale socket directories: which ones are removed.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

fn list_names(base: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(base).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory as a killed proxy leaves it: with its files, and with the lock released.
fn abandoned_dir(base: &Path) -> PathBuf {
    let dir = create_socket_dir(base).unwrap();
    let path = dir.path.clone();
    drop(UnixListener::bind(path.join("1.sock")).unwrap());
    let owner = dir._owner_lock.file().try_clone().unwrap();
    std::mem::forget(dir);
    owner.unlock().unwrap();
    path
}

#[test]
fn what_dead_owners_left_is_swept_and_nothing_else() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path();
    let live = create_socket_dir(base).unwrap();
    drop(UnixListener::bind(live.path.join("1.sock")).unwrap());
    let dead = abandoned_dir(base);
    let unfinished = base.join("bowline-proxy-begun");
    fs::create_dir(&unfinished).unwrap();
    // A directory that no proxy created.
    fs::create_dir(base.join("bowline-other")).unwrap();
    let full = base.join("bowline-proxy-full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("precious"), "kept").unwrap();
    let elsewhere = base.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join(OWNER_FILE), "kept").unwrap();
    symlink(&elsewhere, base.join("bowline-proxy-link")).unwrap();
    let linked = base.join("bowline-proxy-linked");
    fs::create_dir(&linked).unwrap();
    symlink(elsewhere.join(OWNER_FILE), linked.join(OWNER_FILE)).unwrap();
    remove_stale_dirs(base);
    assert!(!dead.exists() && !unfinished.exists());
    let live_name = live.path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut expected = vec![
        "bowline-other".to_owned(),
        "bowline-proxy-full".to_owned(),
        "bowline-proxy-link".to_owned(),
        "bowline-proxy-linked".to_owned(),
        live_name,
        "elsewhere".to_owned(),
    ];
    expected.sort();
    assert_eq!(list_names(base), expected);
    assert_eq!(list_names(&live.path), ["1.sock", OWNER_FILE]);
    assert_eq!(fs::read_to_string(elsewhere.join(OWNER_FILE)).unwrap(), "kept");
    assert_eq!(list_names(&full), ["precious"]);
    let path = live.path.clone();
    drop(live);
    assert!(!path.exists());
}

#[test]
fn a_directory_is_the_users_alone_and_what_is_swept_while_it_is_made_is_made_again() {
    let base = tempfile::tempdir().unwrap();
    let dir = create_socket_dir(base.path()).unwrap();
    assert_eq!(fs::metadata(&dir.path).unwrap().mode() & 0o777, 0o700);
    // Another proxy holds the lock for the removal, or removed the file before the lock was taken.
    let swept = base.path().join("bowline-proxy-swept");
    assert_eq!(lock_owner_file(&swept).unwrap_err().kind(), ErrorKind::NotFound);
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| (0..2000).for_each(|_| remove_stale_dirs(base.path())));
        while !sweeper.is_finished() {
            let dir = create_socket_dir(base.path()).unwrap();
            assert!(dir.path.join(OWNER_FILE).exists());
        }
    });
    assert!(dir.path.join(OWNER_FILE).exists());
}
