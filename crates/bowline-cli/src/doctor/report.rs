//! What was found, for people and for programs.

use std::fmt::Write as _;

use bowline_state::display;
use serde_json::{Value, json};

/// A line is at most so long, in bytes. Paths and words of agents are in it.
const MAX_LINE: usize = 2_000;

/// A summary is at most so long, in bytes.
const MAX_SUMMARY: usize = 200;

/// How something is, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Neither good nor bad.
    Plain,
    /// As it should be.
    Well,
    /// Something is missing that somebody may want.
    Lacking,
    /// It does not work.
    Broken,
}

impl State {
    fn mark(self) -> &'static str {
        match self {
            Self::Well => "✓",
            Self::Plain => "·",
            Self::Lacking => "!",
            Self::Broken => "✗",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Plain => "info",
            Self::Lacking => "warning",
            Self::Broken => "broken",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Well => "32",
            Self::Plain => "2",
            Self::Lacking => "33",
            Self::Broken => "31",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    state: State,
    text: String,
    details: Vec<String>,
    advice: Option<String>,
}

/// Findings about one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    title: &'static str,
    // What it comes to, in a line; without it its first finding.
    summary: Option<String>,
    findings: Vec<Finding>,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Report {
    sections: Vec<Section>,
}

/// How it is written for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// With colours.
    Coloured,
    /// Without.
    Plain,
}

