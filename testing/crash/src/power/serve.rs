//! Answers the kernel's requests: what the layer holds, its faults, and the moment at which it freezes.
//!
//! A few threads each take a request, work on the state under one lock, and answer. A sync takes time, without the lock, so that
//! there is something unsynced at any moment. A frozen layer answers nothing and changes nothing; its threads end.

use super::content::Content;
use super::fate::Drawn;
use super::protocol::{Answer, BUFFER, Head, Looks, Request, decode, errno};
use super::tree::{Body, Folder, Node, Refused, Tree};
use super::{Fault, Faulty, Moment, Options, Pages, STALL_EACH, Side, Traffic};
use crate::random::Random;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The names of an opened folder, as they were then.
type Listing = Vec<(Vec<u8>, Node, bool)>;

pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) frozen: bool,
    /// Where to freeze, and after how many more of these.
    pub(crate) at: Option<(Moment, Side, u32)>,
    pub(crate) faults: Vec<Fault>,
    /// When a fault first struck, and how often any did.
    pub(crate) failed: Option<(Instant, u64)>,
    pub(crate) traffic: Traffic,
    pub(crate) listings: BTreeMap<u64, Listing>,
    pub(crate) next_listing: u64,
    /// For what a failed sync leaves.
    pub(crate) random: Random,
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Told when the layer freezes, and when a fault strikes.
    pub(crate) news: Condvar,
    pub(crate) options: Options,
}

/// No answer, now or ever: the layer is frozen.
struct Frozen;

type Outcome = Result<Result<Answer, i32>, Frozen>;

impl From<Refused> for i32 {
    fn from(refused: Refused) -> i32 {
        match refused {
            Refused::NotFound => errno::ENOENT,
            Refused::Exists => errno::EEXIST,
            Refused::NotFolder => errno::ENOTDIR,
            Refused::IsFolder => errno::EISDIR,
            Refused::NotEmpty => errno::ENOTEMPTY,
        }
    }
}

impl State {
    /// A request of that kind is to be done, or was: freezes if its time has come.
    fn pass(&mut self, moment: Moment, side: Side) -> bool {
        if let Some((of, at, more)) = &mut self.at
            && (*of, *at) == (moment, side)
        {
            match more.checked_sub(1) {
                Some(fewer) => *more = fewer,
                None => self.frozen = true,
            }
        }
        self.frozen
    }

    /// The fault that strikes this request, if one does.
    fn fault(&mut self, op: Faulty, node: Node) -> Option<Pages> {
        let path = self.tree.item(node).map(|item| item.path.clone()).unwrap_or_default();
        let fault = self.faults.iter_mut().find(|fault| fault.op == op && path.contains(&fault.path))?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times = fault.times.checked_sub(1)?;
        let (since, times) = self.failed.unwrap_or((Instant::now(), 0));
        self.failed = Some((since, times + 1));
        Some(fault.pages)
    }

    fn looks(&self, node: Node) -> Result<Looks, Refused> {
        let item = self.tree.item(node)?;
        let written = item.written.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (size, is_folder) = match &item.body {
            Body::File(content) => (content.size() as u64, false),
            Body::Folder(_) => (4096, true),
        };
        Ok(Looks { node, size, is_folder, written })
    }

    fn used(&self) -> usize {
        self.tree.files().map(Content::size).sum()
    }

    fn opened(&mut self, node: Node) -> Result<(), Refused> {
        self.tree.item_mut(node)?.opens += 1;
        Ok(())
    }

    fn list(&mut self, node: Node) -> Result<u64, Refused> {
        let live: Vec<(Vec<u8>, Node)> = self.tree.folder(node)?.live.clone().into_iter().collect();
        let is_folder = |node| self.tree.item(node).is_ok_and(|item| matches!(item.body, Body::Folder(_)));
        let listing = live.into_iter().map(|(name, node)| (name, node, is_folder(node))).collect();
        self.next_listing += 1;
        self.listings.insert(self.next_listing, listing);
        Ok(self.next_listing)
    }

