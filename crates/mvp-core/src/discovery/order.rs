//! The merge of several orders of names into one. Entry item: [`merge_order`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::{HashMap, HashSet};

/// Merges lists of names as Kubernetes does, so that every member of a cluster has the same order. A
/// list with all names is the result. Otherwise neighbours keep their order, and names that no list
/// orders are sorted. If the lists contradict each other, all names are sorted.
pub fn merge_order<'a>(lists: &[Vec<&'a str>]) -> Vec<&'a str> {
    let names: HashSet<&str> = lists.iter().flatten().copied().collect();
    let complete = |list: &&Vec<&str>| {
        list.len() == names.len() && list.iter().collect::<HashSet<_>>().len() == list.len()
    };
    if let Some(list) = lists.iter().find(complete) {
        return list.clone();
    }
    sort_by_neighbours(lists).unwrap_or_else(|| {
        let mut sorted: Vec<&str> = names.into_iter().collect();
        sorted.sort_unstable();
        sorted
    })
}

/// Kahn's topological sort, the smallest name first among those that are free; `None` on a cycle.
fn sort_by_neighbours<'a>(lists: &[Vec<&'a str>]) -> Option<Vec<&'a str>> {
    #[derive(Default)]
    struct Node<'a> {
        before: usize,
        after: HashSet<&'a str>,
    }
    let mut nodes: HashMap<&str, Node<'a>> = HashMap::new();
    for list in lists {
        for &name in list {
            nodes.entry(name).or_default();
        }
        for (&name, &next) in list.iter().zip(list.iter().skip(1)) {
            if nodes.entry(name).or_default().after.insert(next) {
                nodes.entry(next).or_default().before += 1;
            }
        }
    }

    let mut free: BinaryHeap<Reverse<&str>> =
        nodes.iter().filter(|(_, node)| node.before == 0).map(|(name, _)| Reverse(*name)).collect();
    let mut sorted = Vec::with_capacity(nodes.len());
    while let Some(Reverse(name)) = free.pop() {
        sorted.push(name);
        let after = nodes.get_mut(name).map(|node| std::mem::take(&mut node.after));
        for next in after.into_iter().flatten() {
            if let Some(node) = nodes.get_mut(next) {
                node.before -= 1;
                if node.before == 0 {
                    free.push(Reverse(next));
                }
            }
        }
    }
    (sorted.len() == nodes.len()).then_some(sorted)
}
