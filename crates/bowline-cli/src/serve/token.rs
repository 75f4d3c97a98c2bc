//! `bowline serve token`: who may use a server.

use std::fmt::Write as _;

use bowline_serve::token::{Role, StoredToken};
use bowline_storage::clock::{format_iso8601, now};
use bowline_text::time::Timestamp;
use clap::{Args, Subcommand, ValueEnum};

use super::store::{StoreArguments, failed};
use bowline_client::common::console::{print, print_note};
use bowline_client::error::CliError;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What is done with tokens.
#[derive(Args, Debug)]
pub(super) struct TokenArguments {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand, Debug)]
enum TokenCommand {
    /// Make a token and print it; it cannot be shown again
    Add {
        /// The name of the client or person, to which sessions belong
        name: String,
        /// What the client may do
        #[arg(long, value_enum, default_value_t = RoleArgument::User)]
        role: RoleArgument,
        /// The number of days until the token ends (default: it does not)
        #[arg(long, value_name = "DAYS", value_parser = parse_days)]
        expires: Option<u16>,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// List the tokens
    List {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Remove a token; its clients are refused within five seconds
    Remove {
        /// The name
        name: String,
        #[command(flatten)]
        store: StoreArguments,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleArgument {
    /// Use all sessions
    Admin,
    /// Open sessions and use its own
    User,
    /// See all sessions, change none
    Observer,
}

fn parse_days(text: &str) -> Result<u16, String> {
    let days = text.strip_suffix('d').unwrap_or(text).parse().ok().filter(|days| *days > 0);
    days.ok_or_else(|| format!("give a number of days from 1 to {}, such as 90", u16::MAX))
}

pub(super) async fn run(arguments: TokenArguments) -> Result<(), CliError> {
    match arguments.command {
        TokenCommand::Add { name, role, expires, store } => {
            let role = match role {
                RoleArgument::Admin => Role::Admin,
                RoleArgument::User => Role::User,
                RoleArgument::Observer => Role::Observer,
            };
            let expires = expires.map(|days| Timestamp(now().0 + i64::from(days) * DAY_MS));
            let (token, text) = StoredToken::generate(&name, role, now(), expires)
                .map_err(|error| CliError::Usage(error.to_string()))?;
            store.open_for_tokens().await?.add_token(token).await.map_err(failed)?;
            print(&format!("{text}\n"))?;
            print_note("keep this token: it is not shown again. Clients read it from BOWLINE_TOKEN");
        }
        TokenCommand::List { store } => {
            let tokens = store.open_for_tokens().await?.tokens().await.map_err(failed)?;
            let mut text = String::new();
            for token in &tokens {
                let end = match token.expires_at {
                    None => String::new(),
                    Some(end) if end <= now() => format!("  expired {}", format_iso8601(end)),
                    Some(end) => format!("  expires {}", format_iso8601(end)),
                };
                // Writing to a string does not fail.
                writeln!(text, "{:<24} {}{end}", token.name, token.role.name()).ok();
            }
            if tokens.is_empty() {
                text.push_str("No tokens. Make one with `bowline serve token add NAME`.\n");
            }
            print(&text)?;
        }
        TokenCommand::Remove { name, store } => {
            if !store.open_for_tokens().await?.remove_token(&name).await.map_err(failed)? {
                return Err(CliError::Usage(format!(
                    "there is no token named {name}; `bowline serve token list` lists them"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse_days;

    #[test]
    fn a_token_lasts_whole_days() {
        assert_eq!((parse_days("90"), parse_days("1d")), (Ok(90), Ok(1)));
        for wrong in ["0", "-1", "65536", "tomorrow", "1.5", "12h", ""] {
            parse_days(wrong).unwrap_err();
        }
    }
}
