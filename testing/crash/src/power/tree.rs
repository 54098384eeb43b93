//! Folders and files: the names as the system shows them, and as they are on the medium.
//!
//! The rules, of POSIX and no better: a change of names is safe once its folder was synced, a rename once either of its two
//! folders was. A rename happens or does not, as a whole. Changes of one folder become safe in their order; those of different
//! folders in any, except that a change needs those of the same file and the same name before it. Syncing a file makes nothing of
//! its name safe, syncing a folder nothing of its own.

use super::content::Content;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// The number of a file or folder, never used again. The root has 1.
pub(crate) type Node = u64;

/// The folder that is mounted.
pub(crate) const ROOT: Node = 1;

/// Names of a folder.
pub(crate) type Entries = BTreeMap<Vec<u8>, Node>;

#[derive(Debug, Default)]
pub(crate) struct Folder {
    pub(crate) live: Entries,
    safe: Entries,
}

#[derive(Debug)]
pub(crate) enum Body {
    File(Content),
    Folder(Folder),
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) body: Body,
    /// Below the mount, as it was last called; for messages and for faults of chosen files.
    pub(crate) path: String,
    /// Times it is open.
    pub(crate) opens: u32,
    /// When it was last written to.
    pub(crate) written: SystemTime,
}

/// A change of names that is not safe.
#[derive(Debug)]
struct Change {
    folder: Node,
    name: Vec<u8>,
    node: Node,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Add,
    Remove,
    /// Moved here from there.
    Rename {
        folder: Node,
        name: Vec<u8>,
    },
}

impl Change {
    fn names(&self) -> impl Iterator<Item = (Node, &[u8])> {
        let from = match &self.kind {
            Kind::Rename { folder, name } => Some((*folder, &name[..])),
            _ => None,
        };
        std::iter::once((self.folder, &self.name[..])).chain(from)
    }

    fn needs(&self, earlier: &Change) -> bool {
        self.folder == earlier.folder
            || self.node == earlier.node
            || self.names().any(|name| earlier.names().any(|other| name == other))
    }
}

