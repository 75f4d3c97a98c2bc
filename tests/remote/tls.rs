//! The client over TLS, and the version of HTTP that it uses then.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bowline_serve::http::load_tls;
use serde_json::json;
use test_support::certificate::write_certificate;
use test_support::own_server::OwnServer;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::caller::Caller;
use crate::programs::build_program;
use crate::servers::{initialize, is_answer, request, until};

/// Ends TLS in front of a server, and notes what each connection uses.
struct TlsTerminator {
    address: String,
    certificate: PathBuf,
    versions: Arc<Mutex<Vec<String>>>,
}

impl TlsTerminator {
    /// Starts it with a certificate in a directory. It offers these protocols, or those that our server does.
    async fn start(target: &str, place: &Path, protocols: Option<&str>) -> Self {
        let (certificate, key) = (place.join("cert.pem"), place.join("key.pem"));
        drop(write_certificate(&certificate, &key));
        let mut config = (*load_tls(&certificate, &key).unwrap()).clone();
        if let Some(protocols) = protocols {
            config.alpn_protocols = vec![protocols.into()];
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let versions = Arc::new(Mutex::new(Vec::new()));
        let (noted, target) = (Arc::clone(&versions), target.to_owned());
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (acceptor, noted, target) = (acceptor.clone(), Arc::clone(&noted), target.clone());
                tokio::spawn(async move {
                    let client = acceptor.accept(client).await.unwrap();
                    let protocol = client.get_ref().1.alpn_protocol().unwrap_or_default();
                    let protocol = String::from_utf8_lossy(protocol).into_owned();
                    // Such as `POST /acp HTTP/1.1`. HTTP/2 begins with a line like it.
                    let (mut client, mut line) = (BufReader::new(client), String::new());
                    client.read_line(&mut line).await.unwrap();
                    let version = line.split_whitespace().last().unwrap_or_default();
                    noted.lock().unwrap().push(format!("{protocol}: {version}"));
                    let mut server = TcpStream::connect(target).await.unwrap();
                    server.write_all(line.as_bytes()).await.unwrap();
                    // Either may close it at any time.
                    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
                });
            }
        });
        Self { address, certificate, versions }
    }
}

/// Runs a turn with `bowline connect` over TLS, and returns what its connections used.
async fn versions_used(protocols: Option<&str>) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let server = OwnServer::start(&bowline, &home, &project, "127.0.0.1:0", &[]).unwrap();
    let network = TlsTerminator::start(server.address(), place.path(), protocols).await;
    let url = format!("https://{}", network.address);
    let caller = Caller::start_program_with_authority(&bowline, &url, server.token(), &network.certificate);
    let mut caller = initialize(caller).await;
    caller.send(request(1, "session/new", json!({ "cwd": project, "mcpServers": [] }))).await;
    let session = until(&mut caller, is_answer(1)).await["result"]["sessionId"].clone();
    let prompt = json!([{ "type": "text", "text": "stream 20" }]);
    caller.send(request(2, "session/prompt", json!({ "sessionId": session, "prompt": prompt }))).await;
    let answer = until(&mut caller, is_answer(2)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    caller.finish().await.unwrap();
    assert!(server.terminate().unwrap());
    network.versions.lock().unwrap().clone()
}

#[tokio::test]
async fn the_client_uses_http_2_if_the_server_offers_it() {
    // One connection carries all requests and event streams.
    assert_eq!(versions_used(None).await, ["h2: HTTP/2.0"]);
}

#[tokio::test]
async fn the_client_uses_http_1_if_the_server_offers_nothing_else() {
    let versions = versions_used(Some("http/1.1")).await;
    // Each event stream takes a connection.
    assert!(versions.len() > 2, "{versions:?}");
    assert!(versions.iter().all(|version| version == "http/1.1: HTTP/1.1"), "{versions:?}");
}
