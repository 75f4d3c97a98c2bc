//! Tests of model names.

use std::fmt::Write as _;

use expect_test::expect;

use super::*;

fn new_catalogue(options: CatalogueOptions) -> ModelCatalogue {
    ModelCatalogue::new(options)
}

#[test]
fn names_that_cannot_be_opened_say_why() {
    let models = new_catalogue(CatalogueOptions::default());
    let mut out = String::new();
    for name in [
        "gpt-5", "unknown/x", "anthropic/", "anthropic/a b", "anthropic/claude-sonnet-4-5", "openai/gpt-5",
        "compatible/x", "script:/nowhere",
    ] {
        match models.open(name) {
            Ok(model) => writeln!(out, "{}", model.info().name).unwrap(),
            Err(error) => writeln!(out, "! {error}").unwrap(),
        }
    }
    expect![[r#"
        ! there is no model gpt-5: names are `offline`, `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, `compatible/NAME`, `script:FILE` and `replay:FILE`
        ! there is no model unknown/x: names are `offline`, `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, `compatible/NAME`, `script:FILE` and `replay:FILE`
        ! there is no model anthropic/: names are `offline`, `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, `compatible/NAME`, `script:FILE` and `replay:FILE`
        ! there is no model anthropic/a b: names are `offline`, `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, `compatible/NAME`, `script:FILE` and `replay:FILE`
        ! there is no key for anthropic: set ANTHROPIC_API_KEY, or store one with `bowline agent --login anthropic`
        ! there is no key for openai: set OPENAI_API_KEY, or store one with `bowline agent --login openai`
        ! there is no model compatible/x: say where the server is with `--base-url http://HOST:PORT/v1` or COMPATIBLE_BASE_URL
        ! there is no model script:/nowhere: No such file or directory (os error 2)
    "#]]
    .assert_eq(&out);
}

#[test]
fn offered_models_depend_on_the_keys() {
    let names = |models: &ModelCatalogue| {
        let offered: Vec<_> = models.offered_models().into_iter().map(|info| info.name).collect();
        format!("{} of {}", models.default_name().unwrap(), offered.join(", "))
    };
    let none = new_catalogue(CatalogueOptions::default());
    let keys = Keyring::default().with_key(Provider::Gemini, "g");
    let gemini = new_catalogue(CatalogueOptions { keys: keys.clone(), ..CatalogueOptions::default() });
    let model = ModelInfo {
        context_window: 8_000,
        ..unknown_model_info(Provider::Compatible, "compatible/mine", "mine")
    };
    let extra = new_catalogue(CatalogueOptions {
        keys,
        extra_models: vec![model.clone()],
        ..CatalogueOptions::default()
    });
    expect![[r#"
        offline of offline
        gemini/gemini-2.5-pro of gemini/gemini-2.5-pro, gemini/gemini-2.5-flash, offline
        compatible/mine of compatible/mine, gemini/gemini-2.5-pro, gemini/gemini-2.5-flash, offline
    "#]]
    .assert_eq(&[&none, &gemini, &extra].map(|models| names(models) + "\n").concat());
    assert_eq!(extra.info("compatible/mine"), Some(model));
    assert_eq!(
        extra.info("ollama/qwen3:8b").map(|info| (info.context_window, info.supports_images)),
        Some((OLLAMA_WINDOW, false))
    );
    assert_eq!(extra.info("nonsense"), None);
}

#[test]
fn an_invalid_key_is_an_error_and_not_offline_mode() {
    let keys = Keyring::default().with_key(Provider::OpenAi, "sk-abc def");
    let bad = new_catalogue(CatalogueOptions { keys: keys.clone(), ..CatalogueOptions::default() });
    let message = bad.default_name().unwrap_err().to_string();
    expect!["OPENAI_API_KEY is set, but holds no key: a key is printable and has no blanks; set it again or unset it"]
        .assert_eq(&message);
    assert_eq!(bad.open("openai/gpt-5").map(drop).unwrap_err().to_string(), message);
    let keys = keys.with_key(Provider::Gemini, "g");
    let good = new_catalogue(CatalogueOptions { keys, ..CatalogueOptions::default() });
    assert_eq!(good.default_name().unwrap(), "gemini/gemini-2.5-pro");
}

#[test]
fn good_names_are_opened() {
    let keys = Keyring::default()
        .with_key(Provider::Anthropic, "a")
        .with_key(Provider::OpenAi, "o")
        .with_key(Provider::Gemini, "g");
    let base_urls = BTreeMap::from([
        (Provider::Compatible, "http://localhost:8080".to_owned()),
        (Provider::Ollama, "127.0.0.1:11434".to_owned()),
    ]);
    let models = new_catalogue(CatalogueOptions { keys, base_urls, ..CatalogueOptions::default() });
    for name in [
        "offline", "anthropic/claude-x", "openai/gpt-5", "gemini/gemini-2.5-pro", "ollama/a:b",
        "compatible/a/b",
    ] {
        assert_eq!(models.open(name).map(|model| model.info().name.clone()), Ok(name.to_owned()));
    }
}
