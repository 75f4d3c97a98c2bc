//! Base URLs of providers, as users write them.

use reqwest::Url;

use crate::model::provider::Provider;

/// Parses a base URL: adds the scheme, the version in its path, and the final slash. A value set for the provider's own
/// tools means the same here.
pub(super) fn parse(provider: Provider, text: &str) -> Result<Url, String> {
    let text = if provider == Provider::Ollama { ollama_host(text.trim()) } else { text.trim().to_owned() };
    let text = if text.contains("://") { text } else { format!("http://{text}") };
    let mut url = Url::parse(&text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("it is not on the web".to_owned());
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/');
    // Some users copy the URL of the request itself.
    let suffixes = ["/chat/completions", "/messages", "/api/chat"];
    let path = suffixes.iter().find_map(|suffix| path.strip_suffix(suffix)).unwrap_or(path);
    let has_version = path.rsplit('/').next().is_some_and(|last| last.starts_with("v1"));
    let path = match provider {
        Provider::Anthropic if !has_version => format!("{path}/v1/"),
        Provider::Gemini if !has_version => format!("{path}/v1beta/"),
        Provider::Compatible if path.is_empty() => "/v1/".to_owned(),
        // Ollama's own API is next to the versioned one.
        Provider::Ollama => format!("{}/", path.strip_suffix("/v1").unwrap_or(path)),
        Provider::Anthropic | Provider::OpenAi | Provider::Gemini | Provider::Compatible => {
            format!("{path}/")
        }
    };
    url.set_path(&path);
    Ok(url)
}

/// Interprets an address as Ollama does its own variable: without a scheme, the default port is Ollama's, and a server
/// that listens on all addresses is reached on this machine.
fn ollama_host(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_bare_v6 = authority.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !is_bare_v6 && !port.ends_with(']') => (host, format!(":{port}")),
        _ if scheme.is_none() => (authority, ":11434".to_owned()),
        _ => (authority, String::new()),
    };
    let host = match host {
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" | "[::]" => "[::1]".to_owned(),
        host if is_bare_v6 => format!("[{host}]"),
        host => host.to_owned(),
    };
    format!("{}://{host}{port}{path}", scheme.unwrap_or("http"))
}

/// Returns the URL of a path below a base URL, with the base's query.
pub(super) fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path()));
    url
}

/// Returns a server's origin, without secrets in the URL.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Returns an address, which need not be a valid URL, without secrets in it.
pub(super) fn redact(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
            format!("{}…@{host}", scheme.unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

/// Returns whether a server is on this machine.
pub(super) fn is_local(url: &Url) -> bool {
    match url.host_str().unwrap_or_default() {
        "localhost" | "[::1]" => true,
        host => host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
    }
}
