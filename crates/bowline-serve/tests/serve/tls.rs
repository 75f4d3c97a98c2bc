//! TLS, with a certificate made here: HTTP/1.1, HTTP/2 and WebSocket.

use std::sync::Arc;

use bowline_serve::http::load_tls;
use bowline_serve::token::Role;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use test_support::certificate::write_certificate;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::http_client;
use crate::support::Server;
use crate::transport::Socket;

#[tokio::test]
async fn http_1_http_2_and_web_sockets_are_served_with_tls() {
    let place = tempfile::tempdir().unwrap();
    let (certificate_file, key_file) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    let certificate = CertificateDer::from(write_certificate(&certificate_file, &key_file));
    let tls = load_tls(&certificate_file, &key_file).unwrap();
    let server = Server::start_with_tls(place.path(), tls).await;
    let token = server.token("me", Role::User).await;
    let builder = || {
        let root = reqwest::Certificate::from_der(&certificate).unwrap();
        reqwest::Client::builder().no_proxy().tls_certs_only([root])
    };
    let versions = [
        (builder().http1_only(), reqwest::Version::HTTP_11),
        // Chosen by ALPN.
        (builder(), reqwest::Version::HTTP_2),
    ];
    for (builder, version) in versions {
        let client = server.connect(http_client(builder), &token, json!({}), json!(null)).await;
        let mut own = client.stream(None, None).await;
        assert_eq!(own.version, version);
        let (session, mut stream) = client.new_session(&mut own, place.path()).await;
        client.prompt(2, &session, "count 1").await;
        assert_eq!(stream.until_response(2).await.len(), 2);
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let address = server.url.strip_prefix("https://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let mut socket = Socket::connect_over(stream, &format!("wss://{address}/acp"), &token).await;
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(socket.until_response(0).await.len(), 1);
    // Without TLS, and with a certificate that the client does not know, there is no connection.
    let plain = http_client(reqwest::Client::builder().no_proxy());
    let health = |url: String| plain.get(format!("{url}/health")).send();
    assert!(health(server.url.replace("https", "http")).await.is_err());
    assert!(health(server.url.clone()).await.is_err());
}
