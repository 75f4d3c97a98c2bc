//! Test of an agent that reads unsaved text and writes through the editor, by an injected server that it knows nothing
//! of.

use crate::fixture::{CliFixture, bowline};

const SCRIPT: &str = r#"
{"calls": [{"name": "mcp__bowline__read_text_file", "input": {"path": "a.txt"}}]}
{"expect": "not saved yet", "calls": [{"name": "mcp__bowline__edit_text_file", "input": {"path": "a.txt", "old_text": "not saved yet", "new_text": "written by the agent"}}]}
{"expect": "Edited", "calls": [{"name": "mcp__bowline__search_text", "input": {"pattern": "written by"}}]}
{"expect": "a.txt", "calls": [{"name": "mcp__bowline__execute", "input": {"command": "echo", "args": ["from the editor's terminal"]}}]}
{"expect": "from the editor's terminal", "text": "Done."}
"#;

fn run_agent_through_proxy(proxy: &[&str], run: &[&str]) -> (CliFixture, String) {
    run_script_through_proxy(SCRIPT, proxy, run)
}

fn run_script_through_proxy(steps: &str, proxy: &[&str], run: &[&str]) -> (CliFixture, String) {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\nsaved\nthree\n");
    let base = scene.base();
    let (script, unsaved) = (base.join("script"), base.join("unsaved"));
    std::fs::write(&script, steps).unwrap();
    std::fs::write(&unsaved, "one\nnot saved yet\nthree\n").unwrap();
    let program = bowline().display().to_string();
    let agent = format!(
        "{program} proxy {} -- {program} agent --mode full --model script:{}",
        proxy.join(" "),
        script.display()
    );
    let open = format!("a.txt={}", unsaved.display());
    let words = [&["run", "--agent", &agent, "--open", &open, "--format", "json"], run, &["go"]].concat();
    let told = scene.run(&words);
    (scene, told)
}

#[test]
fn over_http_and_over_stdio_an_agent_works_in_the_editor() {
    for way in ["http", "stdio", "auto"] {
        let (scene, told) = run_agent_through_proxy(&["--mcp-transport", way], &["--approve", "all"]);
        assert!(told.contains("Done.") && told.ends_with("--- 0\n"), "{way}: {told}");
        assert_eq!(scene.read_file("a.txt"), "one\nwritten by the agent\nthree\n", "{way}");
    }
}

#[test]
fn what_the_user_denies_is_not_done() {
    let (scene, told) = run_agent_through_proxy(&["--mcp-transport", "stdio"], &["--approve", "reads"]);
    assert!(!told.contains("Done."), "{told}");
    assert_eq!(scene.read_file("a.txt"), "one\nsaved\nthree\n");
}

#[test]
fn the_tools_use_the_file_extension_of_the_editor() {
    let steps = r#"
{"calls": [{"name": "mcp__bowline__stat_file", "input": {"path": "a.txt"}}]}
{"expect": "unsaved", "calls": [{"name": "mcp__bowline__write_files", "input": {"files": [{"path": "b.txt", "content": "b\n"}, {"path": "c.txt", "content": "c\n"}]}}]}
{"expect": "Created c.txt", "calls": [{"name": "mcp__bowline__delete_file", "input": {"path": "b.txt"}}]}
{"expect": "Deleted b.txt", "text": "Done."}
"#;
    let trace = std::env::temp_dir().join(format!("bowline-trace-{}", std::process::id()));
    let trace_path = trace.display().to_string();
    let (scene, told) =
        run_script_through_proxy(steps, &["--trace-editor", &trace_path], &["--approve", "all"]);
    let traced = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    assert!(told.contains("Done.") && told.ends_with("--- 0\n"), "{told}");
    assert_eq!((scene.has_file("b.txt"), scene.read_file("c.txt").as_str()), (false, "c\n"));
    for method in ["_bowline/fs/stat", "_bowline/fs/read", "_bowline/fs/batch"] {
        assert!(traced.contains(method), "{method} was not called: {traced}");
    }
}

#[test]
fn the_file_extension_of_the_editor_is_passed_on_to_the_agent() {
    let steps = r#"
{"calls": [{"name": "write_files", "input": {"files": [{"path": "b.txt", "content": "b\n"}, {"path": "c.txt", "content": "c\n"}]}}]}
{"expect": "Created c.txt", "text": "Done."}
"#;
    let trace = std::env::temp_dir().join(format!("bowline-passed-{}", std::process::id()));
    let trace_path = trace.display().to_string();
    let (scene, told) =
        run_script_through_proxy(steps, &["--no-mcp", "--trace", &trace_path], &["--approve", "all"]);
    let traced = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    assert!(told.contains("Done.") && told.ends_with("--- 0\n"), "{told}");
    assert_eq!((scene.read_file("b.txt").as_str(), scene.read_file("c.txt").as_str()), ("b\n", "c\n"));
    assert!(traced.contains("_bowline/fs/batch"), "{traced}");
}

#[test]
fn rules_apply_to_the_file_extension_of_the_editor() {
    let write = r#"{"calls": [{"name": "write_files", "input": {"files": [{"path": "b.txt", "content": "b\n"}, {"path": "c.txt", "content": "c\n"}]}}]}"#;
    for (preset, expected, is_written) in
        [("ask", "Created c.txt", true), ("read-only", "the user's settings deny it", false)]
    {
        let steps = format!("{write}\n{{\"expect\": \"{expected}\", \"text\": \"Done.\"}}\n");
        let proxy = ["--no-mcp", "--policy", preset];
        let (scene, told) = run_script_through_proxy(&steps, &proxy, &["--approve", "all"]);
        assert!(told.contains("Done."), "{preset}: {told}");
        assert_eq!((scene.has_file("b.txt"), scene.has_file("c.txt")), (is_written, is_written));
    }
}