    fn release(&mut self, node: Node) {
        if let Ok(item) = self.tree.item_mut(node) {
            item.opens = item.opens.saturating_sub(1);
            if item.opens == 0 {
                self.tree.sweep();
            }
        }
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under this lock")
    }

    /// Takes requests and answers them, until the layer is frozen or unmounted.
    pub(crate) fn work(&self, device: &File) {
        let mut buffer = vec![0; BUFFER];
        loop {
            let bytes = match rustix::io::read(device, &mut buffer[..]) {
                Ok(length) => &buffer[..length],
                // Whoever asked is gone; a signal.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                Err(_unmounted) => return,
            };
            let Some((head, request)) = decode(bytes) else { continue };
            if matches!(request, Request::Silent) {
                continue;
            }
            let answer = match self.answer(head, &request) {
                Ok(Ok(answer)) => answer.finish(head.unique),
                Ok(Err(errno)) => Answer::error(errno, head.unique),
                Err(Frozen) => return,
            };
            // It fails when whoever asked was killed meanwhile.
            let _gone = (&*device).write(&answer);
        }
    }

    fn answer(&self, head: Head, request: &Request<'_>) -> Outcome {
        let mut state = self.lock();
        let moment = match request {
            Request::Write { .. } => Some(Moment::Write),
            Request::Sync | Request::SyncFolder => Some(Moment::Sync),
            Request::Create { .. } | Request::Rename { .. } | Request::Remove { .. } => Some(Moment::Name),
            _ => None,
        };
        if state.frozen || moment.is_some_and(|moment| state.pass(moment, Side::Before)) {
            self.news.notify_all();
            return Err(Frozen);
        }
        let (mut state, answer) = match request {
            Request::Sync | Request::SyncFolder => self.sync(state, head.node)?,
            Request::Create { .. } | Request::Rename { .. } | Request::Remove { .. }
                if state.fault(Faulty::Name, head.node).is_some() =>
            {
                self.news.notify_all();
                (state, Err(errno::EIO))
            }
            request => {
                let answer = self.change(&mut state, head, request);
                (state, answer)
            }
        };
        let overlaps = moment == Some(Moment::Write) && state.tree.file(head.node).is_ok_and(|file| file.overlaps());
        if moment.is_some_and(|moment| state.pass(moment, Side::After))
            || (overlaps && state.pass(Moment::Overlap, Side::After))
        {
            self.news.notify_all();
            return Err(Frozen);
        }
        let stalls = moment == Some(Moment::Write) && state.traffic.writes % STALL_EACH == 0;
        drop(state);
        if stalls {
            wait(self.options.stall);
        }
        Ok(answer)
    }

