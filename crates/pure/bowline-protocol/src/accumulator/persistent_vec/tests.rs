//! Tests of the persistent list against a plain list, and of the cost of its clones.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum VecOperation {
    Push(usize),
    Pop(usize),
    Set(prop::sample::Index),
    KeepClone,
}

fn any_vec_operation() -> impl Strategy<Value = VecOperation> {
    prop_oneof![
        (1usize..200).prop_map(VecOperation::Push),
        (1usize..200).prop_map(VecOperation::Pop),
        any::<prop::sample::Index>().prop_map(VecOperation::Set),
        Just(VecOperation::KeepClone),
    ]
}

fn contents(series: &PersistentVec<u64>) -> Vec<(u64, u64)> {
    series.iter().map(|(position, item)| (position, *item)).collect()
}

proptest! {
    #[test]
    fn a_series_is_a_list_and_its_clones_stay_as_they_were(steps in proptest::collection::vec(any_vec_operation(), 1..20)) {
        let mut series = PersistentVec::default();
        let mut list: Vec<(u64, u64)> = Vec::new();
        let mut kept = Vec::new();
        let mut next = 0;
        for step in steps {
            match step {
                VecOperation::Push(times) => for _ in 0..times {
                    prop_assert_eq!(series.push(next), next);
                    list.push((next, next));
                    next += 1;
                },
                VecOperation::Pop(times) => for _ in 0..times {
                    let oldest = (!list.is_empty()).then(|| list.remove(0));
                    prop_assert_eq!(series.pop_front(), oldest);
                },
                VecOperation::Set(at) => if !list.is_empty() {
                    let at = at.index(list.len());
                    list[at].1 += 1_000_000;
                    *series.slot_mut(list[at].0) = Some(list[at].1);
                },
                VecOperation::KeepClone => kept.push((series.clone(), list.clone())),
            }
            prop_assert_eq!(contents(&series), list.clone());
            prop_assert_eq!(series.len(), list.len() as u64);
        }
        for (series, list) in kept {
            prop_assert_eq!(contents(&series), list);
        }
    }
}

#[test]
fn a_position_that_is_gone_or_not_there_yet_has_nothing() {
    let mut series: PersistentVec<u64> = (0..70).fold(PersistentVec::default(), |mut series, item| {
        series.push(item);
        series
    });
    for _ in 0..40 {
        series.pop_front();
    }
    let at = |position| series.get(position).copied();
    assert_eq!(
        [at(0), at(31), at(39), at(40), at(69), at(70), at(5000)],
        [None, None, None, Some(40), Some(69), None, None]
    );
}

#[test]
fn a_place_far_off_can_be_written() {
    let mut series = PersistentVec::default();
    *series.slot_mut(5000) = Some('a');
    *series.slot_mut(3) = Some('b');
    assert_eq!(series.iter().collect::<Vec<_>>(), [(3, &'b'), (5000, &'a')]);
}

fn count_nodes<T>(node: &VecNode<T>) -> usize {
    match node {
        VecNode::Leaf(_) => 1,
        VecNode::Branch(children) => {
            1 + children.iter().flatten().map(|child| count_nodes(child)).sum::<usize>()
        }
    }
}

#[test]
fn what_left_at_the_front_leaves_no_nodes_behind() {
    let mut series = PersistentVec::default();
    for item in 0..100_000 {
        series.push(item);
        if series.len() > 100 {
            series.pop_front();
        }
    }
    // 100 items occupy four or five leaves, under branches of heights 1, 2 and 3.
    assert!(count_nodes(&series.root) <= 10, "{}", count_nodes(&series.root));
}

#[test]
fn a_series_that_was_full_and_is_empty_has_only_its_root() {
    let mut series = PersistentVec::default();
    for item in 0..32 * 32 {
        series.push(item);
    }
    while series.pop_front().is_some() {}
    assert_eq!((series.len(), count_nodes(&series.root)), (0, 1));
}

#[test]
fn a_change_copies_the_way_to_its_place_and_only_while_a_clone_looks() {
    let mut series = PersistentVec::default();
    for item in 0..32 * 32 {
        series.push(item);
    }
    let copied = |series: &mut PersistentVec<i32>, item| {
        let before = work::total();
        *series.slot_mut(500) = Some(item);
        work::total() - before
    };
    assert_eq!(copied(&mut series, 1), 0);
    let clone = series.clone();
    assert_eq!(copied(&mut series, 2), 64);
    assert_eq!(copied(&mut series, 3), 0);
    assert_eq!((clone.get(500), series.get(500)), (Some(&1), Some(&3)));
}
