//! Tests of `bowline serve`: tokens, usage, and the life of the process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use test_support::own_server::OwnServer;
use test_support::postgres::TestPostgres;

use crate::fixture::{CliFixture, bowline};

#[test]
fn tokens_are_made_listed_and_removed() {
    let scene = CliFixture::new();
    let made = scene.run(&["serve", "token", "add", "laptop"]);
    let token = made.lines().find(|line| line.starts_with("bow_")).unwrap();
    assert_eq!(token.len(), "bow_".len() + 16 + 1 + 64, "{token}");
    scene.run(&["serve", "token", "add", "ci", "--role", "observer", "--expires", "30"]);
    let output = scene.run_all(&[
        &["serve", "token", "list"],
        &["serve", "token", "add", "laptop"],
        &["serve", "token", "add", "a b"],
        &["serve", "token", "add", "x", "--role", "root"],
        &["serve", "token", "remove", "laptop"],
        &["serve", "token", "remove", "laptop"],
        &["serve", "token", "remove", "ci"],
        &["serve", "token", "list"],
    ]);
    expect![[r#"
        $ bowline serve token list
        ci                       observer  expires WHEN
        laptop                   user
        --- 0
        $ bowline serve token add laptop
        --- stderr
        bowline: there is a token named laptop already; remove it first, or choose another name
        --- 2
        $ bowline serve token add a b
        --- stderr
        bowline: a name has 1 to 64 letters, digits, dots, hyphens or underscores
        --- 2
        $ bowline serve token add x --role root
        --- stderr
        bowline: invalid value 'root' for '--role <ROLE>' [possible values: admin, user, observer] (see --help)
        --- 2
        $ bowline serve token remove laptop
        --- 0
        $ bowline serve token remove laptop
        --- stderr
        bowline: there is no token named laptop; `bowline serve token list` lists them
        --- 2
        $ bowline serve token remove ci
        --- 0
        $ bowline serve token list
        No tokens. Make one with `bowline serve token add NAME`.
        --- 0
    "#]].assert_eq(&output);
}

#[test]
fn what_would_be_unsafe_is_refused() {
    let scene = CliFixture::new();
    scene.write_file("not-a-key.pem", "hello");
    let output = scene.run_all(&[
        &["serve", "--listen", "0.0.0.0:0"],
        &["serve", "--listen", "[::]:0"],
        &["serve", "--listen", "0.0.0.0:0", "--tls-cert", "not-a-key.pem", "--tls-key", "not-a-key.pem"],
        &["serve", "--tls-cert", "not-a-key.pem"],
        &["serve", "--root", "absent"],
        &["serve", "--offer", "unknown"],
        &["serve", "--transport", "stdio", "--", "some-agent"],
        &["serve", "--transport", "stdio"],
        &["serve", "--listen", "localhost"],
        &["serve", "--origin", "example.com"],
        &["serve", "--", "no-such-agent", "acp"],
        &["serve", "token", "add", "x", "--expires", "tomorrow"],
    ]);
    expect![[r#"
        $ bowline serve --listen 0.0.0.0:0
        --- stderr
        bowline: 0.0.0.0:0 is reachable from other machines, and without TLS everyone on the way could read the tokens: give --tls-cert and --tls-key, or --behind-proxy if a proxy in front adds TLS
        --- 2
        $ bowline serve --listen [::]:0
        --- stderr
        bowline: [::]:0 is reachable from other machines, and without TLS everyone on the way could read the tokens: give --tls-cert and --tls-key, or --behind-proxy if a proxy in front adds TLS
        --- 2
        $ bowline serve --listen 0.0.0.0:0 --tls-cert not-a-key.pem --tls-key not-a-key.pem
        --- stderr
        bowline: cannot read not-a-key.pem: no items found
        --- 2
        $ bowline serve --tls-cert not-a-key.pem
        --- stderr
        bowline: the following required arguments were not provided: --tls-key <FILE> (see --help)
        --- 2
        $ bowline serve --root absent
        --- stderr
        bowline: --root absent: there is no such directory
        --- 2
        $ bowline serve --offer unknown
        --- stderr
        bowline: there is no agent unknown in $HOME/.config/bowline/config.toml
        --- 2
        $ bowline serve --transport stdio -- some-agent
        --- stderr
        bowline: for stdin and stdout, start the agent's command itself
        --- 2
        $ bowline serve --transport stdio
        --- 0
        $ bowline serve --listen localhost
        --- stderr
        bowline: invalid value 'localhost' for '--listen <ADDRESS>': give an IP address and a port, such as 127.0.0.1:8790 (see --help)
        --- 2
        $ bowline serve --origin example.com
        --- stderr
        bowline: invalid value 'example.com' for '--origin <ORIGIN>': an origin has a scheme and a host, and no path: https://example.com (see --help)
        --- 2
        $ bowline serve -- no-such-agent acp
        --- stderr
        bowline: cannot start the agent no-such-agent: there is no such program
        --- 2
        $ bowline serve token add x --expires tomorrow
        --- stderr
        bowline: invalid value 'tomorrow' for '--expires <DAYS>': give a number of days from 1 to 65535, such as 90 (see --help)
        --- 2
    "#]].assert_eq(&output);
}

#[test]
fn a_log_of_json_has_nothing_else() {
    let scene = CliFixture::new();
    let mut command = scene.command(&["serve", "--listen", "localhost:0", "--log-format", "json"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("Serving on http://").and_then(|line| line.strip_suffix("/acp"));
    // Once it answers, it also waits for signals.
    let mut health = TcpStream::connect(address.unwrap()).unwrap();
    health.write_all(b"GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
    health.read_to_end(&mut Vec::new()).unwrap();
    let id = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    let log = String::from_utf8(output.stderr).unwrap();
    let entries = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{log}")));
    let shown = entries.map(|entry: Value| format!("{} {}", entry["level"], entry["fields"]["message"]));
    expect![[r#"
        "WARN" "no client can connect yet: make a token with `bowline serve token add NAME`"
        "INFO" "stopping: no new work is accepted, and running turns may end""#]]
    .assert_eq(&shown.collect::<Vec<_>>().join("\n"));
}

/// The systemd unit and the container file start the server with options that it knows.
#[test]
fn the_files_for_operators_use_options_that_exist() {
    let scene = CliFixture::new();
    let unit = include_str!("../../contrib/bowline.service");
    let unit = unit.lines().find_map(|line| line.strip_prefix("ExecStart=%h/.local/bin/bowline ")).unwrap();
    let unit = unit.split(' ').map(|word| word.replace("%h/projects", ".")).collect::<Vec<_>>();
    let container = include_str!("../../contrib/Containerfile");
    let container = container.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let container: Vec<String> = serde_json::from_str(container).unwrap();
    for command in [unit, container] {
        // The log of a server that starts is not of interest: it does not get that far.
        let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
        words.extend(["--root", "absent"]);
        let output = scene.run(&words);
        assert!(output.contains("there is no such directory"), "{command:?}: {output}");
    }
}

#[test]
fn a_store_is_a_directory() {
    let scene = CliFixture::new();
    let file = scene.project().join("store.db");
    std::fs::write(&file, "").unwrap();
    let refused = scene.run(&["serve", "token", "list", "--store", file.to_str().unwrap()]);
    assert!(refused.contains("store.db is a file; --store takes a directory"), "{refused}");
    let refused = scene.run(&["serve", "token", "list", "--store", "mysql://me:secret@db/bowline"]);
    assert!(
        refused.contains("cannot store sessions at mysql://; give a directory, or a PostgreSQL"),
        "{refused}"
    );
    assert!(!refused.contains("secret") && !scene.project().join("mysql:").exists(), "{refused}");
    let made = scene.run(&["serve", "token", "add", "ci", "--store", "new/store"]);
    assert!(made.contains("bow_"), "{made}");
    assert!(scene.project().join("new/store").is_dir());
}

#[test]
fn a_store_has_one_server_and_a_signal_ends_it() {
    let scene = CliFixture::new();
    let server = OwnServer::start(&bowline(), &scene.home(), &scene.project(), "127.0.0.1:0", &[]).unwrap();
    let state = scene.home().join("state/bowline/serve");
    let second = scene.run(&["serve", "--store", state.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(second.contains("another `bowline serve` uses the store"), "{second}");
    let taken = scene.run(&["serve", "--listen", server.address()]);
    assert!(taken.contains("cannot listen on"), "{taken}");
    assert!(server.terminate().unwrap());
}

#[test]
fn a_database_is_migrated_and_its_servers_are_shown() {
    let Some(postgres) = TestPostgres::start() else { return };
    let scene = CliFixture::new();
    let database = postgres.create_database();
    let run = |arguments: &[&str], store: &str| {
        let mut command = scene.command(arguments);
        command.env("BOWLINE_STORE", store);
        let output = scene.run_command(command, "");
        let place = postgres.directory().display().to_string();
        format!("$ bowline {}\n{}", arguments[..2].join(" "), scene.describe_output(&output))
            .replace(&place, "SOCKET")
    };
    let url = postgres.url(&database);
    let mut output = run(&["serve", "status"], &url);
    output += &run(&["serve", "migrate"], &url);
    output += &run(&["serve", "migrate"], &url);
    assert!(run(&["serve", "token", "add", "ci"], &url).contains("\nbow_"));
    output += &run(&["serve", "token", "list"], &url);
    output += &run(&["serve", "status"], &url);
    let wrong = "postgres://me:secret@localhost:1/bowline";
    output += &run(&["serve", "status"], wrong);
    output += &run(&["serve", "migrate"], "postgres://me:secret@host/bowline?sslmode=secret");
    output += &run(&["serve", "token", "list", "--store", "postgres://me:secret@/bowline"], "");
    output += &run(&["serve", "status", "--store", wrong], "");
    postgres.run(&database, "UPDATE bowline_schema SET version = 7");
    output += &run(&["serve", "--listen", "127.0.0.1:0"], &url);
    output += &run(&["serve", "status"], &url);
    assert!(!output.contains("secret"), "{output}");
    expect![[r#"
        $ bowline serve status
        Store      SOCKET/test_0
        Schema     none yet: run `bowline serve migrate`, or start a server
        Delivery   notifications
        --- 0
        $ bowline serve migrate
        Migrated the schema of SOCKET/test_0 from version 0 to version 3.
        --- 0
        $ bowline serve migrate
        The schema of SOCKET/test_0 has version 3: nothing to do.
        --- 0
        $ bowline serve token
        ci                       user
        --- 0
        $ bowline serve status
        Store      SOCKET/test_0
        Schema     3
        Delivery   notifications
        Sessions   0
        Events     0
        --- 0
        $ bowline serve status
        --- stderr
        bowline: PostgreSQL (localhost/bowline): error connecting to server: Connection refused (os error 111)
        --- 1
        $ bowline serve migrate
        --- stderr
        bowline: --store: this is not a PostgreSQL address: invalid connection string: invalid value for option `sslmode`; write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require
        --- 2
        $ bowline serve token
        --- stderr
        bowline: --store: the PostgreSQL address names no host; for a local socket, write postgres:///DATABASE?host=/run/postgresql
        --- 2
        $ bowline serve status
        --- stderr
        bowline: other users of this machine can see the password in --store; give the address in BOWLINE_STORE
        bowline: PostgreSQL (localhost/bowline): error connecting to server: Connection refused (os error 111)
        --- 1
        $ bowline serve --listen
        --- stderr
        bowline: the database has version 7 of the schema, and this program knows versions up to 3: update bowline on this machine
        --- 1
        $ bowline serve status
        Store      SOCKET/test_0
        Schema     7; this program has 3
        Delivery   notifications
        --- 0
    "#]].assert_eq(&output);

    postgres.run(&database, "UPDATE bowline_schema SET version = 2");
    let server = OwnServer::start_shared(&bowline(), &scene.home(), &scene.project(), &url).unwrap();
    let status = run(&["serve", "status", "--json"], &url);
    let json: serde_json::Value =
        serde_json::from_str(&status[status.find('{').unwrap()..=status.rfind('}').unwrap()]).unwrap();
    assert_eq!((&json["servers"][0]["sessions"], &json["delivery"]), (&0.into(), &"notifications".into()));
    assert!(server.terminate().unwrap());
    assert!(!run(&["serve", "status"], &url).contains("Server"), "a server that stops leaves");
    let file = run(&["serve", "status"], "");
    assert!(file.contains("Sessions   0"), "{file}");
}

/// The connection to a database uses TLS, and the database's certificate must be trusted.
#[test]
fn the_certificate_of_a_database_is_verified() {
    let Some(mut postgres) = TestPostgres::start() else { return };
    postgres.restart_with_tls();
    let scene = CliFixture::new();
    let url = postgres.tcp_url(&postgres.create_database());
    let run = |sslmode: &str, trusted: Option<&std::path::Path>| {
        let mut command = scene.command(&["serve", "migrate"]);
        command.env("BOWLINE_STORE", format!("{url}?sslmode={sslmode}")).env_remove("SSL_CERT_DIR");
        match trusted {
            Some(file) => command.env("SSL_CERT_FILE", file),
            None => command.env_remove("SSL_CERT_FILE"),
        };
        let output = scene.run_command(command, "");
        format!("{sslmode}: {}", scene.describe_output(&output))
    };
    let certificate = postgres.certificate();
    let mut output = run("require", None);
    output += &run("verify-full", None);
    output += &run("disable", Some(&certificate));
    output += &run("require", Some(&certificate));
    output += &run("verify-full", Some(&certificate));
    let wrong_name = postgres.tcp_url("test_0").replace("127.0.0.1", "localhost") + "?sslmode=require";
    let mut command = scene.command(&["serve", "migrate"]);
    command.env("BOWLINE_STORE", wrong_name).env("SSL_CERT_FILE", &certificate);
    output += &scene.describe_output(&scene.run_command(command, ""));
    expect![[r#"
        require: --- stderr
        bowline: PostgreSQL (127.0.0.1/test_0): error performing TLS handshake: invalid peer certificate: UnknownIssuer; if the database is yours, add its certificate authority to this system or name the file in SSL_CERT_FILE
        --- 1
        verify-full: --- stderr
        bowline: PostgreSQL (127.0.0.1/test_0): error performing TLS handshake: invalid peer certificate: UnknownIssuer; if the database is yours, add its certificate authority to this system or name the file in SSL_CERT_FILE
        --- 1
        disable: --- stderr
        bowline: PostgreSQL (127.0.0.1/test_0): no pg_hba.conf entry for host "127.0.0.1", user "postgres", database "test_0", no encryption
        --- 1
        require: Migrated the schema of 127.0.0.1/test_0 from version 0 to version 3.
        --- 0
        verify-full: The schema of 127.0.0.1/test_0 has version 3: nothing to do.
        --- 0
        --- stderr
        bowline: PostgreSQL (localhost/test_0): error performing TLS handshake: invalid peer certificate: certificate not valid for name "localhost"; certificate is only valid for IpAddress(127.0.0.1); if the database is yours, add its certificate authority to this system or name the file in SSL_CERT_FILE
        --- 1
    "#]].assert_eq(&output);
}
