//! Checks of models and keys: which model would be used, and why; which provider has a key, and from where. Keys are
//! never shown.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use bowline_agent::model::catalogue::{CatalogueOptions, ModelCatalogue};
use bowline_agent::model::keys::{KeySource, Keyring};
use bowline_agent::model::offline;
use bowline_agent::model::provider::Provider;

use super::report::ReportSection;
use crate::agent::{base_urls_from_env, load_keyring};
use bowline_client::environment::UserDirs;

/// The time limit for a server to answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks keys and models. `configured` is the model that `config.toml` names.
pub(super) async fn check_models(dirs: &UserDirs, configured: Option<&str>, online: bool) -> ReportSection {
    let mut section = ReportSection::new("Models and keys");
    let (keys, base_urls) = (load_keyring(dirs), base_urls_from_env());
    let models = ModelCatalogue::new(CatalogueOptions {
        keys: keys.clone(),
        base_urls: base_urls.clone(),
        ..CatalogueOptions::default()
    });
    report_default_model(&mut section, &models, &keys, configured);
    for provider in Provider::ALL {
        let custom_url = base_urls.get(&provider).map(|url| url.trim()).filter(|url| !url.is_empty());
        let url = custom_url.or(provider.default_base_url());
        let location = match custom_url {
            Some(url) => format!("; at {} (from {})", redact_url(url), provider.url_variable()),
            None => String::new(),
        };
        let name = provider.id();
        match keys.key(provider) {
            Ok(Some((_, KeySource::Provided))) => {
                section.add_ok(format!("{name}: key from {}{location}", provider.key_variable()));
            }
            Ok(Some((_, KeySource::Stored))) => {
                section.add_ok(format!("{name}: key from {}{location}", dirs.keys_file().display()));
            }
            Ok(None) if provider.needs_key() => {
                section.add_info(format!(
                    "{name}: no key; set {} or run `bowline agent --login {name}`",
                    provider.key_variable()
                ));
            }
            Ok(None) if url.is_none() => {
                section
                    .add_info(format!("{name}: needs no key, but a place: set {}", provider.url_variable()));
            }
            Ok(None) => {
                section.add_info(format!("{name}: needs no key{location}"));
            }
            // The reason is reported above.
            Err(_) => {
                section.add_info(format!("{name}: no key that can be used"));
            }
        }
        let should_probe = online && (keys.providers().contains_key(&provider) || !provider.needs_key());
        if let Some(url) = url.filter(|_| should_probe) {
            check_server(&mut section, provider, url).await;
        }
    }
    section
}

/// Reports which model is used if the command line names none.
fn report_default_model(
    section: &mut ReportSection,
    models: &ModelCatalogue,
    keys: &Keyring,
    configured: Option<&str>,
) {
    let name = match configured.map_or_else(|| models.default_name(), |name| Ok(name.to_owned())) {
        Ok(name) => {
            if let Some(problem) = keys.problem() {
                section.add_warning(problem.to_string(), "");
            }
            name
        }
        Err(error) => {
            section.add_broken(format!("no model can be chosen: {error}"), "or name one with --model");
            return;
        }
    };
    let source = Provider::from_id(name.split('/').next().unwrap_or_default()).and_then(|provider| {
        let source = *keys.providers().get(&provider)?;
        Some((provider, source))
    });
    let reason = match source {
        _ if configured.is_some() => "from config.toml".to_owned(),
        Some((provider, KeySource::Provided)) => {
            format!("the first that has a key, from {}", provider.key_variable())
        }
        Some((_, KeySource::Stored)) => "the first that has a key, a stored one".to_owned(),
        None => "there is no key, and it needs none".to_owned(),
    };
    match models.open(&name) {
        Ok(_) => section.add_ok(format!("without --model: {name} ({reason})")),
        Err(error) => section.add_broken(
            format!("without --model: {name} ({reason}), and it cannot be used: {error}"),
            "name another with --model",
        ),
    };
    section.set_summary(format!("{name} ({reason})"));
    if name == offline::NAME {
        section.add_warning(
            "the offline model does plain commands, and writes nothing by itself",
            "set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME",
        );
    }
}

/// Checks whether a server is reachable.
async fn check_server(section: &mut ReportSection, provider: Provider, url: &str) {
    let (target, shown) = (url.to_owned(), redact_url(url));
    let result = bowline_task::spawn_blocking(move || probe_server(&target, provider)).await;
    let result = result.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let name = provider.id();
    match result {
        Ok(outcome) => section.add_ok(format!("{name}: {shown} {outcome}")),
        Err(error) if provider == Provider::Ollama => section.add_warning(
            format!("{name}: {shown}: {error}"),
            "start it with `ollama serve`, or set OLLAMA_HOST to where it is",
        ),
        Err(error) => section.add_warning(
            format!("{name}: {shown}: {error}"),
            format!("look at the network, a proxy, or {}", provider.url_variable()),
        ),
    };
}

/// Connects to a server, and asks an Ollama server for its version.
fn probe_server(url: &str, provider: Provider) -> std::io::Result<String> {
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no address of a server");
    // Ollama's own variable may lack a scheme.
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let default_port = match scheme {
        "https" => 443,
        _ if provider == Provider::Ollama && !url.contains("://") => 11434,
        _ => 80,
    };
    let address = if has_port { authority.to_owned() } else { format!("{authority}:{default_port}") };
    let address = address.to_socket_addrs().map_err(|_| invalid())?.next().ok_or_else(invalid)?;
    let mut stream = TcpStream::connect_timeout(&address, SERVER_TIMEOUT)?;
    if provider != Provider::Ollama || scheme != "http" {
        return Ok("can be reached".to_owned());
    }
    stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
    stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
    stream.write_all(format!("GET /api/version HTTP/1.0\r\nHost: {authority}\r\n\r\n").as_bytes())?;
    let mut response = Vec::new();
    stream.take(4096).read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let version = serde_json::from_str::<serde_json::Value>(body).ok();
    let version = version.and_then(|body| Some(body.get("version")?.as_str()?.to_owned()));
    match version {
        Some(version) => Ok(format!("answers: Ollama {version}")),
        None => Err(std::io::Error::other("something answers there that is no Ollama")),
    }
}

/// Returns a URL without parts that may be secret.
fn redact_url(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |index| rest.split_at(index));
            format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or_default())
        }
        None => bare.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_an_address_is_shown() {
        assert_eq!(redact_url("https://user:secret@host:1/v1?key=secret#x"), "https://host:1/v1");
        assert_eq!(redact_url("user:secret@host:1"), "host:1");
        assert_eq!(redact_url("http://h"), "http://h");
    }
}
