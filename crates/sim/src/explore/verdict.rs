//! The end of a run: everything is written, and judged.

use std::collections::{BTreeMap, BTreeSet};

use meta::FileKind;
use types::Ino;
use vfs::{Reply, Request};

use super::history::{Ending, Facts, Item, Judge};
use super::run::Run;
use crate::check::Tree;

impl Run {
    /// Lets everything come to rest, and says whether all of it may be so.
    ///
    /// # Errors
    ///
    /// What must not be and is.
    pub fn judge(&mut self) -> Result<(), String> {
        self.cluster.quiesce();
        // A membership may have ended that its node had not heard of: it joins anew.
        self.bury_ended();
        self.cluster.quiesce();
        let tree = Tree::read(self.cluster.engine());
        let faults = tree.faults();
        if !faults.is_empty() {
            return Err(format!("the records are not whole: {}", faults.join("; ")));
        }
        let open: BTreeSet<u64> =
            self.processes.iter().filter(|p| !p.is_dead).flat_map(|p| p.opens()).collect();
        if let Some(orphan) = tree.orphans().iter().find(|ino| !open.contains(&ino.0)) {
            return Err(format!("inode {orphan} has no name, is not open, and is still there"));
        }
        let ending = self.ending(&tree)?;
        let first = self.places.model();
        let all_died = self.died.len() == self.processes.len();
        for process in 0..self.processes.len() {
            let items = as_seen_by(process, &self.items);
            if !Judge::new(&items, &ending, &first).explains(&first, &self.died, all_died) {
                let items: Vec<String> = items.iter().map(|item| format!("  {item:?}")).collect();
                return Err(format!("no order explains\n{}\nand in the end {ending:?}", items.join("\n")));
            }
        }
        for node in self.cluster.nodes_up() {
            self.check_kernel(node, &ending)?;
        }
        self.check_names(&ending)
    }

    fn ending(&self, tree: &Tree) -> Result<Ending, String> {
        let mut ending = Ending { names: BTreeMap::new(), files: BTreeMap::new() };
        for dir in tree.directories() {
            let names = tree.names(dir);
            for ino in names.values() {
                let Some((attr, content)) = tree.inode(*ino) else { continue };
                if attr.kind == FileKind::Directory {
                    continue;
                }
                let facts = Facts::File { mode: attr.mode, nlink: attr.nlink, size: content.size };
                ending.files.insert(ino.0, (facts, tree.data(*ino, self.cluster.store())?));
            }
            ending.names.insert(dir.0, names.into_iter().map(|(name, ino)| (name, ino.0)).collect());
        }
        Ok(ending)
    }

    /// What a kernel shows without asking is true.
    fn check_kernel(&mut self, node: usize, ending: &Ending) -> Result<(), String> {
        let kernel = self.cluster.kernel(node);
        for ((dir, name), found) in &kernel.names {
            let there = ending.names.get(&dir.0).and_then(|names| names.get(name)).copied();
            if there != found.map(|ino| ino.0) {
                let name = String::from_utf8_lossy(name);
                return Err(format!("the kernel of node {node} has {dir}/{name} = {found:?}, not {there:?}"));
            }
        }
        for (ino, attr) in &kernel.attrs {
            let there = ending.files.get(&ino.0).map(|(facts, _)| *facts);
            if there.is_some_and(|facts| facts != Facts::of(attr)) {
                return Err(format!("the kernel of node {node} has {attr:?}, not {there:?}"));
            }
        }
        for (ino, pages) in &kernel.pages {
            let there = ending.files.get(&ino.0).map(|(_, data)| data);
            if there.is_some_and(|data| data != pages) {
                return Err(format!("the kernel of node {node} has pages {pages:?} of {ino}, not {there:?}"));
            }
        }
        Ok(())
    }

    /// Every node finds every name.
    fn check_names(&mut self, ending: &Ending) -> Result<(), String> {
        for node in self.cluster.nodes_up() {
            for (dir, names) in &ending.names {
                for (name, ino) in names {
                    if self.cluster.kernel(node).names.contains_key(&(Ino(*dir), name.clone())) {
                        continue;
                    }
                    let lookup = Request::Lookup { parent: Ino(*dir), name: name.clone().into() };
                    match self.cluster.call(node, lookup) {
                        Reply::Entry(entry) if entry.attr.ino.0 == *ino => {
                            let facts = Facts::of(&entry.attr);
                            let there = ending.files.get(ino).map(|(facts, _)| *facts);
                            if there.is_some_and(|there| there != facts) {
                                return Err(format!("node {node} finds {facts:?} of {ino}, not {there:?}"));
                            }
                        }
                        other => {
                            let name = String::from_utf8_lossy(name);
                            return Err(format!("node {node} answers a lookup of {dir}/{name} by {other:?}"));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A history as one process saw it: what it did itself, and whatever others changed or were refused to change. What
/// others saw of a change that had not returned is theirs alone (docs/semantics.md, "A change that is under way").
fn as_seen_by(process: usize, items: &[Item]) -> Vec<Item> {
    let is_kept = |item: &Item| item.process == process || item.is_told_to_all();
    let kept: Vec<usize> = (0..items.len()).filter(|index| is_kept(&items[*index])).collect();
    let renumber = |after: u64| {
        let old = kept.iter().enumerate().filter(|(_, old)| after & 1 << **old != 0);
        old.fold(0, |all, (new, _)| all | 1 << new)
    };
    kept.iter().map(|old| Item { after: renumber(items[*old].after), ..items[*old].clone() }).collect()
}
