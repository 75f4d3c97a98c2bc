//! Sessions that are being opened: an agent may ask for files of one before it has answered that it is open.
//!
//! What it asks for then is judged by the rules of the directories that the editor named. Which session it will be is only
//! known for sure from the answer; until then the agent's word counts, for one session each.

use bowline_state::relay::{Method, Opened, Opening};
use bowline_state::schema::v1::SessionId;

/// So many are remembered; of more, those that have waited longest for their answer are forgotten.
const MAX: usize = 256;

/// The sessions that are being opened, in the order they were asked for.
#[derive(Debug, Default)]
pub(super) struct Expected(Vec<Awaited>);

#[derive(Debug)]
struct Awaited {
    opening: Opening,
    // What it was taken for before the answer: nobody else had it open.
    taken_for: Option<SessionId>,
}

impl Expected {
    /// Notes that one is asked for.
    pub(super) fn asked(&mut self, opening: &Opening) {
        if self.0.len() >= MAX {
            self.0.remove(0);
        }
        self.0.push(Awaited { opening: opening.clone(), taken_for: None });
    }

    /// Returns how a session is being opened that is used and not open, if only one place comes into question.
    pub(super) fn used(&mut self, session: &SessionId) -> Option<Opened> {
        let free = |awaited: &&mut Awaited| awaited.taken_for.is_none();
        let by_name = |awaited: &Awaited| {
            let Opening { method, session: named, .. } = &awaited.opening;
            matches!(method, Method::Load | Method::Resume) && named.as_ref() == Some(session)
        };
        let named = self.0.iter().any(by_name);
        let is_new = |awaited: &Awaited| matches!(awaited.opening.method, Method::New | Method::Fork);
        let suits = |awaited: &&mut Awaited| if named { by_name(awaited) } else { is_new(awaited) };
        let mut suiting = self.0.iter_mut().filter(suits).filter(free);
        let first = suiting.next()?;
        let place = |opening: &Opening| (opening.cwd.clone(), opening.more.clone());
        if suiting.any(|other| place(&other.opening) != place(&first.opening)) {
            return None;
        }
        first.taken_for = Some(session.clone());
        Some(Opened { session: session.clone(), opening: first.opening.clone() })
    }

    /// Notes the answer: that it is open, or that it is not. Returns the session that it was wrongly taken for.
    pub(super) fn answered(&mut self, opening: &Opening, session: Option<&SessionId>) -> Option<SessionId> {
        let by_what = |taken_for: Option<&SessionId>| {
            let mut all = self.0.iter();
            all.position(|awaited| awaited.opening == *opening && awaited.taken_for.as_ref() == taken_for)
        };
        let any = || self.0.iter().position(|awaited| awaited.opening == *opening);
        let at = by_what(session).or_else(|| by_what(None)).or_else(any)?;
        self.0.remove(at).taken_for.filter(|taken_for| Some(taken_for) != session)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use expect_test::{Expect, expect};

    use super::*;

    /// A line each: `new DIR`, `load ID DIR` or `fork ID DIR` is asked for; `use ID`; `opened ID …` or `failed …`, what was asked for.
    fn check(script: &str, expected: Expect) {
        let opening = |words: &[&str]| {
            let (method, session, cwd) = match words {
                ["new", cwd] => (Method::New, None, cwd),
                ["load", id, cwd] => (Method::Load, Some(SessionId::new(*id)), cwd),
                ["fork", id, cwd] => (Method::Fork, Some(SessionId::new(*id)), cwd),
                other => panic!("{other:?}"),
            };
            Opening { method, session, cwd: PathBuf::from(cwd), more: Vec::new() }
        };
        let mut expectation = Expected::default();
        let mut told = String::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let came = match words[..] {
                ["use", id] => match expectation.used(&SessionId::new(id)) {
                    Some(Opened { opening, .. }) => format!("{:?} {}", opening.method, opening.cwd.display()),
                    None => "unknown".to_owned(),
                },
                ["opened", id, ref as_asked @ ..] => {
                    let wrong = expectation.answered(&opening(as_asked), Some(&SessionId::new(id)));
                    wrong.map_or("fine".to_owned(), |id| format!("{id} is none"))
                }
                ["failed", ref as_asked @ ..] => {
                    let wrong = expectation.answered(&opening(as_asked), None);
                    wrong.map_or("fine".to_owned(), |id| format!("{id} is none"))
                }
                _ => {
                    expectation.asked(&opening(&words));
                    "asked".to_owned()
                }
            };
            told += &format!("{line}: {came}\n");
        }
        assert!(expectation.0.is_empty(), "{expectation:?}");
        expected.assert_eq(&told);
    }

    #[test]
    fn a_session_is_used_before_it_is_told_of() {
        check(
            "use a
             new /w
             use a
             use b
             opened a new /w
             load c /x
             new /w
             use c
             use d
             opened c load c /x
             opened d new /w",
            expect![[r#"
                use a: unknown
                new /w: asked
                use a: New /w
                use b: unknown
                opened a new /w: fine
                load c /x: asked
                new /w: asked
                use c: Load /x
                use d: New /w
                opened c load c /x: fine
                opened d new /w: fine
            "#]],
        );
    }

    #[test]
    fn what_was_a_guess_is_taken_back() {
        check(
            "new /w
             use a
             opened b new /w
             fork b /w
             use c
             failed fork b /w
             new /w
             new /w
             use d
             failed new /w
             opened d new /w",
            expect![[r#"
                new /w: asked
                use a: New /w
                opened b new /w: a is none
                fork b /w: asked
                use c: Fork /w
                failed fork b /w: c is none
                new /w: asked
                new /w: asked
                use d: New /w
                failed new /w: fine
                opened d new /w: fine
            "#]],
        );
    }

    #[test]
    fn where_two_places_come_into_question_neither_is_taken() {
        check(
            "new /w
             new /x
             use a
             opened a new /x
             use b
             opened b new /w
             opened c load c /w",
            expect![[r#"
                new /w: asked
                new /x: asked
                use a: unknown
                opened a new /x: fine
                use b: New /w
                opened b new /w: fine
                opened c load c /w: fine
            "#]],
        );
    }

    #[test]
    fn those_that_are_never_answered_are_forgotten() {
        let opening = Opening { method: Method::New, session: None, cwd: "/w".into(), more: Vec::new() };
        let mut expected = Expected::default();
        for _ in 0..2 * MAX {
            expected.asked(&opening);
        }
        assert_eq!(expected.0.len(), MAX);
    }
}
