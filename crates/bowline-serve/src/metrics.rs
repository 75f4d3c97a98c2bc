//! Counters for operators, in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counters of a server.
#[derive(Debug, Default)]
pub struct Metrics {
    events: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    prompts: AtomicU64,
    questions: AtomicU64,
    questions_expired: AtomicU64,
    agent_starts: AtomicU64,
    agent_exits: AtomicU64,
    is_store_failing: AtomicBool,
}

/// What a server has at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// The clients' connections.
    pub connections: usize,
    /// The open sessions.
    pub sessions: usize,
    /// The turns that run.
    pub turns: usize,
    /// The questions that wait for a user.
    pub open_questions: usize,
    /// The running agents.
    pub agents: usize,
}

impl Metrics {
    pub(crate) fn add_events(&self, count: u64) {
        self.events.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns how many events were stored.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub(crate) fn add_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_prompt(&self) {
        self.prompts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_question(&self) {
        self.questions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_expired_question(&self) {
        self.questions_expired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_agent_start(&self) {
        self.agent_starts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_agent_exit(&self) {
        self.agent_exits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_store_ok(&self, is_ok: bool) {
        self.is_store_failing.store(!is_ok, Ordering::Relaxed);
    }

    /// Returns whether the last commit succeeded.
    #[must_use]
    pub fn is_store_ok(&self) -> bool {
        !self.is_store_failing.load(Ordering::Relaxed)
    }

    /// Returns everything in Prometheus' text format.
    #[must_use]
    pub fn render(&self, gauges: Gauges) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
            // Writing to a string does not fail.
            writeln!(
                text,
                "# HELP bowline_{name} {help}\n# TYPE bowline_{name} {kind}\nbowline_{name} {value}"
            )
            .ok();
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        metric("events_total", "counter", "Events stored and published.", count(&self.events));
        metric("requests_total", "counter", "HTTP requests.", count(&self.requests));
        metric("refused_total", "counter", "HTTP requests refused.", count(&self.refused));
        metric("prompts_total", "counter", "Prompts sent to agents.", count(&self.prompts));
        metric("questions_total", "counter", "Questions asked to users.", count(&self.questions));
        let expired = count(&self.questions_expired);
        metric("questions_expired_total", "counter", "Questions denied because no answer came.", expired);
        metric("agent_starts_total", "counter", "Agents started.", count(&self.agent_starts));
        metric("agent_exits_total", "counter", "Agents that ended by themselves.", count(&self.agent_exits));
        let mut gauge = |name: &str, help: &str, value: usize| metric(name, "gauge", help, value as u64);
        gauge("connections", "Connected clients.", gauges.connections);
        gauge("sessions", "Open sessions.", gauges.sessions);
        gauge("turns", "Turns that run.", gauges.turns);
        gauge("open_questions", "Questions that wait for a user.", gauges.open_questions);
        gauge("agents", "Running agents.", gauges.agents);
        gauge("store_up", "Whether the last commit succeeded.", usize::from(self.is_store_ok()));
        text
    }
}