impl Style {
    fn paint(self, text: &str, colour: &str) -> String {
        match self {
            Self::Coloured => format!("\u{1b}[{colour}m{text}\u{1b}[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

impl Section {
    pub(super) fn new(title: &'static str) -> Self {
        Self { title, summary: None, findings: Vec::new() }
    }

    /// Adds something that is as it should be.
    pub(super) fn well(&mut self, text: impl Into<String>) -> &mut Finding {
        self.push(State::Well, text.into(), None)
    }

    /// Adds something that is missing, and what to do about it.
    pub(super) fn lacking(&mut self, text: impl Into<String>, advice: impl Into<String>) -> &mut Finding {
        self.push(State::Lacking, text.into(), Some(advice.into()))
    }

    /// Adds something that does not work, and what to do about it.
    pub(super) fn broken(&mut self, text: impl Into<String>, advice: impl Into<String>) -> &mut Finding {
        self.push(State::Broken, text.into(), Some(advice.into()))
    }

    /// Adds something that is neither good nor bad.
    pub(super) fn plain(&mut self, text: impl Into<String>) -> &mut Finding {
        self.push(State::Plain, text.into(), None)
    }

    /// Says what it comes to.
    pub(super) fn summary(&mut self, text: impl Into<String>) {
        self.summary = Some(text.into());
    }

    /// Says whether something in it does not work.
    pub(super) fn is_broken(&self) -> bool {
        self.findings.iter().any(|finding| finding.state == State::Broken)
    }

    fn push(&mut self, state: State, text: String, advice: Option<String>) -> &mut Finding {
        let at = self.findings.len();
        // What says what to do in its own words needs nothing beside them.
        let advice = advice.filter(|advice| !advice.is_empty());
        self.findings.push(Finding { state, text, details: Vec::new(), advice });
        &mut self.findings[at]
    }
}

impl Finding {
    /// Adds a line below it.
    pub(super) fn detail(&mut self, text: impl Into<String>) -> &mut Self {
        self.details.push(text.into());
        self
    }

    /// Adds lines below it, of a text that may be anything: the last ones, if there are many.
    pub(super) fn quote(&mut self, text: &str, lines: usize) -> &mut Self {
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in &all[all.len().saturating_sub(lines)..] {
            self.details.push(format!("│ {line}"));
        }
        self
    }
}

impl Report {
    pub(super) fn add(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// Returns how many things do not work.
    pub(super) fn broken(&self) -> usize {
        self.findings().filter(|finding| finding.state == State::Broken).count()
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    /// Returns what it comes to, for people: a line for each subject, what is not well, and what to do next.
    pub(super) fn short(&self, style: Style, next: &[(String, String)]) -> String {
        let paint = |text: &str, colour: &str| style.paint(text, colour);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let mut line = |text: String| writeln!(out, "{text}").unwrap_or_default();
        for section in &self.sections {
            let trouble = |finding: &&Finding| matches!(finding.state, State::Lacking | State::Broken);
            let first = section.findings.iter().find(|finding| !trouble(finding));
            let summary = section.summary.as_ref().or(first.map(|finding| &finding.text));
            let worst = section.findings.iter().map(|finding| finding.state).max().unwrap_or(State::Plain);
            let summary = summary.map(|summary| display::line(summary, MAX_SUMMARY)).unwrap_or_default();
            let mark = paint(worst.mark(), worst.colour());
            line(
                format!("{mark} {} {summary}", paint(&format!("{}:", section.title), "1"))
                    .trim_end()
                    .to_owned(),
            );
            for finding in section.findings.iter().filter(trouble) {
                line(format!("    {}", display::line(&finding.text, MAX_LINE)));
                finding
                    .details
                    .iter()
                    .for_each(|detail| line(format!("      {}", display::line(detail, MAX_LINE))));
                if let Some(advice) = &finding.advice {
                    line(format!("    → {}", display::line(advice, MAX_LINE)));
                }
            }
        }
        line(String::new());
        line(paint("Next:", "1"));
        let all = ("bowline doctor --all".to_owned(), "all that was looked at".to_owned());
        let next = || next.iter().chain([&all]);
        let width = next().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        for (command, does) in next() {
            line(format!("  {command:width$}   {does}"));
        }
        out
    }

    /// Returns all of it for people.
    pub(super) fn text(&self, style: Style) -> String {
        let paint = |text: &str, colour: &str| style.paint(text, colour);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let mut line = |text: String| writeln!(out, "{text}").unwrap_or_default();
        for (number, section) in self.sections.iter().enumerate() {
            if number > 0 {
                line(String::new());
            }
            line(paint(section.title, "1"));
            for finding in &section.findings {
                let mark = paint(finding.state.mark(), finding.state.colour());
                line(format!("  {mark} {}", display::line(&finding.text, MAX_LINE)));
                for detail in &finding.details {
                    line(format!("      {}", display::line(detail, MAX_LINE)));
                }
                if let Some(advice) = &finding.advice {
                    line(format!("    → {}", display::line(advice, MAX_LINE)));
                }
            }
        }
        out
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> String {
        let finding = |finding: &Finding| {
            let mut value = json!({"state": finding.state.word(), "text": finding.text});
            if !finding.details.is_empty() {
                value["details"] = json!(finding.details);
            }
            if let Some(advice) = &finding.advice {
                value["advice"] = json!(advice);
            }
            value
        };
        let sections: Vec<Value> = self
            .sections
            .iter()
            .map(|section| {
                let findings: Vec<Value> = section.findings.iter().map(finding).collect();
                json!({"title": section.title, "findings": findings})
            })
            .collect();
        let count = |state| self.findings().filter(|finding| finding.state == state).count();
        let all = json!({
            "ok": self.broken() == 0,
            "broken": count(State::Broken),
            "warnings": count(State::Lacking),
            "sections": sections,
        });
        format!("{all:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn report() -> Report {
        let mut section = Section::new("A subject");
        section.well("fine");
        section.plain("just so");
        section.lacking("something", "get it").detail("more of it");
        section.broken("an \u{1b}[31mescape", "").quote("one\n\ntwo\nthree\n", 2);
        let mut report = Report::default();
        report.add(section);
        report.add(Section::new("Another"));
        report
    }

    #[test]
    fn people_see_marks_and_what_to_do() {
        expect![[r#"
            A subject
              ✓ fine
              · just so
              ! something
                  more of it
                → get it
              ✗ an \u{1b}[31mescape
                  │ two
                  │ three

            Another
        "#]]
        .assert_eq(&report().text(Style::Plain));
        expect![[r#"
            ␛[1mA subject␛[0m
              ␛[32m✓␛[0m fine
              ␛[2m·␛[0m just so
              ␛[33m!␛[0m something
                  more of it
                → get it
              ␛[31m✗␛[0m an \u{1b}[31mescape
                  │ two
                  │ three

            ␛[1mAnother␛[0m
        "#]]
        .assert_eq(&report().text(Style::Coloured).replace('\u{1b}', "␛"));
    }

    #[test]
    fn programs_get_all_of_it() {
        expect![[r#"
            {
              "ok": false,
              "broken": 1,
              "warnings": 1,
              "sections": [
                {
                  "title": "A subject",
                  "findings": [
                    {
                      "state": "ok",
                      "text": "fine"
                    },
                    {
                      "state": "info",
                      "text": "just so"
                    },
                    {
                      "state": "warning",
                      "text": "something",
                      "details": [
                        "more of it"
                      ],
                      "advice": "get it"
                    },
                    {
                      "state": "broken",
                      "text": "an \u001b[31mescape",
                      "details": [
                        "│ two",
                        "│ three"
                      ]
                    }
                  ]
                },
                {
                  "title": "Another",
                  "findings": []
                }
              ]
            }
        "#]]
        .assert_eq(&report().json());
    }
}
