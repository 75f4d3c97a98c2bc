//! Tests of nested paths.

use super::*;

#[test]
fn paths_are_nested_by_whole_names() {
    assert_eq!(find_nested_paths(&["/p/a", "/p/ab", "/p/b/c"]), [""; 0]);
    assert_eq!(find_nested_paths(&["/p/a/b/c", "/p/z", "/p/a", "/p/a-"]), ["/p/a", "/p/a/b/c"]);
    assert_eq!(find_nested_paths(&[]), [""; 0]);
}

#[test]
fn directories_that_have_to_go_are_told_from_those_that_may_stay() {
    let targets = ["/p/a", "/p/a/b/c", "/p/a/d", "/p/q/r"];
    assert_eq!(find_emptied_directories(["/p/a/b/c", "/p/a/d", "/p/q/r"], &targets), ["/p/a/b", "/p/a"]);
    assert_eq!(find_emptied_directories(["/p/q/r"], &targets), [""; 0]);
}
