//! The report of the checks, for people and for programs.

use std::fmt::Write as _;

use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_text::display;
use serde_json::{Value, json};

/// The maximum length of a line, in bytes. Lines contain paths and agents' texts.
const MAX_LINE: usize = 2_000;

/// The maximum length of a summary, in bytes.
const MAX_SUMMARY: usize = 200;

/// The severity of a finding, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingSeverity {
    /// Neither good nor bad.
    Info,
    /// As it should be.
    Ok,
    /// Something optional is missing.
    Warning,
    /// It does not work.
    Broken,
}

impl FindingSeverity {
    fn mark(self) -> &'static str {
        match self {
            Self::Ok => "✓",
            Self::Info => "·",
            Self::Warning => "!",
            Self::Broken => "✗",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }

    fn text_style(self) -> TextStyle {
        match self {
            Self::Ok => TextStyle::Good,
            Self::Info => TextStyle::Faint,
            Self::Warning => TextStyle::Warning,
            Self::Broken => TextStyle::Bad,
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DoctorFinding {
    severity: FindingSeverity,
    text: String,
    details: Vec<String>,
    advice: Option<String>,
}

/// Findings about one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportSection {
    title: &'static str,
    // A one-line summary; the first finding if `None`.
    summary: Option<String>,
    findings: Vec<DoctorFinding>,
}

/// All findings.
#[derive(Debug, Default)]
pub(super) struct DoctorReport {
    sections: Vec<ReportSection>,
}

impl ReportSection {
    pub(super) fn new(title: &'static str) -> Self {
        Self { title, summary: None, findings: Vec::new() }
    }

    /// Adds something that works.
    pub(super) fn add_ok(&mut self, text: impl Into<String>) -> &mut DoctorFinding {
        self.push(FindingSeverity::Ok, text.into(), None)
    }

    /// Adds something that is missing, with advice.
    pub(super) fn add_warning(
        &mut self,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> &mut DoctorFinding {
        self.push(FindingSeverity::Warning, text.into(), Some(advice.into()))
    }

    /// Adds something that does not work, with advice.
    pub(super) fn add_broken(
        &mut self,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> &mut DoctorFinding {
        self.push(FindingSeverity::Broken, text.into(), Some(advice.into()))
    }

    /// Adds something neutral.
    pub(super) fn add_info(&mut self, text: impl Into<String>) -> &mut DoctorFinding {
        self.push(FindingSeverity::Info, text.into(), None)
    }

    /// Sets the summary.
    pub(super) fn set_summary(&mut self, text: impl Into<String>) {
        self.summary = Some(text.into());
    }

    /// Returns whether something in it does not work.
    pub(super) fn is_broken(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == FindingSeverity::Broken)
    }

    fn push(
        &mut self,
        severity: FindingSeverity,
        text: String,
        advice: Option<String>,
    ) -> &mut DoctorFinding {
        let index = self.findings.len();
        // An empty advice means that the text itself says what to do.
        let advice = advice.filter(|advice| !advice.is_empty());
        self.findings.push(DoctorFinding { severity, text, details: Vec::new(), advice });
        &mut self.findings[index]
    }
}

impl DoctorFinding {
    /// Adds a detail line.
    pub(super) fn add_detail(&mut self, text: impl Into<String>) -> &mut Self {
        self.details.push(text.into());
        self
    }

    /// Adds untrusted text as detail lines: the last ones, if there are many.
    pub(super) fn add_quote(&mut self, text: &str, lines: usize) -> &mut Self {
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in &all[all.len().saturating_sub(lines)..] {
            self.details.push(format!("│ {line}"));
        }
        self
    }
}

impl DoctorReport {
    pub(super) fn add(&mut self, section: ReportSection) {
        self.sections.push(section);
    }

    /// Returns how many findings are broken.
    pub(super) fn broken_count(&self) -> usize {
        self.findings().filter(|finding| finding.severity == FindingSeverity::Broken).count()
    }

    fn findings(&self) -> impl Iterator<Item = &DoctorFinding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    /// Returns a short report for people: a line per section, the problems, and the next steps.
    pub(super) fn to_short_text(&self, style: OutputStyle, next: &[(String, String)]) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let mut line = |text: String| writeln!(out, "{text}").unwrap_or_default();
        for section in &self.sections {
            let is_problem = |finding: &&DoctorFinding| {
                matches!(finding.severity, FindingSeverity::Warning | FindingSeverity::Broken)
            };
            let first = section.findings.iter().find(|finding| !is_problem(finding));
            let summary = section.summary.as_ref().or(first.map(|finding| &finding.text));
            let worst = section
                .findings
                .iter()
                .map(|finding| finding.severity)
                .max()
                .unwrap_or(FindingSeverity::Info);
            let summary =
                summary.map(|summary| display::escape_line(summary, MAX_SUMMARY)).unwrap_or_default();
            let mark = style.paint(worst.text_style(), worst.mark());
            line(
                format!(
                    "{mark} {} {summary}",
                    style.paint(TextStyle::Heading, &format!("{}:", section.title))
                )
                .trim_end()
                .to_owned(),
            );
            for finding in section.findings.iter().filter(is_problem) {
                line(format!("    {}", display::escape_line(&finding.text, MAX_LINE)));
                finding
                    .details
                    .iter()
                    .for_each(|detail| line(format!("      {}", display::escape_line(detail, MAX_LINE))));
                if let Some(advice) = &finding.advice {
                    line(format!("    → {}", display::escape_line(advice, MAX_LINE)));
                }
            }
        }
        line(String::new());
        line(style.paint(TextStyle::Heading, "Next:"));
        let doctor_all = ("bowline doctor --all".to_owned(), "all that was looked at".to_owned());
        let next = || next.iter().chain([&doctor_all]);
        let width = next().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        for (command, description) in next() {
            line(format!("  {command:width$}   {description}"));
        }
        out
    }

    /// Returns the full report for people.
    pub(super) fn to_full_text(&self, style: OutputStyle) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let mut line = |text: String| writeln!(out, "{text}").unwrap_or_default();
        for (number, section) in self.sections.iter().enumerate() {
            if number > 0 {
                line(String::new());
            }
            line(style.paint(TextStyle::Heading, section.title));
            for finding in &section.findings {
                let mark = style.paint(finding.severity.text_style(), finding.severity.mark());
                line(format!("  {mark} {}", display::escape_line(&finding.text, MAX_LINE)));
                for detail in &finding.details {
                    line(format!("      {}", display::escape_line(detail, MAX_LINE)));
                }
                if let Some(advice) = &finding.advice {
                    line(format!("    → {}", display::escape_line(advice, MAX_LINE)));
                }
            }
        }
        out
    }

    /// Returns the report for programs.
    pub(super) fn to_json(&self) -> String {
        let finding = |finding: &DoctorFinding| {
            let mut value = json!({"state": finding.severity.label(), "text": finding.text});
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
        let count = |state| self.findings().filter(|finding| finding.severity == state).count();
        let report = json!({
            "ok": self.broken_count() == 0,
            "broken": count(FindingSeverity::Broken),
            "warnings": count(FindingSeverity::Warning),
            "sections": sections,
        });
        format!("{report:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn report() -> DoctorReport {
        let mut section = ReportSection::new("A subject");
        section.add_ok("fine");
        section.add_info("just so");
        section.add_warning("something", "get it").add_detail("more of it");
        section.add_broken("an \u{1b}[31mescape", "").add_quote("one\n\ntwo\nthree\n", 2);
        let mut report = DoctorReport::default();
        report.add(section);
        report.add(ReportSection::new("Another"));
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
        .assert_eq(&report().to_full_text(OutputStyle::PLAIN));
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
        .assert_eq(
            &report()
                .to_full_text(OutputStyle { is_terminal: true, has_colour: true })
                .replace('\u{1b}', "␛"),
        );
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
        .assert_eq(&report().to_json());
    }
}