/// Why a request on names is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NotFound,
    Exists,
    NotFolder,
    IsFolder,
    NotEmpty,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    items: BTreeMap<Node, Item>,
    pending: Vec<Change>,
    next: Node,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let root =
            Item { body: Body::Folder(Folder::default()), path: String::new(), opens: 0, written: SystemTime::now() };
        Tree { items: BTreeMap::from([(ROOT, root)]), pending: Vec::new(), next: ROOT + 1 }
    }

    pub(crate) fn item(&self, node: Node) -> Result<&Item, Refused> {
        self.items.get(&node).ok_or(Refused::NotFound)
    }

    pub(crate) fn item_mut(&mut self, node: Node) -> Result<&mut Item, Refused> {
        self.items.get_mut(&node).ok_or(Refused::NotFound)
    }

    pub(crate) fn file(&mut self, node: Node) -> Result<&mut Content, Refused> {
        match &mut self.item_mut(node)?.body {
            Body::File(content) => Ok(content),
            Body::Folder(_) => Err(Refused::IsFolder),
        }
    }

    pub(crate) fn folder(&mut self, node: Node) -> Result<&mut Folder, Refused> {
        match &mut self.item_mut(node)?.body {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) => Err(Refused::NotFolder),
        }
    }

    pub(crate) fn lookup(&mut self, folder: Node, name: &[u8]) -> Result<Node, Refused> {
        self.folder(folder)?.live.get(name).copied().ok_or(Refused::NotFound)
    }

    fn path(&self, folder: Node, name: &[u8]) -> String {
        let above = self.items.get(&folder).map_or("", |item| &item.path);
        let slash = if above.is_empty() { "" } else { "/" };
        format!("{above}{slash}{}", String::from_utf8_lossy(name))
    }

    /// A new file or folder.
    pub(crate) fn add(&mut self, folder: Node, name: &[u8], body: Body) -> Result<Node, Refused> {
        if self.folder(folder)?.live.contains_key(name) {
            return Err(Refused::Exists);
        }
        let (node, path) = (self.next, self.path(folder, name));
        self.next += 1;
        self.items.insert(node, Item { body, path, opens: 0, written: SystemTime::now() });
        self.folder(folder)?.live.insert(name.to_vec(), node);
        self.pending.push(Change { folder, name: name.to_vec(), node, kind: Kind::Add });
        Ok(node)
    }

    /// Takes a name away: of a file, or of an empty folder.
    pub(crate) fn remove(&mut self, folder: Node, name: &[u8], is_folder: bool) -> Result<(), Refused> {
        let node = self.lookup(folder, name)?;
        match &self.item(node)?.body {
            Body::Folder(_) if !is_folder => return Err(Refused::IsFolder),
            Body::File(_) if is_folder => return Err(Refused::NotFolder),
            Body::Folder(inner) if !inner.live.is_empty() => return Err(Refused::NotEmpty),
            _ => {}
        }
        self.folder(folder)?.live.remove(name);
        self.pending.push(Change { folder, name: name.to_vec(), node, kind: Kind::Remove });
        self.sweep();
        Ok(())
    }

    /// Renames a file, over another one if there is one.
    pub(crate) fn rename(&mut self, from: (Node, &[u8]), to: (Node, &[u8])) -> Result<(), Refused> {
        let node = self.lookup(from.0, from.1)?;
        if self.folder(to.0)?.live.get(to.1) == Some(&node) {
            return Ok(());
        }
        self.file(node)?;
        self.folder(from.0)?.live.remove(from.1);
        self.folder(to.0)?.live.insert(to.1.to_vec(), node);
        self.item_mut(node)?.path = self.path(to.0, to.1);
        let kind = Kind::Rename { folder: from.0, name: from.1.to_vec() };
        self.pending.push(Change { folder: to.0, name: to.1.to_vec(), node, kind });
        self.sweep();
        Ok(())
    }

    /// A folder was synced.
    pub(crate) fn sync(&mut self, folder: Node) {
        let chosen = self.pending.iter().map(|change| change.names().any(|(f, _)| f == folder)).collect();
        self.make_safe(chosen);
        self.sweep();
    }

    /// Changes of names that are not safe.
    pub(crate) fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// The power is gone. `below(n)` says how many of a folder's `n` changes were made. How many changes were kept, and how many
    /// undone.
    pub(crate) fn cut(&mut self, mut below: impl FnMut(usize) -> usize) -> (usize, usize) {
        let all = self.pending.len();
        let folders: BTreeSet<Node> = self.pending.iter().map(|change| change.folder).collect();
        let mut chosen = vec![false; all];
        for folder in folders {
            let of: Vec<usize> = (0..all).filter(|i| self.pending[*i].folder == folder).collect();
            let kept = below(of.len());
            of.iter().take(kept).for_each(|i| chosen[*i] = true);
        }
        self.make_safe(chosen);
        let undone = self.pending.len();
        self.pending.clear();
        for item in self.items.values_mut() {
            item.opens = 0;
            if let Body::Folder(folder) = &mut item.body {
                folder.live = folder.safe.clone();
            }
        }
        self.sweep();
        self.name_again(ROOT);
        (all - undone, undone)
    }

    /// Paths after a cut: what was renamed may be called as before.
    fn name_again(&mut self, folder: Node) {
        let Ok(Folder { live, .. }) = self.folder(folder) else { return };
        for (name, node) in live.clone() {
            let path = self.path(folder, &name);
            if let Ok(item) = self.item_mut(node) {
                item.path = path;
            }
            self.name_again(node);
        }
    }

    /// The chosen changes and those that they need happen on the medium.
    fn make_safe(&mut self, mut chosen: Vec<bool>) {
        for later in (0..chosen.len()).rev().filter(|i| chosen[*i]).collect::<Vec<_>>() {
            self.choose_needed(later, &mut chosen);
        }
        let mut chosen = chosen.into_iter();
        let (safe, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|_| chosen.next() == Some(true));
        self.pending = rest;
        for Change { folder, name, node, kind } in safe {
            if let Kind::Rename { folder, name } = &kind
                && let Ok(from) = self.folder(*folder)
            {
                from.safe.remove(name);
            }
            let Ok(at) = self.folder(folder) else { continue };
            match kind {
                Kind::Remove => drop(at.safe.remove(&name)),
                Kind::Add | Kind::Rename { .. } => drop(at.safe.insert(name, node)),
            }
        }
    }

    fn choose_needed(&self, later: usize, chosen: &mut [bool]) {
        for earlier in (0..later).rev() {
            if !chosen[earlier] && self.pending[later].needs(&self.pending[earlier]) {
                chosen[earlier] = true;
                self.choose_needed(earlier, chosen);
            }
        }
    }

    /// Forgets files and folders that have no name, neither seen nor safe nor on the way, and are not open.
    pub(crate) fn sweep(&mut self) {
        let mut named: BTreeSet<Node> = self.pending.iter().map(|change| change.node).collect();
        named.insert(ROOT);
        for item in self.items.values() {
            if let Body::Folder(Folder { live, safe }) = &item.body {
                named.extend(live.values().chain(safe.values()));
            }
        }
        self.items.retain(|node, item| item.opens > 0 || named.contains(node));
    }

    /// All files, in the order of their making.
    pub(crate) fn files_mut(&mut self) -> impl Iterator<Item = &mut Content> {
        self.items.values_mut().filter_map(|item| match &mut item.body {
            Body::File(content) => Some(content),
            Body::Folder(_) => None,
        })
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Content> {
        self.items.values().filter_map(|item| match &item.body {
            Body::File(content) => Some(content),
            Body::Folder(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Body {
        Body::File(Content::default())
    }

    fn folder() -> Body {
        Body::Folder(Folder::default())
    }

    fn names(tree: &mut Tree, folder: Node) -> Vec<String> {
        let live = tree.folder(folder).map(|folder| folder.live.clone()).unwrap_or_default();
        live.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    /// With two folders that are safe.
    fn tree() -> (Tree, Node, Node) {
        let mut tree = Tree::new();
        let a = tree.add(ROOT, b"a", folder()).unwrap();
        let b = tree.add(ROOT, b"b", folder()).unwrap();
        tree.sync(ROOT);
        (tree, a, b)
    }

    fn lose_all(tree: &mut Tree) -> (usize, usize) {
        tree.cut(|_| 0)
    }

    #[test]
    fn names_are_safe_when_their_folder_was_synced() {
        let (mut tree, a, b) = tree();
        tree.add(a, b"1", file()).unwrap();
        tree.add(b, b"2", file()).unwrap();
        tree.sync(a);
        tree.add(a, b"3", file()).unwrap();
        assert_eq!(lose_all(&mut tree), (0, 2));
        assert_eq!((names(&mut tree, a), names(&mut tree, b)), (vec!["1".into()], vec![]));
    }

    #[test]
    fn a_folder_that_was_not_synced_above_is_lost_with_all_in_it() {
        let mut tree = Tree::new();
        let data = tree.add(ROOT, b"data", folder()).unwrap();
        tree.add(data, b"1", file()).unwrap();
        tree.sync(data);
        lose_all(&mut tree);
        assert_eq!(names(&mut tree, ROOT), Vec::<String>::new());
        assert!(tree.item(data).is_err());
    }

    #[test]
    fn changes_of_a_folder_are_kept_in_their_order() {
        for kept in 0..=3 {
            let (mut tree, a, _) = tree();
            for name in [b"1", b"2", b"3"] {
                tree.add(a, name, file()).unwrap();
            }
            assert_eq!(tree.cut(|n| kept.min(n)), (kept, 3 - kept));
            assert_eq!(names(&mut tree, a), ["1", "2", "3"][..kept]);
        }
    }

    #[test]
    fn a_rename_between_folders_happens_or_does_not() {
        for synced in [None, Some(true), Some(false)] {
            let (mut tree, a, b) = tree();
            tree.add(a, b"1", file()).unwrap();
            tree.rename((a, b"1"), (b, b"2")).unwrap();
            match synced {
                None => {}
                Some(true) => tree.sync(b),
                Some(false) => tree.sync(a),
            }
            lose_all(&mut tree);
            let expected: &[&str] = if synced.is_some() { &["2"] } else { &[] };
            assert_eq!(names(&mut tree, b), expected, "{synced:?}");
            assert_eq!(names(&mut tree, a), Vec::<String>::new());
        }
    }

    #[test]
    fn a_name_used_again_needs_what_freed_it() {
        let (mut tree, a, b) = tree();
        let first = tree.add(a, b"1", file()).unwrap();
        tree.sync(a);
        tree.rename((a, b"1"), (b, b"2")).unwrap();
        tree.add(a, b"1", file()).unwrap();
        // Only the new name is chosen: the first file must not be lost by that.
        tree.sync(a);
        lose_all(&mut tree);
        assert_eq!(tree.lookup(b, b"2"), Ok(first));
        assert_ne!(tree.lookup(a, b"1"), Ok(first));
    }

    #[test]
    fn what_was_unlinked_may_come_back_with_its_content() {
        let (mut tree, a, _) = tree();
        let node = tree.add(a, b"1", file()).unwrap();
        tree.file(node).unwrap().write(0, b"here", 1);
        let number = tree.file(node).unwrap().number();
        tree.file(node).unwrap().sync(number);
        tree.sync(a);
        tree.remove(a, b"1", false).unwrap();
        assert_eq!(names(&mut tree, a), Vec::<String>::new());
        lose_all(&mut tree);
        assert_eq!(tree.file(node).unwrap().read(0, 9), b"here");
        tree.remove(a, b"1", false).unwrap();
        tree.sync(a);
        assert!(tree.item(node).is_err(), "nothing is kept of what has no name");
    }
}
