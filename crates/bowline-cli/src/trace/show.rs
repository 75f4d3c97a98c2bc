//! A recorded wire as a sequence, one message a line.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};

use bowline_state::display;
use bowline_state::trace::{Entry, Filter, Kind, Open, Outcome, Sequence, Side, Step};

use super::{ShowArguments, file, page};
use crate::ending::Ending;
use crate::records::showing::{Ink, Look, count, safe, written};
use crate::records::times::took;

/// So much of a session's id is shown.
const SESSION: usize = 8;

/// Shows it.
pub(super) fn run(arguments: &ShowArguments) -> Result<(), Ending> {
    let filter = Filter::new(arguments.session.as_deref(), arguments.method.as_deref())
        .map_err(|error| Ending::Usage(format!("--method cannot be understood: {error}")))?;
    if arguments.html && io::stdout().is_terminal() {
        return Err(Ending::Usage(
            "--html prints a page: write it to a file, such as > wire.html".to_owned(),
        ));
    }
    let mut sequence = Sequence::default();
    if arguments.html {
        let mut page = page::Page::default();
        let read = file::read(&arguments.file, |read| {
            match read {
                Ok(entry) => {
                    let step = sequence.step(&entry);
                    if filter.takes(&step) {
                        page.add(&entry, &step);
                    }
                }
                Err(gap) => page.lost(gap),
            }
            Ok(())
        })?;
        let name = arguments.file.file_name().unwrap_or_default().to_string_lossy();
        let text = page.finish(&name, read.began, &sequence);
        return written(io::stdout().lock().write_all(text.as_bytes()));
    }
    let look = Look::of_stdout();
    let mut out = BufWriter::new(io::stdout().lock());
    let mut shown = 0_usize;
    // That nobody reads on is the end of it, and no failure.
    let mut unread = false;
    let mut put = |text: String| match out.write_all(text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) => {
            unread = true;
            written(Err(error)).and(Err(Ending::Interrupted))
        }
    };
    let read = file::read(&arguments.file, |read| {
        let entry = match read {
            Ok(entry) => entry,
            Err(gap) => return put(format!("{}\n", look.paint(Ink::Bad, &format!("… {}", file::lost(gap))))),
        };
        let step = sequence.step(&entry);
        if !filter.takes(&step) {
            return Ok(());
        }
        shown += 1;
        let mut text = line(&entry, &step, look);
        if arguments.full {
            text += &whole(&entry.bytes);
        }
        put(text)
    });
    let read = match read {
        Err(Ending::Interrupted) if unread => return Ok(()),
        read => read?,
    };
    let open: Vec<&Open> = sequence.open().filter(|open| filter.takes_open(open)).collect();
    let mut end = String::new();
    if !open.is_empty() {
        end += &format!(
            "\n{}:\n",
            look.paint(Ink::Mark, &count(open.len(), "request", "requests")) + " without an answer"
        );
        for open in open {
            let way = way(open.from, open.to);
            let (time, method, id) = (time(open.us), safe(&open.method), hash(&open.id));
            end += format!("{time:>10}  {way}  {method} {id}  {}", open.gist).trim_end();
            end += "\n";
        }
    }
    let all = count(read.messages, "message", "messages");
    end += &match shown == read.messages {
        true => format!("\n{all}\n"),
        false => format!("\n{shown} of {all}\n"),
    };
    written(out.write_all(end.as_bytes()).and_then(|()| out.flush()))
}

/// Returns a message on a line.
fn line(entry: &Entry, step: &Step, look: Look) -> String {
    let method = safe(step.kind.method().unwrap_or("?"));
    let id = step.kind.id().map(hash).unwrap_or_default();
    let (mark, ink, latency) = match &step.kind {
        Kind::Request { .. } => ("?", Ink::Head, None),
        Kind::Notification { .. } => ("·", Ink::Faint, None),
        Kind::Answer { outcome: Outcome::Done, took_us, .. } => ("✓", Ink::Good, *took_us),
        Kind::Answer { outcome: Outcome::Failed, took_us, .. } => ("✗", Ink::Bad, *took_us),
        Kind::Other => ("!", Ink::Bad, None),
    };
    let session: String = step.session.as_deref().unwrap_or_default().chars().take(SESSION).collect();
    let what = look.paint(ink, &format!("{mark} {method:<27} {id:<5}"));
    let gist = if ink == Ink::Bad { look.paint(ink, &step.gist) } else { step.gist.clone() };
    let latency = latency.map_or_else(String::new, |us| format!(" ({})", took(us)));
    let text = format!(
        "{:>10}  {}  {what} {}  {gist}{}",
        look.paint(Ink::Faint, &format!("{:>10}", time(entry.us))),
        way(entry.from, entry.to),
        look.paint(Ink::Faint, &format!("{:<8}", safe(&session))),
        look.paint(Ink::Mark, &latency),
    );
    text.trim_end().to_owned() + "\n"
}

/// Returns all of a message, laid out if it is JSON, in lines that cannot steer a terminal.
fn whole(bytes: &[u8]) -> String {
    let text = match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(message) => format!("{message:#}"),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    };
    text.lines().map(|line| format!("    {}\n", display::line(line, usize::MAX))).collect()
}

/// Returns two sides with an arrow between them, the one nearer to the client first.
fn way(from: Side, to: Side) -> String {
    let rank = |side: Side| match side {
        Side::Client => 0,
        Side::Proxy => 1,
        Side::Agent => 2,
    };
    match rank(from) <= rank(to) {
        true => format!("{from:>6} → {to:<6}"),
        false => format!("{to:>6} ← {from:<6}"),
    }
}

fn time(us: u64) -> String {
    format!("{}.{:03}", us / 1_000_000, us / 1000 % 1000)
}

fn hash(id: &str) -> String {
    format!("#{}", display::line(id, 40))
}
