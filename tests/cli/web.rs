//! Tests of `bowline web`: its link, its usage, and the life of the process.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use expect_test::expect;

use crate::fixture::{CliFixture, write_script};

/// A running page, killed when this is dropped.
struct Page {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
    ticket: String,
}

impl Page {
    fn start(scene: &CliFixture) -> Self {
        let mut command = scene.command(&["web", "--no-open"]);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let project = scene.project();
        assert_eq!(lines.next().unwrap().unwrap(), format!("The page for {} is at", project.display()));
        let link = lines.next().unwrap().unwrap();
        let (address, ticket) = link.trim().split_once("/#ticket=").unwrap();
        let (address, ticket) = (address.strip_prefix("http://").unwrap().to_owned(), ticket.to_owned());
        Self { process, lines, address, ticket }
    }

    /// Logs a browser in, and returns its cookie.
    fn log_in(&self) -> String {
        let login = self.send("POST", "/login", "", &format!("{{\"ticket\":\"{}\"}}", self.ticket));
        login.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap().to_owned()
    }

    /// Opens an event stream, and returns its lines.
    fn stream(&self, headers: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET /acp HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n{headers}\r\n")
            .unwrap();
        BufReader::new(stream).lines().map(Result::unwrap)
    }

    /// Sends a request, and returns the response.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn a_link_logs_one_browser_in_and_ctrl_c_ends_the_page() {
    let scene = CliFixture::new();
    let mut page = Page::start(&scene);
    assert!(page.send("GET", "/", "", "").contains("<title>Bowline</title>"));
    assert!(page.send("GET", "/api/me", "", "").starts_with("HTTP/1.1 401"));
    let cookie = page.log_in();
    let me = page.send("GET", "/api/me", &format!("Cookie: {cookie}\r\n"), "");
    assert!(me.contains("\"name\":\"local\",\"role\":\"admin\"") && me.contains("\"isLocal\":true"), "{me}");
    let body = format!("{{\"ticket\":\"{}\"}}", page.ticket);
    assert!(page.send("POST", "/login", "", &body).starts_with("HTTP/1.1 401"), "a second login");
    // The same directory has one page.
    let second = scene.run(&["web", "--no-open"]);
    assert!(second.contains("cannot serve the page for") && second.ends_with("--- 1\n"), "{second}");
    let id = rustix::process::Pid::from_raw(i32::try_from(page.process.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert!(page.process.wait().unwrap().success());
    let rest: Vec<String> = page.lines.by_ref().map(Result::unwrap).collect();
    assert_eq!(rest, ["Ctrl-C ends it, Enter prints a new link."]);
    // The browser is still logged in when the page is there again.
    let again = Page::start(&scene);
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let cookie = cookie.replacen(&port(&page.address), &port(&again.address), 1);
    assert!(again.send("GET", "/api/me", &format!("Cookie: {cookie}\r\n"), "").starts_with("HTTP/1.1 200"));
}

/// Starts the page and ends it again. Returns its link, and what it said otherwise.
fn open_once(scene: &CliFixture, arguments: &[&str], browser: &str) -> (String, String) {
    let mut command = scene.command(arguments);
    command.env("BROWSER", browser).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let link = lines.nth(1).unwrap().trim().to_owned();
    // The listener is there before the link, and the signal is waited for after the browser was started.
    let address = link.split('/').nth(2).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
    let id = rustix::process::Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = process.wait_with_output().unwrap();
    (link, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_browser_is_opened_unless_told_not_to() {
    let scene = CliFixture::new();
    let note = "no browser was opened: /nowhere/browser";
    let (_, said) = open_once(&scene, &["web"], "/nowhere/browser");
    assert!(said.contains(note), "{said}");
    let (_, said) = open_once(&scene, &["web", "--no-open"], "/nowhere/browser");
    assert!(!said.contains(note), "{said}");
    let opened = scene.base().join("opened");
    assert!(Command::new("mkfifo").arg(&opened).status().unwrap().success());
    let browser = write_script(
        &scene.base(),
        "browser",
        &format!("#!/bin/sh\nprintf %s \"$1\" > {}\n", opened.display()),
    );
    let shown = std::thread::spawn(move || std::fs::read_to_string(opened).unwrap());
    let (link, _) = open_once(&scene, &["web"], &browser);
    assert_eq!(shown.join().unwrap(), link);
}

#[test]
fn the_agent_runs_commands_after_a_question() {
    let scene = CliFixture::new();
    let page = Page::start(&scene);
    let cookie = format!("Cookie: {}\r\n", page.log_in());
    let headers = format!("Content-Type: application/json\r\n{cookie}");
    let first = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;
    let response = page.send("POST", "/acp", &headers, first);
    let id = response.lines().find_map(|line| line.strip_prefix("acp-connection-id: ")).unwrap();
    let connection = format!("Acp-Connection-Id: {id}\r\n");
    let mut own = page.stream(&format!("{cookie}{connection}"));
    let new = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "session/new",
        "params": { "cwd": scene.project(), "mcpServers": [] },
    });
    page.send("POST", "/acp", &format!("{headers}{connection}"), &new.to_string());
    let created = own.find_map(|line| line.split("\"sessionId\":\"").nth(1).map(str::to_owned)).unwrap();
    let session = created.split('"').next().unwrap();
    let mut updates = page.stream(&format!("{cookie}{connection}Acp-Session-Id: {session}\r\n"));
    let prompt = serde_json::json!({
        "jsonrpc": "2.0", "id": 2, "method": "session/prompt",
        "params": { "sessionId": session, "prompt": [{ "type": "text", "text": "run make boat" }] },
    });
    page.send("POST", "/acp", &format!("{headers}{connection}"), &prompt.to_string());
    let question =
        updates.find(|line| line.contains("session/request_permission") || line.contains("stopReason"));
    assert!(question.unwrap().contains("make boat"));
}

#[test]
fn other_machines_are_refused() {
    let scene = CliFixture::new();
    expect![[r#"
        $ bowline web --listen 0.0.0.0:0
        --- stderr
        bowline: 0.0.0.0:0 is reachable from other machines: use `bowline serve`, with TLS and tokens
        --- 2
        $ bowline web --cwd absent
        --- stderr
        bowline: cannot use absent: No such file or directory (os error 2)
        --- 2
        $ bowline web --listen nowhere
        --- stderr
        bowline: invalid value 'nowhere' for '--listen <ADDRESS>': invalid socket address syntax (see --help)
        --- 2
    "#]]
    .assert_eq(&scene.run_all(&[
        &["web", "--listen", "0.0.0.0:0"],
        &["web", "--cwd", "absent"],
        &["web", "--listen", "nowhere"],
    ]));
}
