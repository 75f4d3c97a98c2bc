//! The files of the page, embedded and compressed.
//!
//! The page is `/`. Everything else is below `/assets/VERSION/`, where the version is a hash of all files: such an
//! address never changes its content, so browsers keep it.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

#[cfg(test)]
mod tests;

/// One embedded file.
#[derive(Debug)]
struct Asset {
    name: &'static str,
    plain: &'static [u8],
    packed: &'static [u8],
}

mod table {
    use super::Asset;
    include!(concat!(env!("OUT_DIR"), "/assets.rs"));
}

/// The page.
const PAGE: &str = "index.html";
/// The files that browsers look for at the root.
const ROOT_FILES: [&str; 3] = ["favicon.svg", "manifest.webmanifest", "sw.js"];

/// Where the files come from.
#[derive(Debug, Clone, Default)]
pub enum AssetSource {
    /// The program.
    #[default]
    Embedded,
    /// A directory, for work on the page itself.
    Directory(PathBuf),
}

/// An address, as the file that it names.
#[derive(Debug, PartialEq, Eq)]
struct AssetPath<'a> {
    name: &'a str,
    version: Option<&'a str>,
}

impl<'a> AssetPath<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        if path == "/" {
            return Some(Self { name: PAGE, version: None });
        }
        let name = path.strip_prefix('/')?;
        if ROOT_FILES.contains(&name) {
            return Some(Self { name, version: None });
        }
        let (version, name) = name.strip_prefix("assets/")?.split_once('/')?;
        (name != PAGE).then_some(Self { name, version: Some(version) })
    }
}

impl AssetSource {
    /// Answers a request for a file of the page.
    pub(crate) fn serve(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Response {
        let missing = || (StatusCode::NOT_FOUND, "there is nothing here\n").into_response();
        let Some(path) = AssetPath::parse(uri.path()) else { return missing() };
        if !matches!(*method, Method::GET | Method::HEAD) {
            let allowed = [(header::ALLOW, "GET, HEAD")];
            return (StatusCode::METHOD_NOT_ALLOWED, allowed, "use GET\n").into_response();
        }
        match self {
            Self::Embedded => serve_embedded(&path, headers).unwrap_or_else(missing),
            Self::Directory(directory) => serve_from_disk(directory, &path).unwrap_or_else(missing),
        }
    }
}

fn serve_embedded(path: &AssetPath<'_>, headers: &HeaderMap) -> Option<Response> {
    if path.version.is_some_and(|version| version != table::VERSION) {
        return None;
    }
    let asset = table::FILES.iter().find(|asset| asset.name == path.name)?;
    let cache = if path.version.is_some() { "public, max-age=31536000, immutable" } else { "no-cache" };
    let tag = format!("W/\"{}\"", table::VERSION);
    let is_known = text_of(headers, header::IF_NONE_MATCH)
        .is_some_and(|known| known.split(',').any(|known| known.trim() == tag));
    let takes_gzip = text_of(headers, header::ACCEPT_ENCODING)
        .is_some_and(|accepted| accepted.split(',').any(|accepted| accepted.trim().starts_with("gzip")));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else if takes_gzip && asset.packed.len() < asset.plain.len() {
        ([(header::CONTENT_ENCODING, "gzip")], asset.packed).into_response()
    } else {
        asset.plain.into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(path.name)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).ok()?);
    Some(response)
}

fn serve_from_disk(directory: &Path, path: &AssetPath<'_>) -> Option<Response> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !Path::new(path.name).components().all(is_plain) {
        return None;
    }
    let content = std::fs::read(directory.join(path.name)).ok()?;
    let content = match String::from_utf8(content) {
        // As the build does it.
        Ok(text) if path.name == PAGE => text.replace("\"/assets/", "\"/assets/dev/").into_bytes(),
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    let headers = [(header::CONTENT_TYPE, media_type(path.name)), (header::CACHE_CONTROL, "no-store")];
    Some((headers, Cow::<'static, [u8]>::Owned(content)).into_response())
}

/// Returns the media type of a file, by the end of its name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("webmanifest") => "application/manifest+json",
        Some("json") => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

fn text_of(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
