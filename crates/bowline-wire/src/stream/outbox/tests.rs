//! Tests of the outbox: every byte leaves once, in order, large bodies without a copy.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// Runs one step after the other, and shows after each the lengths of the pieces for a write.
///
/// `append`, `own` and `consume` take a number of bytes.
fn check(steps: &str, expected: Expect) {
    let mut outbox = Outbox::default();
    let mut output = String::new();
    for step in steps.split(',').map(str::trim) {
        let (verb, number) = step.split_once(' ').unwrap();
        let bytes = number.parse().unwrap();
        match verb {
            "append" => outbox.append(|out| out.resize(out.len() + bytes, b'a')),
            "own" => outbox.push_owned(vec![b'o'; bytes]),
            "consume" => outbox.consume(bytes),
            _ => panic!("no such step: {verb}"),
        }
        let lengths: Vec<usize> = pieces(&outbox, 3).iter().map(|piece| piece.len()).collect();
        output += &format!("{step:<13} {lengths:?} of {}\n", outbox.len());
    }
    expected.assert_eq(&output);
}

fn pieces(outbox: &Outbox, max: usize) -> Vec<IoSlice<'_>> {
    let mut slices = vec![IoSlice::new(&[]); max];
    let filled = outbox.fill_slices(&mut slices);
    slices.truncate(filled);
    slices
}

#[test]
fn small_bodies_are_gathered_and_large_ones_stay_apart() {
    check(
        "append 10, own 20, own 16383, own 16384, append 2, own 65536, append 2, own 0, append 0",
        expect![[r#"
            append 10     [10] of 10
            own 20        [30] of 30
            own 16383     [16413] of 16413
            own 16384     [16413, 16384] of 32797
            append 2      [16413, 16386] of 32799
            own 65536     [16413, 16386, 65536] of 98335
            append 2      [16413, 16386, 65536] of 98337
            own 0         [16413, 16386, 65536] of 98337
            append 0      [16413, 16386, 65536] of 98337
        "#]],
    );
}

#[test]
fn a_write_may_end_anywhere() {
    check(
        "append 10, own 70000, append 2, consume 0, consume 9, consume 1, consume 69999, consume 2, append 5, consume 6",
        expect![[r#"
            append 10     [10] of 10
            own 70000     [10, 70000] of 70010
            append 2      [10, 70000, 2] of 70012
            consume 0     [10, 70000, 2] of 70012
            consume 9     [1, 70000, 2] of 70003
            consume 1     [70000, 2] of 70002
            consume 69999 [1, 2] of 3
            consume 2     [1] of 1
            append 5      [6] of 6
            consume 6     [] of 0
        "#]],
    );
}

#[test]
fn a_write_may_end_behind_several_pieces() {
    check(
        "own 70000, own 70000, own 70000, own 70000, consume 210000, append 1, consume 70001",
        expect![[r#"
            own 70000     [70000] of 70000
            own 70000     [70000, 70000] of 140000
            own 70000     [70000, 70000, 70000] of 210000
            own 70000     [70000, 70000, 70000] of 280000
            consume 210000 [70000] of 70000
            append 1      [70000, 1] of 70001
            consume 70001 [] of 0
        "#]],
    );
}

#[test]
fn a_large_body_is_not_copied() {
    let body = vec![b'o'; MAX_PIECE];
    let address = body.as_ptr();
    let mut outbox = Outbox::default();
    outbox.append(|out| out.extend_from_slice(b"before"));
    outbox.push_owned(body);
    outbox.append(|out| out.extend_from_slice(b"behind"));
    outbox.consume(b"before".len());
    assert_eq!(pieces(&outbox, 2)[0].as_ptr(), address);
}

#[derive(Debug, Clone)]
enum OutboxStep {
    Append(usize),
    PushOwned(usize),
    Consume(usize),
    Take,
}

fn step() -> impl Strategy<Value = OutboxStep> {
    let length = || {
        prop::sample::select(vec![
            0,
            1,
            7,
            300,
            LARGE_BODY - 1,
            LARGE_BODY,
            MAX_PIECE - 1,
            MAX_PIECE,
            MAX_PIECE + 1,
        ])
    };
    prop_oneof![
        4 => length().prop_map(OutboxStep::Append),
        4 => length().prop_map(OutboxStep::PushOwned),
        4 => (length(), 0usize..3).prop_map(|(length, excess)| OutboxStep::Consume(length + excess)),
        1 => Just(OutboxStep::Take),
    ]
}

/// Bytes that encode their position in the stream.
fn numbered_bytes(from: u64, length: usize) -> Vec<u8> {
    (from..from + length as u64).map(|n| (n % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_output_is_what_was_put_in(steps in prop::collection::vec(step(), 1..16)) {
        let mut outbox = Outbox::default();
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                OutboxStep::Append(length) => {
                    let bytes = numbered_bytes(outbox.total_appended(), length);
                    outbox.append(|out| out.extend_from_slice(&bytes));
                    model.extend(bytes);
                }
                OutboxStep::PushOwned(length) => {
                    let bytes = numbered_bytes(outbox.total_appended(), length);
                    outbox.push_owned(bytes.clone());
                    model.extend(bytes);
                }
                OutboxStep::Consume(n) => {
                    outbox.consume(n);
                    model.drain(..n.min(model.len()));
                }
                OutboxStep::Take => prop_assert!(outbox.take() == std::mem::take(&mut model)),
            }
            let pieces = pieces(&outbox, 64);
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
            prop_assert!(pieces.iter().flat_map(|piece| piece.iter()).eq(&model));
            prop_assert_eq!(outbox.len(), model.len());
            prop_assert_eq!(outbox.total_written() + model.len() as u64, outbox.total_appended());
        }
    }
}
