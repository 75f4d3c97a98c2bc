//! Whatever line an agent wants to run, rules judge it without a panic, a line is never freer than its parts, and nothing
//! is allowed that was not understood.

#![no_main]

use bowline_state::changes::Moment;
use bowline_state::operation::{Command, Invocation, Kind, Operation, Target};
use bowline_state::policy::{
    Context, Effect, Lifetime, Matcher, Policy, Preset, Rule, RuleSpec, Source, canonical, shell, suggest,
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
    for found in suggest(&operation, &["/project".to_owned()]) {
        assert_ne!(found.matcher, Matcher::Everything);
    }
    let form = canonical(&Invocation::Shell(line.to_owned()));
    assert_eq!(canonical(&form), form);
});

fn command(effect: Effect, word: &str) -> Rule {
    let matcher = Matcher::Command(vec![word.to_owned()]);
    let kinds = Kind::Execute.into();
    let (lifetime, source) = (Lifetime::Always, Source::Flag);
    Rule::new(RuleSpec { effect, kinds, matcher, lifetime, expires: None, source, note: None })
        .expect("a plain rule")
}

fn operation(line: &str) -> Operation {
    let invocation = Invocation::Shell(line.to_owned());
    let command = Command { invocation, cwd: "/project".to_owned(), env: Vec::new() };
    Operation { kind: Kind::Execute, target: Target::Command(command) }
}

fn judge(policy: &Policy, line: &str) -> Effect {
    let context = Context { session: "s".to_owned(), turn: Some(1), now: Moment(0) };
    policy.judge(&operation(line), &context).effect
}
