//! Tests of the page's files.

use std::collections::BTreeSet;

use super::*;

/// The most bytes that a browser loads before it shows something.
const FIRST_VIEW_BYTES: usize = 150 << 10;

fn find(name: &str) -> &'static Asset {
    table::FILES.iter().find(|asset| asset.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Returns the texts between two marks.
fn between<'t>(text: &'t str, start: &str, end: char) -> Vec<&'t str> {
    text.split(start).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0)).collect()
}

/// Resolves a relative address in a file, as a browser does.
fn resolve(file: &str, address: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in address.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the files that a browser loads with the page: those the page names, and what they import.
fn first_view() -> BTreeSet<String> {
    let page = str::from_utf8(find(PAGE).plain).unwrap();
    let mut pending: Vec<String> = between(page, &format!("\"/assets/{}/", table::VERSION), '"')
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut loaded = BTreeSet::new();
    while let Some(name) = pending.pop() {
        let text = str::from_utf8(find(&name).plain).unwrap();
        if loaded.insert(name.clone()) && name.ends_with(".js") {
            for start in [" from \"", "}from\"", "import \"", "import\""] {
                let imports = between(text, start, '"').into_iter();
                pending.extend(imports.filter(|it| it.starts_with('.')).map(|it| resolve(&name, it)));
            }
        }
    }
    loaded
}

#[test]
fn the_first_view_is_small_and_complete() {
    let files = first_view();
    assert!(files.len() > 5, "{files:?}");
    let size: usize = files.iter().map(|name| find(name).packed.len()).sum();
    let size = size + find(PAGE).packed.len();
    assert!(size < FIRST_VIEW_BYTES, "{size} bytes in {files:?}");
    assert!(!files.iter().any(|name| name.contains("xterm")), "a terminal is loaded when one opens");
}

#[test]
fn addresses_name_files() {
    let name = |path: &'static str| AssetPath::parse(path).map(|path| (path.name, path.version));
    assert_eq!(name("/"), Some((PAGE, None)));
    assert_eq!(name("/sw.js"), Some(("sw.js", None)));
    assert_eq!(name("/assets/v/views/a.js"), Some(("views/a.js", Some("v"))));
    for path in ["", "/x", "/index.html", "/assets", "/assets/", "/assets/app.js", "/assets/v/index.html"] {
        assert_eq!(name(path), None, "{path}");
    }
}

#[test]
fn a_directory_serves_only_what_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("app.js"), "x").unwrap();
    std::fs::write(directory.path().join(PAGE), "<script src=\"/assets/app.js\"></script>").unwrap();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let status = |directory: &Path, path: &'static str| {
        let source = AssetSource::Directory(directory.to_owned());
        source.serve(&Method::GET, &Uri::from_static(path), &HeaderMap::new()).status().as_u16()
    };
    assert_eq!(status(directory.path(), "/"), 200);
    assert_eq!(status(directory.path(), "/assets/dev/app.js"), 200);
    assert_eq!(status(&inner, "/assets/dev/../app.js"), 404);
    assert_eq!(status(&inner, "/assets/dev//etc/passwd"), 404);
}
