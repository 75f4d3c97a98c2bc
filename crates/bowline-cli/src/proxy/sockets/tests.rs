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
    let made = create_socket_dir(base).unwrap();
    let path = made.path.clone();
    drop(UnixListener::bind(path.join("1.sock")).unwrap());
    let owner = made._owner_lock.file().try_clone().unwrap();
    std::mem::forget(made);
    owner.unlock().unwrap();
    path
}

#[test]
fn what_dead_owners_left_is_swept_and_nothing_else() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path();
    let living = create_socket_dir(base).unwrap();
    drop(UnixListener::bind(living.path.join("1.sock")).unwrap());
    let dead = abandoned_dir(base);
    let begun = base.join("bowline-proxy-begun");
    fs::create_dir(&begun).unwrap();
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
    assert!(!dead.exists() && !begun.exists());
    let living_name = living.path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut kept = vec![
        "bowline-other".to_owned(),
        "bowline-proxy-full".to_owned(),
        "bowline-proxy-link".to_owned(),
        "bowline-proxy-linked".to_owned(),
        living_name,
        "elsewhere".to_owned(),
    ];
    kept.sort();
    assert_eq!(list_names(base), kept);
    assert_eq!(list_names(&living.path), ["1.sock", OWNER_FILE]);
    assert_eq!(fs::read_to_string(elsewhere.join(OWNER_FILE)).unwrap(), "kept");
    assert_eq!(list_names(&full), ["precious"]);
    let path = living.path.clone();
    drop(living);
    assert!(!path.exists());
}

#[test]
fn a_directory_is_the_users_alone_and_what_is_swept_while_it_is_made_is_made_again() {
    let base = tempfile::tempdir().unwrap();
    let made = create_socket_dir(base.path()).unwrap();
    assert_eq!(fs::metadata(&made.path).unwrap().mode() & 0o777, 0o700);
    // Another proxy holds the lock for the removal, or removed the file before the lock was taken.
    let swept = base.path().join("bowline-proxy-swept");
    assert_eq!(lock_owner_file(&swept).unwrap_err().kind(), ErrorKind::NotFound);
    std::thread::scope(|scope| {
        let sweeping = scope.spawn(|| (0..2000).for_each(|_| remove_stale_dirs(base.path())));
        while !sweeping.is_finished() {
            let made = create_socket_dir(base.path()).unwrap();
            assert!(made.path.join(OWNER_FILE).exists());
        }
    });
    assert!(made.path.join(OWNER_FILE).exists());
}