    /// What was written before a sync begins is safe when it ends.
    fn sync<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        node: Node,
    ) -> Result<(MutexGuard<'a, State>, Result<Answer, i32>), Frozen> {
        state.traffic.syncs += 1;
        let begun = state.tree.file(node).map(|content| content.number());
        let fault = state.fault(if begun.is_ok() { Faulty::Sync } else { Faulty::SyncFolder }, node);
        drop(state);
        wait(self.options.sync);
        let mut guard = self.lock();
        if guard.frozen {
            return Err(Frozen);
        }
        let state = &mut *guard;
        let answer = match (fault, begun) {
            (Some(pages), _) => {
                if let (Pages::Dropped, Ok(begun), Ok(content)) = (pages, begun, state.tree.file(node)) {
                    content.drop_pages(begun, &mut Drawn::some(&mut state.random));
                }
                self.news.notify_all();
                Err(errno::EIO)
            }
            (None, Ok(begun)) => {
                // It may have been unlinked and closed meanwhile.
                if let Ok(content) = state.tree.file(node) {
                    content.sync(begun);
                }
                Ok(Answer::empty())
            }
            (None, Err(_)) => {
                state.tree.sync(node);
                Ok(Answer::empty())
            }
        };
        Ok((guard, answer))
    }

    fn change(&self, state: &mut State, head: Head, request: &Request<'_>) -> Result<Answer, i32> {
        let node = head.node;
        let full = |state: &State, more: usize| state.used() + more > self.options.bytes;
        match *request {
            Request::Init => Ok(Answer::init()),
            Request::Lookup { name } => {
                let node = state.tree.lookup(node, name)?;
                Ok(Answer::entry(state.looks(node)?))
            }
            Request::Attributes | Request::SetOther => Ok(Answer::attributes(state.looks(node)?)),
            Request::Resize { size } => {
                let size = usize::try_from(size).map_err(|_| errno::EINVAL)?;
                let more = size.saturating_sub(state.tree.file(node)?.size());
                if full(state, more) {
                    return Err(errno::ENOSPC);
                }
                state.tree.file(node)?.resize(size);
                Ok(Answer::attributes(state.looks(node)?))
            }
            Request::MakeFolder { name } => {
                let node = state.tree.add(node, name, Body::Folder(Folder::default()))?;
                Ok(Answer::entry(state.looks(node)?))
            }
            Request::Create { name } => {
                let node = state.tree.add(node, name, Body::File(Content::default()))?;
                state.opened(node)?;
                Ok(Answer::entry(state.looks(node)?).opened(0, true))
            }
            Request::Remove { name, is_folder } => {
                state.tree.remove(node, name, is_folder)?;
                Ok(Answer::empty())
            }
            Request::Rename { from, folder, to } => {
                state.tree.rename((node, from), (folder, to))?;
                Ok(Answer::empty())
            }
            Request::Open => {
                state.opened(node)?;
                Ok(Answer::empty().opened(0, true))
            }
            Request::Release => {
                state.release(node);
                Ok(Answer::empty())
            }
            Request::Read { offset, size } => {
                Ok(Answer::bytes(state.tree.file(node)?.read(offset as usize, size as usize)))
            }
            Request::Write { offset, bytes } => {
                let offset = usize::try_from(offset).map_err(|_| errno::EINVAL)?;
                if state.fault(Faulty::Write, node).is_some() {
                    self.news.notify_all();
                    return Err(errno::EIO);
                }
                let more = (offset + bytes.len()).saturating_sub(state.tree.file(node)?.size());
                if more > 0 && full(state, more) {
                    return Err(errno::ENOSPC);
                }
                state.tree.file(node)?.write(offset, bytes, head.thread);
                state.tree.item_mut(node)?.written = SystemTime::now();
                state.traffic.writes += 1;
                state.traffic.bytes += bytes.len() as u64;
                Ok(Answer::written(bytes.len()))
            }
            Request::Allocate { other: true, .. } => Err(errno::EOPNOTSUPP),
            Request::Allocate { end, keep_size, .. } => {
                let end = usize::try_from(end).map_err(|_| errno::EINVAL)?;
                let more = end.saturating_sub(state.tree.file(node)?.size());
                if full(state, more) {
                    return Err(errno::ENOSPC);
                }
                if more > 0 && !keep_size {
                    state.tree.file(node)?.resize(end);
                }
                Ok(Answer::empty())
            }
            Request::Space => {
                let (all, used) = (self.options.bytes / 4096, state.used().div_ceil(4096));
                Ok(Answer::space(all as u64, all.saturating_sub(used) as u64))
            }
            Request::OpenFolder => Ok(Answer::empty().opened(state.list(node)?, false)),
            Request::ReadFolder { handle, offset, size } => {
                let mut answer = Answer::empty();
                let listing = state.listings.get(&handle).ok_or(errno::EINVAL)?;
                for (at, (name, node, is_folder)) in listing.iter().enumerate().skip(offset as usize) {
                    if !answer.name(size as usize, *node, at as u64 + 1, *is_folder, name) {
                        break;
                    }
                }
                Ok(answer)
            }
            Request::ReleaseFolder { handle } => {
                state.listings.remove(&handle);
                Ok(Answer::empty())
            }
            Request::Sync | Request::SyncFolder | Request::Silent | Request::Other => Err(errno::ENOSYS),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a real disk takes time, and in that time the power fails")]
fn wait(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}
