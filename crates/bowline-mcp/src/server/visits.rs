//! Which sessions clients have over HTTP, and which of them makes room for another.
//!
//! Few clients end their sessions: they die, or are started anew. So where there is no room, the session that nobody has
//! used for longest ends. One that somebody listens to, or waits for, does not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::events::WithoutData;

/// The sessions that there are, at most so many.
#[derive(Debug)]
pub(crate) struct Visits {
    most: usize,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    // Invariant: together with those that open, at most `most`.
    sessions: HashMap<String, Visit>,
    opening: usize,
    // Grows with every use: what was used later has a greater number.
    now: u64,
}

#[derive(Debug, Default)]
struct Visit {
    used: u64,
    requests: usize,
    events: WithoutData,
}

impl Book {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

impl Visits {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, book: Mutex::default() })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for a session: with it comes the one that has to end for it, if one has to. Nothing if every session is in
    /// use.
    pub(crate) fn open(self: &Arc<Self>) -> Option<(Opening, Option<String>)> {
        let mut book = self.book();
        let mut ends = None;
        if book.sessions.len() + book.opening >= self.most {
            let idle = book.sessions.iter().filter(|(_, visit)| visit.requests == 0);
            let oldest = idle.min_by_key(|(_, visit)| visit.used).map(|(id, _)| id.clone())?;
            book.sessions.remove(&oldest);
            ends = Some(oldest);
        }
        book.opening += 1;
        Some((Opening { visits: self.clone() }, ends))
    }

    /// Notes that a session is used for as long as what it returns is kept. That of one that is not known says nothing.
    pub(crate) fn enter(self: &Arc<Self>, id: &str) -> Stay {
        let mut book = self.book();
        let now = book.tick();
        if let Some(visit) = book.sessions.get_mut(id) {
            (visit.used, visit.requests) = (now, visit.requests + 1);
        }
        Stay { visits: self.clone(), id: id.to_owned() }
    }

    /// Returns which events the client of a session can read.
    pub(crate) fn events(&self, id: &str) -> WithoutData {
        self.book().sessions.get(id).map(|visit| visit.events).unwrap_or_default()
    }

    /// Forgets a session that has ended.
    pub(crate) fn ended(&self, id: &str) {
        self.book().sessions.remove(id);
    }
}

/// A session that is about to open.
#[derive(Debug)]
pub(crate) struct Opening {
    visits: Arc<Visits>,
}

impl Opening {
    /// It is open, by that name, for a client that can read these events.
    pub(crate) fn opened(self, id: &str, events: WithoutData) {
        let mut book = self.visits.book();
        let used = book.tick();
        book.sessions.insert(id.to_owned(), Visit { used, requests: 0, events });
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.visits.book().opening -= 1;
    }
}

/// A use of a session.
#[derive(Debug)]
pub(crate) struct Stay {
    visits: Arc<Visits>,
    id: String,
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut book = self.visits.book();
        let now = book.tick();
        if let Some(visit) = book.sessions.get_mut(&self.id) {
            (visit.used, visit.requests) = (now, visit.requests.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests;
