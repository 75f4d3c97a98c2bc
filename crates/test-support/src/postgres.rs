//! A PostgreSQL server of a test, in a temporary directory, reached through a Unix socket.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::wait::wait_until;

/// Where distributions keep the programs that are not in `PATH`.
const DISTRIBUTION_DIRECTORY: &str = "/usr/lib/postgresql";
/// Where `cargo xtask peers` installs them, below the root of the repository.
const INSTALLED_DIRECTORY: &str = "target/peers/postgres/lib";
/// Where it unpacks PgBouncer.
const UNPACKED_BOUNCER: &str = "target/peers/pgbouncer";
/// Where they are in the package that it installs.
const PACKAGE_DIRECTORY: &str = "site-packages/pgserver/pginstall/bin";

/// The server. It ends when this is dropped.
#[derive(Debug)]
pub struct TestPostgres {
    directory: tempfile::TempDir,
    programs: PathBuf,
    process: Option<Child>,
    databases: AtomicUsize,
    // Settings besides the usual ones.
    settings: Vec<String>,
    port: u16,
}

/// The port in the name of the socket, unless the server also listens on an address.
const PORT: u16 = 5432;

/// Returns the directory of PostgreSQL's programs, if they are installed.
#[must_use]
pub fn find_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let below = |directory: &Path, rest: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let mut found: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path().join(rest))).collect();
        found.sort();
        found.into_iter().rev()
    };
    let candidates = std::env::split_paths(&path)
        .chain(below(Path::new(DISTRIBUTION_DIRECTORY), "bin"))
        .chain(below(&root.join(INSTALLED_DIRECTORY), PACKAGE_DIRECTORY));
    let is_complete = |directory: &PathBuf| {
        ["initdb", "postgres", "psql"].iter().all(|program| directory.join(program).is_file())
    };
    let found = candidates.into_iter().find(is_complete);
    // A program that is started as another user is not found from this directory.
    found.map(|directory| directory.canonicalize().unwrap_or(directory))
}

