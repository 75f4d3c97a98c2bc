//! Which model would be used, and why; which provider has a key, and from where. No key is ever shown.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use bowline_agent::keys::{Keyring, Source};
use bowline_agent::model::catalogue::{Models, ModelsSettings};
use bowline_agent::model::offline;
use bowline_agent::model::provider::Provider;

use super::report::Section;
use crate::agent::{base_urls, keyring};
use crate::places::Places;

/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at keys and models. `configured` is the model that `config.toml` names.
pub(super) async fn look(places: &Places, configured: Option<&str>, online: bool) -> Section {
    let mut section = Section::new("Models and keys");
    let (keys, base_urls) = (keyring(places), base_urls());
    let models = Models::new(ModelsSettings {
        keys: keys.clone(),
        base_urls: base_urls.clone(),
        ..ModelsSettings::default()
    });
    chosen(&mut section, &models, &keys, configured);
    for provider in Provider::ALL {
        let given = base_urls.get(&provider).map(|url| url.trim()).filter(|url| !url.is_empty());
        let url = given.or(provider.base_url());
        let place = match given {
            Some(url) => format!("; at {} (from {})", safe(url), provider.url_variable()),
            None => String::new(),
        };
        let name = provider.id();
        match keys.key(provider) {
            Ok(Some((_, Source::Given))) => {
                section.well(format!("{name}: key from {}{place}", provider.variable()));
            }
            Ok(Some((_, Source::Stored))) => {
                section.well(format!("{name}: key from {}{place}", places.keys().display()));
            }
            Ok(None) if provider.needs_key() => {
                section.plain(format!(
                    "{name}: no key; set {} or run `bowline agent --login {name}`",
                    provider.variable()
                ));
            }
            Ok(None) if url.is_none() => {
                section.plain(format!("{name}: needs no key, but a place: set {}", provider.url_variable()));
            }
            Ok(None) => {
                section.plain(format!("{name}: needs no key{place}"));
            }
            // Why is said above.
            Err(_) => {
                section.plain(format!("{name}: no key that can be used"));
            }
        }
        let wanted = online && (keys.providers().contains_key(&provider) || !provider.needs_key());
        if let Some(url) = url.filter(|_| wanted) {
            reach(&mut section, provider, url).await;
        }
    }
    section
}

/// Says which model is used if the command line names none.
fn chosen(section: &mut Section, models: &Models, keys: &Keyring, configured: Option<&str>) {
    let name = match configured.map_or_else(|| models.default_name(), |name| Ok(name.to_owned())) {
        Ok(name) => {
            if let Some(problem) = keys.problem() {
                section.lacking(problem.to_string(), "");
            }
            name
        }
        Err(error) => {
            section.broken(format!("no model can be chosen: {error}"), "or name one with --model");
            return;
        }
    };
    let source = Provider::of(name.split('/').next().unwrap_or_default()).and_then(|provider| {
        let source = *keys.providers().get(&provider)?;
        Some((provider, source))
    });
    let why = match source {
        _ if configured.is_some() => "from config.toml".to_owned(),
        Some((provider, Source::Given)) => format!("the first that has a key, from {}", provider.variable()),
        Some((_, Source::Stored)) => "the first that has a key, a stored one".to_owned(),
        None => "there is no key, and it needs none".to_owned(),
    };
    match models.open(&name) {
        Ok(_) => section.well(format!("without --model: {name} ({why})")),
        Err(error) => section.broken(
            format!("without --model: {name} ({why}), and it cannot be used: {error}"),
            "name another with --model",
        ),
    };
    section.summary(format!("{name} ({why})"));
    if name == offline::NAME {
        section.lacking(
            "the offline model does plain commands, and writes nothing by itself",
            "set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME",
        );
    }
}

/// Asks whether a server is there.
async fn reach(section: &mut Section, provider: Provider, url: &str) {
    let (asked, shown) = (url.to_owned(), safe(url));
    let found = tokio::task::spawn_blocking(move || answers(&asked, provider)).await;
    let found = found.unwrap_or_else(|ended| Err(std::io::Error::other(ended)));
    let name = provider.id();
    match found {
        Ok(told) => section.well(format!("{name}: {shown} {told}")),
        Err(error) if provider == Provider::Ollama => section.lacking(
            format!("{name}: {shown}: {error}"),
            "start it with `ollama serve`, or set OLLAMA_HOST to where it is",
        ),
        Err(error) => section.lacking(
            format!("{name}: {shown}: {error}"),
            format!("look at the network, a proxy, or {}", provider.url_variable()),
        ),
    };
}

/// Connects to a server, and asks an Ollama for its version.
fn answers(url: &str, provider: Provider) -> std::io::Result<String> {
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no address of a server");
    // Ollama's own variable may have no scheme.
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let usual = match scheme {
        "https" => 443,
        _ if provider == Provider::Ollama && !url.contains("://") => 11434,
        _ => 80,
    };
    let address = if has_port { authority.to_owned() } else { format!("{authority}:{usual}") };
    let address = address.to_socket_addrs().map_err(|_| invalid())?.next().ok_or_else(invalid)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    if provider != Provider::Ollama || scheme != "http" {
        return Ok("can be reached".to_owned());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /api/version HTTP/1.0\r\nHost: {authority}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let version = serde_json::from_str::<serde_json::Value>(body).ok();
    let version = version.and_then(|body| Some(body.get("version")?.as_str()?.to_owned()));
    match version {
        Some(version) => Ok(format!("answers: Ollama {version}")),
        None => Err(std::io::Error::other("something answers there that is no Ollama")),
    }
}

/// Returns an address without what may be a secret in it.
fn safe(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
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
        assert_eq!(safe("https://user:secret@host:1/v1?key=secret#x"), "https://host:1/v1");
        assert_eq!(safe("user:secret@host:1"), "host:1");
        assert_eq!(safe("http://h"), "http://h");
    }
}
