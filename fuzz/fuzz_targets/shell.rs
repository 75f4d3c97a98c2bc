//! The shell target: for any command line, the rules evaluate it without a panic, a line gets no more permission than
//! its parts, and a line that was not understood is never allowed.

#![no_main]

use bowline_text::time::Timestamp;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_protocol::terminal::Invocation;
use bowline_policy::policy::{
    Effect, Policy, PolicyContext, Preset, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec,
    canonical_invocation, shell, suggest_rules,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let allow = [command(Effect::Allow, "a"), command(Effect::Allow, "env"), command(Effect::Allow, "bash")];
    let deny = [command(Effect::Allow, "a"), command(Effect::Deny, "b")];
    for (preset, rules) in [(Preset::Ask, allow.to_vec()), (Preset::Full, deny.to_vec())] {
        let policy = Policy { preset, rules, roots: vec!["/project".to_owned()], ..Policy::default() };
        let whole = judge(&policy, line);
        match shell::parse(line) {
            Ok(parsed) => {
                for part in &parsed.commands {
                    assert!(judge(&policy, &part.text) <= whole, "{line:?} is freer than {:?}", part.text);
                }
            }
            Err(_) => assert_ne!(whole, Effect::Allow, "{line:?} was not understood"),
        }
    }
    let operation = operation(line);
    for found in suggest_rules(&operation, &["/project".to_owned()]) {
        assert_ne!(found.matcher, RuleMatcher::Everything);
    }
    let form = canonical_invocation(&Invocation::Shell(line.to_owned()));
    assert_eq!(canonical_invocation(&form), form);
});

fn command(effect: Effect, word: &str) -> Rule {
    let matcher = RuleMatcher::Command(vec![word.to_owned()]);
    let kinds = OperationKind::Execute.into();
    let (lifetime, source) = (RuleLifetime::Always, RuleSource::CommandLine);
    Rule::new(RuleSpec { effect, kinds, matcher, lifetime, expires: None, source, note: None })
        .expect("a plain rule")
}

fn operation(line: &str) -> Operation {
    let invocation = Invocation::Shell(line.to_owned());
    let command =
        CommandSpec { invocation, cwd: "/project".to_owned(), env: Vec::new(), named_paths: Vec::new() };
    Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command) }
}

fn judge(policy: &Policy, line: &str) -> Effect {
    let context = PolicyContext { session: "s".to_owned(), turn: Some(1), now: Timestamp(0) };
    policy.evaluate(&operation(line), &context).effect
}
