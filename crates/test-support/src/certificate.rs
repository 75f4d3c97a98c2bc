//! A certificate for 127.0.0.1, made for one test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

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

/// Writes a certificate for 127.0.0.1 and its key as PEM files, and returns the certificate in DER.
///
/// # Panics
/// Panics if they cannot be written.
#[must_use]
pub fn write_certificate(certificate_file: &Path, key_file: &Path) -> Vec<u8> {
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
    certificate
}
