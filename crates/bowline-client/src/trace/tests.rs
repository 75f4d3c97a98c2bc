//! Tests of the trace file.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bowline_protocol::trace::{BacklogItem, TraceGap};
use expect_test::expect;

use super::writer::TraceStorage;
use super::*;

#[test]
fn a_trace_replaces_traces_alone() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let root = base.join("project");
    std::fs::create_dir(&root).unwrap();
    let precious = base.join("precious");
    std::fs::write(&precious, "mine\n").unwrap();
    symlink(&precious, base.join("link")).unwrap();
    symlink(&root, base.join("way")).unwrap();
    std::fs::write(base.join("old"), "> {}\n< {}\n").unwrap();
    std::fs::write(base.join("trace"), bowline_protocol::trace::encode_header(1)).unwrap();
    std::fs::write(base.join("empty"), "").unwrap();
    std::fs::set_permissions(base.join("old"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let begin = |name: &str| match TraceRecorder::begin(&base.join(name), std::slice::from_ref(&root)) {
        Ok(trace) => {
            let trace = Arc::new(trace);
            trace.recorder(TraceSide::Client, TraceSide::Agent).record_line(Direction::Received, b"{}");
            drop(trace);
            let mode = base.join(name).metadata().unwrap().permissions().mode() & 0o777;
            let text = std::fs::read_to_string(base.join(name)).unwrap();
            let (head, rest) = text.split_once('\n').unwrap();
            assert!(head.starts_with(r#"{"trace":"bowline","version":1,"began":"#), "{head}");
            let (_, rest) = rest.split_once(',').unwrap();
            format!("{rest:?} {mode:o}")
        }
        Err(error) => format!("{error:?}").replace(&base.display().to_string(), "$BASE"),
    };
    let names = [
        "new", "old", "trace", "empty", "precious", "link", "project/t", "way/t", "project/../b", "none/t",
        ".",
    ];
    let output: String = names.iter().map(|name| format!("{name}: {}\n", begin(name))).collect();
    expect![[r#"
        new: "\"from\":\"agent\",\"to\":\"client\",\"message\":{}}\n" 600
        old: "\"from\":\"agent\",\"to\":\"client\",\"message\":{}}\n" 600
        trace: "\"from\":\"agent\",\"to\":\"client\",\"message\":{}}\n" 600
        empty: "\"from\":\"agent\",\"to\":\"client\",\"message\":{}}\n" 600
        precious: Usage("$BASE/precious is there and is no trace: name another file, or remove this one")
        link: Usage("$BASE/link is there and is no trace: name another file, or remove this one")
        project/t: Usage("the trace $BASE/project/t would lie inside the workspace, among the agent's work: name a file elsewhere")
        way/t: Usage("the trace $BASE/way/t would lie inside the workspace, among the agent's work: name a file elsewhere")
        project/../b: "\"from\":\"agent\",\"to\":\"client\",\"message\":{}}\n" 600
        none/t: Usage("cannot write the trace $BASE/none/t: No such file or directory (os error 2)")
        .: Usage("$BASE/. is there and is no trace: name another file, or remove this one")
    "#]].assert_eq(&output);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine\n");
}

/// A disk with limited space. It takes part of a write that does not fit.
#[derive(Clone, Default)]
struct LimitedDisk(Arc<Mutex<(Vec<u8>, usize)>>);

impl TraceStorage for LimitedDisk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (file, room) = &mut *self.0.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        file.truncate(offset);
        let fits = bytes.len().min(room.saturating_sub(offset));
        file.extend_from_slice(&bytes[..fits]);
        if fits == bytes.len() { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
    }

    fn truncate(&self, offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().0.truncate(usize::try_from(offset).unwrap());
        Ok(())
    }
}

#[test]
fn a_full_disk_loses_what_does_not_fit_and_the_trace_tells_it() {
    let disk = LimitedDisk::default();
    disk.0.lock().unwrap().1 = 220;
    let message = |size: usize| {
        BacklogItem::Message(TraceEntry {
            elapsed_us: 1,
            from: TraceSide::Client,
            to: TraceSide::Agent,
            bytes: vec![b'1'; size],
        })
    };
    let mut writer = TraceWriter::with_storage(Box::new(disk.clone()), 1).unwrap();
    // The long one does not fit, and does not affect the short ones.
    for size in [3, 300, 2] {
        writer.write(message(size));
    }
    // Now nothing fits, until there is room again.
    writer.write(message(10));
    writer.write(BacklogItem::Gap(TraceGap { messages: 4, bytes: 40 }));
    writer.write(message(10));
    disk.0.lock().unwrap().1 = 400;
    writer.write(message(1));
    writer.write(message(500));
    assert_eq!(writer.finish(), None);
    let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
    expect![[r#"
        {"trace":"bowline","version":1,"began":1}
        {"us":1,"from":"client","to":"agent","message":111}
        {"lost":{"messages":1,"bytes":300}}
        {"us":1,"from":"client","to":"agent","message":11}
        {"lost":{"messages":6,"bytes":60}}
        {"us":1,"from":"client","to":"agent","message":1}
        {"lost":{"messages":1,"bytes":500}}
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_disk_that_takes_nothing_more_is_told_at_the_end() {
    let disk = LimitedDisk::default();
    disk.0.lock().unwrap().1 = 50;
    let mut writer = TraceWriter::with_storage(Box::new(disk.clone()), 1).unwrap();
    writer.write(BacklogItem::Gap(TraceGap { messages: 2, bytes: 9 }));
    assert_eq!(writer.finish(), Some(TraceGap { messages: 2, bytes: 9 }));
    assert_eq!(disk.0.lock().unwrap().0, bowline_protocol::trace::encode_header(1));
}
