//! The shapes of secrets.

/// The beginning of every block of a private key.
pub(super) const PEM_BEGIN: &str = "-----BEGIN ";
/// A user name of at least this length before the host of a URL, without a password, counts as a token.
pub(super) const MIN_TOKEN_USER: usize = 20;
/// Words shorter than this after `Bearer` and its like are ordinary words.
const MIN_CREDENTIAL: usize = 8;

/// The prefixes of tokens, with minimum lengths.
const TOKEN_PREFIXES: &[(&str, usize)] = &[
    ("github_pat_", 30),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("glpat-", 15),
    ("gldt-", 15),
    ("npm_", 20),
    ("pypi-", 30),
    ("hf_", 20),
    ("xoxb-", 15),
    ("xoxp-", 15),
    ("xoxa-", 15),
    ("xoxr-", 15),
    ("xoxs-", 15),
    ("xapp-", 15),
    ("sk-", 20),
    ("sk_live_", 20),
    ("sk_test_", 20),
    ("rk_live_", 20),
    ("dop_v1_", 20),
    ("shpat_", 20),
    ("ya29.", 20),
    ("SG.", 30),
    ("AIza", 35),
    ("lin_api_", 20),
    ("AGE-SECRET-KEY-", 30),
];

/// Returns the length of the token at the start of a word, if it has a known shape.
pub(super) fn token_length(word: &str) -> Option<usize> {
    let has_digit = || word.bytes().any(|byte| byte.is_ascii_digit());
    let known = TOKEN_PREFIXES.iter().any(|(prefix, least)| word.starts_with(prefix) && word.len() >= *least);
    let is_token = (known && has_digit()) || is_aws_key(word) || is_jwt(word);
    is_token.then(|| word.trim_end_matches('.').len())
}

/// Returns whether the word after a scheme is a credential and not just the next word of a sentence.
pub(super) fn is_credential(word: &str) -> bool {
    word == super::REDACTED
        || word.len() >= MIN_CREDENTIAL && word.bytes().any(|byte| !byte.is_ascii_lowercase() && byte != b'.')
}

fn is_aws_key(word: &str) -> bool {
    let id = word.strip_prefix("AKIA").or_else(|| word.strip_prefix("ASIA"));
    id.is_some_and(|id| {
        id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    })
}

/// Returns whether a word is a JSON web token: three parts, of which the first begins with an opening brace in
/// Base64.
fn is_jwt(word: &str) -> bool {
    let mut parts = word.trim_end_matches('.').split('.');
    word.starts_with("eyJ") && parts.by_ref().take(2).all(|part| part.len() >= 4) && parts.next().is_some()
}