impl TestPostgres {
    /// Starts a server; `None` if PostgreSQL is not installed. With `CI` set, that is an error.
    ///
    /// # Panics
    /// Panics if the server does not start.
    #[must_use]
    #[allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
    #[allow(clippy::print_stdout, reason = "a skipped test says so")]
    pub fn start() -> Option<Self> {
        let Some(programs) = find_programs() else {
            assert!(std::env::var_os("CI").is_none(), "PostgreSQL is not installed");
            println!("SKIPPED: PostgreSQL is not installed; run `cargo xtask peers`");
            return None;
        };
        let directory = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        if is_root() {
            let output = Command::new("chown").arg("nobody").arg(directory.path()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let mut server = Self {
            directory,
            programs,
            process: None,
            databases: AtomicUsize::new(0),
            settings: Vec::new(),
            port: PORT,
        };
        let mut initialize = server.command("initdb");
        initialize
            .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        let output = initialize.arg("--pgdata").arg(server.data()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        server.launch();
        Some(server)
    }

    /// Starts the server again, on 127.0.0.1 with TLS, where it accepts encrypted connections only.
    ///
    /// # Panics
    /// Panics if the server does not start.
    #[allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
    pub fn restart_with_tls(&mut self) {
        self.crash();
        let (certificate, key) = (self.certificate(), self.directory.path().join("key.pem"));
        drop(crate::certificate::write_certificate(&certificate, &key));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            let output = Command::new("chown").arg("nobody").arg(&key).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let rules = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
        std::fs::write(self.data().join("pg_hba.conf"), rules).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        self.port = free.local_addr().unwrap().port();
        drop(free);
        self.settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        self.launch();
    }

    /// Returns the file of the server's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }

    /// Returns the address of a database over TCP.
    #[must_use]
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Returns a command that runs one of PostgreSQL's programs, which refuse to run as root.
    fn command(&self, program: &str) -> Command {
        self.command_of(&self.programs.join(program))
    }

    /// Returns a command that runs a program as another user than root.
    fn command_of(&self, program: &Path) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.env("LC_ALL", "C").current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    #[allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
    fn launch(&mut self) {
        let settings =
            ["listen_addresses=", "fsync=off", "shared_buffers=16MB", "max_connections=60", "autovacuum=off"];
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path());
        postgres.args(settings.iter().flat_map(|setting| ["-c", setting]));
        postgres.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        postgres.stdout(Stdio::null()).stderr(log);
        let mut process = postgres.spawn().unwrap();
        wait_until("the start of PostgreSQL", || {
            // After a crash it does not start while a process of the crashed one is left.
            if process.try_wait().unwrap().is_some() {
                process = postgres.spawn().unwrap();
            }
            self.try_run("postgres", "SELECT 1").is_ok()
        });
        self.process = Some(process);
    }

    fn try_run(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = self.command("psql");
        psql.arg("--host").arg(self.directory.path()).arg(format!("--port={}", self.port));
        psql.args(["--username=postgres", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        let output = psql.args(["--dbname", database, "--command", sql]).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs a statement in a database, and returns its rows as text.
    ///
    /// # Panics
    /// Panics if it fails.
    pub fn run(&self, database: &str, sql: &str) -> String {
        self.try_run(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Creates a database, and returns its name.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Returns the address of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let (directory, port) = (self.directory.path().display(), self.port);
        format!("postgres:///{database}?host={directory}&port={port}&user=postgres")
    }

    /// Returns the directory with the socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts the server again.
    pub fn restart(&mut self) {
        self.launch();
    }

    /// Ends the server as a crash would.
    pub fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            let id = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(id) = id {
                // It may have ended by itself.
                rustix::process::kill_process(id, rustix::process::Signal::QUIT).ok();
            }
            let status = process.wait();
            debug_assert!(status.is_ok_and(|status| status.signal().is_none_or(|signal| signal == 3)));
        }
    }
}

/// PgBouncer in transaction mode, in front of a [`TestPostgres`]. It ends when this is dropped.
#[derive(Debug)]
pub struct TestPgBouncer {
    process: Child,
    directory: PathBuf,
}

impl TestPgBouncer {
    /// Starts it; `None` if it is not installed. With `CI` set, that is an error.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    #[allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
    #[allow(clippy::print_stdout, reason = "a skipped test says so")]
    pub fn start(postgres: &TestPostgres) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(UNPACKED_BOUNCER);
        let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), unpacked.join("usr/sbin")]);
        let program =
            directories.map(|directory| directory.join("pgbouncer")).find(|program| program.is_file());
        let Some(program) = program else {
            assert!(std::env::var_os("CI").is_none(), "PgBouncer is not installed");
            println!("SKIPPED: PgBouncer is not installed; run `cargo xtask peers`");
            return None;
        };
        let libraries = std::fs::read_dir(unpacked.join("usr/lib")).into_iter().flatten();
        let libraries = libraries.filter_map(|entry| entry.ok()?.path().canonicalize().ok()).next();
        let (server, directory) = (postgres.directory(), postgres.directory().join("bouncer"));
        let settings = format!(
            "[databases]\n* = host={} user=postgres\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nauth_type = any\n\
             pool_mode = transaction\nunix_socket_dir = {}\nignore_startup_parameters = extra_float_digits\n",
            server.display(),
            directory.display()
        );
        let file = server.join("bouncer.ini");
        std::fs::write(&file, settings).unwrap();
        std::fs::create_dir(&directory).unwrap();
        if is_root() {
            let output = Command::new("chown").arg("nobody").arg(&directory).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let mut command = postgres.command_of(&program.canonicalize().unwrap());
        command.envs(libraries.map(|directory| ("LD_LIBRARY_PATH", directory)));
        let process = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let bouncer = Self { process, directory };
        wait_until("the start of PgBouncer", || bouncer.directory.join(".s.PGSQL.6432").exists());
        Some(bouncer)
    }

    /// Returns the address of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&port=6432&user=postgres", self.directory.display())
    }
}

impl Drop for TestPgBouncer {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        self.crash();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
