//! Tests of disk snapshots: the result for each kind of file.

use std::fmt::Write as _;

use expect_test::expect;

use super::*;
use crate::walker::fixture::TestTree;

#[test]
fn what_is_there_is_told_and_nothing_else() {
    let tree = TestTree::new(
        "
//- /w/a
text
//- /w/long
more than may be looked at
//- /w/deep/b
//- /w/inside -> a
//- /w/outside -> $T/o
//- /o/secret
",
    );
    let roots = tree.roots(&["/w"]);
    let mut told = String::new();
    for path in
        ["/w/a", "/w/inside", "/w/long", "/w/deep", "/w/none", "/w/no/ne", "/w/outside/secret", "/o/secret"]
    {
        let found = match take_disk_snapshot(&roots, &tree.path_text(path), 16) {
            DiskSnapshot::File { bytes, changed_at: changed } => {
                assert!(changed > SystemTime::UNIX_EPOCH);
                format!("{:?}", String::from_utf8_lossy(&bytes))
            }
            other => format!("{other:?}"),
        };
        writeln!(told, "{path}: {found}").unwrap();
    }
    expect![[r#"
        /w/a: "text\n"
        /w/inside: "text\n"
        /w/long: Unknown
        /w/deep: Unknown
        /w/none: Missing
        /w/no/ne: Missing
        /w/outside/secret: Unknown
        /o/secret: Unknown
    "#]]
    .assert_eq(&told);
}
