//! Options of `bowline serve`, seen by clients: `bowline connect`, with and without TLS, and requests as browsers send them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use expect_test::expect;
use serde_json::{Value, json};
use test_support::certificate::write_certificate;

use crate::fixture::CliFixture;

/// A server with its token. It is killed when this is dropped.
struct Server {
    process: Child,
    url: String,
    token: String,
}

impl Server {
    fn start(scene: &CliFixture, options: &[&str]) -> Self {
        let made = scene.run(&["serve", "token", "add", "tester"]);
        let token = made.lines().find(|line| line.starts_with("bow_")).unwrap().to_owned();
        let mut command = scene.command(&[&["serve", "--listen", "127.0.0.1:0"], options].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("Serving on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { process, url, token }
    }

    fn address(&self) -> &str {
        self.url.split("://").nth(1).unwrap().trim_end_matches("/acp")
    }

    /// Sends requests through `bowline connect`, and returns each answer in short.
    fn ask(
        &self,
        scene: &CliFixture,
        scheme: &str,
        trusted: Option<&Path>,
        requests: &[(&str, Value)],
    ) -> String {
        let url = format!("{scheme}://{}", self.address());
        let mut command = scene.command(&["connect", &url]);
        command.env("BOWLINE_TOKEN", &self.token);
        command.envs(trusted.map(|file| ("SSL_CERT_FILE", file)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = command.spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        let mut shown = format!("{scheme}\n");
        for (id, (method, params)) in requests.iter().enumerate() {
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            writeln!(input, "{request}").unwrap();
            let answer = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            let answer = answer.into_iter().find(|message| message["id"] == id).unwrap();
            let outcome = answer["error"]["message"].as_str().unwrap_or("done");
            shown += &format!("{method}: {}\n", outcome.replace(self.address(), "HOST"));
        }
        drop(input);
        client.wait().unwrap();
        shown
    }

    /// Sends a request over TCP, and returns the answer.
    fn exchange(&self, request: &str, headers: &[&str], body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let (host, length) = (self.address(), body.len());
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn new_session(scene: &CliFixture) -> (&'static str, Value) {
    ("session/new", json!({ "cwd": scene.project(), "mcpServers": [] }))
}

#[test]
fn a_server_with_a_certificate_is_used_over_https_and_wss() {
    let scene = CliFixture::new();
    let (certificate, key) = (scene.home().join("cert.pem"), scene.home().join("key.pem"));
    drop(write_certificate(&certificate, &key));
    let (cert, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::start(&scene, &["--tls-cert", cert, "--tls-key", key]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let initialize = ("initialize", json!({ "protocolVersion": 1 }));
    let requests = [initialize.clone(), new_session(&scene)];
    let mut output = String::new();
    for scheme in ["https", "wss"] {
        output += &server.ask(&scene, scheme, Some(&certificate), &requests);
        output += &server.ask(&scene, scheme, None, std::slice::from_ref(&initialize));
    }
    expect![[r#"
        https
        initialize: done
        session/new: done
        https
        initialize: the certificate of https://HOST/acp is not accepted (invalid peer certificate: UnknownIssuer); if the server is yours, add its certificate authority to this system or name the file in SSL_CERT_FILE
        wss
        initialize: done
        session/new: done
        wss
        initialize: the certificate of wss://HOST/acp is not accepted (invalid peer certificate: UnknownIssuer); if the server is yours, add its certificate authority to this system or name the file in SSL_CERT_FILE
    "#]].assert_eq(&output);
}

#[test]
fn a_token_has_the_limits_of_the_options() {
    let scene = CliFixture::new();
    let server = Server::start(&scene, &["--max-sessions", "1", "--max-agents", "1"]);
    let with_files =
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": { "readTextFile": true } } });
    let mut output = String::new();
    let initialize = ("initialize", json!({ "protocolVersion": 1 }));
    output += &server.ask(&scene, "http", None, &[initialize, new_session(&scene), new_session(&scene)]);
    output += &server.ask(&scene, "http", None, &[("initialize", with_files)]);
    expect![[r#"
        http
        initialize: done
        session/new: done
        session/new: tester has 1 open sessions already: close some
        http
        initialize: tester has 1 agents already, one for each kind of client: close clients of other kinds and wait until their agents have stopped, or start the server with a larger --max-agents
    "#]].assert_eq(&output);
}

#[test]
fn a_token_that_sends_too_much_has_to_wait() {
    let scene = CliFixture::new();
    let server = Server::start(&scene, &["--max-rate", "1"]);
    let token = format!("authorization: Bearer {}", server.token);
    let headers = [&*token, "content-type: application/json", "accept: application/json, text/event-stream"];
    let initialize =
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    // Ten at once, and then one in a second, however slow the machine is.
    let mut answers = (0..100).map(|_| server.exchange("POST /acp", &headers, &initialize.to_string()));
    let refused = answers.find(|answer| !answer.starts_with("HTTP/1.1 200 ")).unwrap();
    let shown = |line: &&str| {
        line.starts_with("HTTP/1.1 ") || line.starts_with("retry-after") || line.contains("sends")
    };
    let shown: Vec<&str> = refused.lines().filter(shown).collect();
    expect![[r#"
        HTTP/1.1 429 Too Many Requests
        retry-after: 5
        tester sends more than 1 messages a second"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn a_server_behind_a_proxy_makes_secure_cookies_and_knows_its_pages() {
    let scene = CliFixture::new();
    let server = Server::start(&scene, &["--behind-proxy", "--origin", "https://page.example"]);
    let login = json!({ "token": server.token }).to_string();
    let mut output = String::new();
    for origin in ["https://page.example", "https://other.example"] {
        let answer = server.exchange("POST /login", &[&format!("origin: {origin}")], &login);
        let status = answer.lines().next().unwrap();
        let cookie = answer.lines().find(|line| line.starts_with("set-cookie: "));
        let is_secure = cookie.is_some_and(|cookie| cookie.ends_with("; Secure"));
        let allowed = answer.lines().find(|line| line.starts_with("access-control-allow-origin"));
        output += &format!("{origin}: {status}, secure cookie: {is_secure}, {}\n", allowed.unwrap_or("-"));
    }
    expect![[r#"
        https://page.example: HTTP/1.1 204 No Content, secure cookie: true, access-control-allow-origin: https://page.example
        https://other.example: HTTP/1.1 403 Forbidden, secure cookie: false, -
    "#]].assert_eq(&output);
}
