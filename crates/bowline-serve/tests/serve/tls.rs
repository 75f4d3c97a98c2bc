//! TLS, with a certificate made here: HTTP/1.1, HTTP/2 and WebSocket.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_serve::http::load_tls;
use bowline_serve::token::Role;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Server, http_client};
use crate::transport::Socket;

// The parts of X.509, in DER.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Encodes a value of DER.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = match u8::try_from(content.len()) {
        Ok(length @ 0..=127) => vec![length],
        Ok(length) => vec![0x81, length],
        Err(_) => [&[0x82][..], &u16::try_from(content.len()).unwrap().to_be_bytes()].concat(),
    };
    [&[tag][..], &length, &content].concat()
}

/// Writes a certificate for 127.0.0.1 and its key as PEM files, and returns the certificate.
fn write_certificate(certificate_file: &Path, key_file: &Path) -> CertificateDer<'static> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random).unwrap();
    let algorithm = der(SEQUENCE, &[&der(OBJECT_ID, &[ECDSA_WITH_SHA256])]);
    let common_name =
        der(SEQUENCE, &[&der(OBJECT_ID, &[COMMON_NAME]), &der(UTF8_STRING, &[b"bowline test"])]);
    let name = der(SEQUENCE, &[&der(SET, &[&common_name])]);
    let validity = der(SEQUENCE, &[&der(UTC_TIME, &[b"200101000000Z"]), &der(UTC_TIME, &[b"491231235959Z"])]);
    let key_type = der(SEQUENCE, &[&der(OBJECT_ID, &[EC_PUBLIC_KEY]), &der(OBJECT_ID, &[PRIME256V1])]);
    let public_key = der(SEQUENCE, &[&key_type, &der(BIT_STRING, &[&[0], pair.public_key().as_ref()])]);
    let addresses = der(SEQUENCE, &[&der(0x87, &[&[127, 0, 0, 1]])]);
    let alt_name = der(SEQUENCE, &[&der(OBJECT_ID, &[SUBJECT_ALT_NAME]), &der(OCTET_STRING, &[&addresses])]);
    let extensions = der(0xa3, &[&der(SEQUENCE, &[&alt_name])]);
    let version = der(0xa0, &[&der(INTEGER, &[&[2]])]);
    let serial = der(INTEGER, &[&[1]]);
    let parts = [&version, &serial, &algorithm, &name, &validity, &name, &public_key, &extensions];
    let content = der(SEQUENCE, &parts.map(Vec::as_slice));
    let signature = pair.sign(&random, &content).unwrap();
    let signature = der(BIT_STRING, &[&[0], signature.as_ref()]);
    let certificate = der(SEQUENCE, &[&content, &algorithm, &signature]);
    let pem = |kind: &str, der: &[u8]| {
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(der))
    };
    std::fs::write(certificate_file, pem("CERTIFICATE", &certificate)).unwrap();
    std::fs::write(key_file, pem("PRIVATE KEY", key.as_ref())).unwrap();
    certificate.into()
}

#[tokio::test]
async fn http_1_http_2_and_web_sockets_are_served_with_tls() {
    let place = tempfile::tempdir().unwrap();
    let (certificate_file, key_file) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    let certificate = write_certificate(&certificate_file, &key_file);
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
