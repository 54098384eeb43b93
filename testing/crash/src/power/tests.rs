//! The layer through its mount: what the system shows, what a cut leaves, what a failed sync says.

use super::*;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;

/// Syncs at once: nothing here is about time.
const QUICK: Options = Options { sync: Duration::ZERO, stall: Duration::ZERO, bytes: 64 << 20 };

fn layer(dir: &tempfile::TempDir) -> Option<Layer> {
    Layer::or_skip(&dir.path().join("disk"), QUICK)
}

fn create(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

fn sync_folder(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn it_is_a_file_system_as_the_broker_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(layer) = layer(&dir) else { return };
    let folder = layer.path().join("data/journal");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("1.seg");
    let file = create(&path);
    fallocate(&file, FallocateFlags::empty(), 0, 5 << 20).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 5 << 20);
    // More than one request carries.
    let bytes: Vec<u8> = (0..3 << 20).map(|i| (i / 7) as u8).collect();
    file.write_all_at(&bytes, 4096).unwrap();
    file.sync_data().unwrap();
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, 4096).unwrap();
    assert!(back == bytes);
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    file.read_exact_at(&mut back, 4096).unwrap();
    assert!(back == bytes, "also from below the page cache");
    file.set_len(10).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 10]);

    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let other = File::open(&path).unwrap();
    assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err(), "it is locked");
    let to = layer.path().join("data/2.free");
    fs::rename(&path, &to).unwrap();
    assert!(!path.exists() && to.exists());
    assert_eq!(
        File::options().write(true).create_new(true).open(&to).unwrap_err().kind(),
        std::io::ErrorKind::AlreadyExists
    );
    fs::remove_file(&to).unwrap();
    file.write_all_at(b"open without a name", 0).unwrap();
    assert!(fs::remove_file(&to).unwrap_err().kind() == std::io::ErrorKind::NotFound);
    for i in 0..500 {
        create(&folder.join(format!("{i:03}")));
    }
    let all = names(&folder);
    assert!(all.len() == 500 && all[17] == "017");
    let space = rustix::fs::statvfs(layer.path()).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, QUICK.bytes as u64);
    let error = fallocate(&file, FallocateFlags::empty(), 0, 65 << 20).unwrap_err();
    assert_eq!(error, rustix::io::Errno::NOSPC);
}

#[test]
fn what_was_synced_survives_each_cut_and_what_was_not_may_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut layer) = layer(&dir) else { return };
    let path = layer.path().join("kept");
    let file = create(&path);
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.sync_data().unwrap();
    sync_folder(layer.path());
    drop(file);
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[2; 8192], 0).unwrap();
        create(&layer.path().join("new"));
        assert_eq!(layer.unsynced(), (1, 8192, 1));
        drop(file);
        let did = layer.cut(&mut Random::new(seed));
        assert_eq!((did.cuts, did.sectors_kept + did.sectors_lost, did.names_kept + did.names_undone), (1, 16, 1));
        let content = fs::read(&path).unwrap();
        // Whole sectors, old or new, and nothing else; as many as the report says.
        let new = content.chunks(512).filter(|sector| **sector == [2; 512]).count();
        let old = content.chunks(512).filter(|sector| **sector == [1; 512]).count();
        assert_eq!((old + new, new as u64), (16, did.sectors_kept), "seed {seed}");
        assert_eq!(layer.path().join("new").exists(), did.names_kept == 1);
        seen.insert(match new {
            0 => "nothing",
            16 => "all",
            _ => "torn",
        });
        seen.insert(if did.names_kept == 1 { "created" } else { "not created" });
        // Back to the beginning.
        let _ = fs::remove_file(layer.path().join("new"));
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        file.sync_all().unwrap();
        sync_folder(layer.path());
    }
    assert_eq!(seen.len(), 5, "each fate comes: {seen:?}");
}

#[test]
fn a_rename_that_was_not_synced_may_be_undone_and_one_that_was_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut layer) = layer(&dir) else { return };
    let [a, b] = ["a", "b"].map(|name| layer.path().join(name));
    for folder in [&a, &b] {
        fs::create_dir(folder).unwrap();
    }
    sync_folder(layer.path());
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let [old, new] = [a.join("old"), b.join("new")];
        let file = create(&old);
        // The name is synced, the content is not.
        file.write_all_at(b"content", 0).unwrap();
        sync_folder(&a);
        fs::rename(&old, &new).unwrap();
        if seed % 2 == 0 {
            sync_folder(&b);
        }
        drop(file);
        layer.cut(&mut Random::new(seed));
        let found = (names(&a), names(&b));
        let renamed = found == (vec![], vec!["new".into()]);
        assert!(renamed || found == (vec!["old".into()], vec![]), "one name, not both, not none: {found:?}");
        assert!(renamed || seed % 2 == 1, "it was synced");
        let path = if renamed { &new } else { &old };
        let content = fs::read(path).unwrap();
        let zeros = content.iter().all(|byte| *byte == 0) && (content.is_empty() || content.len() == 7);
        assert!(content == b"content" || zeros, "{content:?}");
        seen.insert((seed % 2 == 0, renamed, content == b"content"));
        fs::remove_file(path).unwrap();
        sync_folder(&a);
        sync_folder(&b);
    }
    assert_eq!(seen.len(), 6, "each fate comes: {seen:?}");
}

#[test]
fn a_frozen_layer_changes_nothing_and_answers_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut layer) = layer(&dir) else { return };
    let path = layer.path().join("file");
    // What it was told last is what there is; or what was synced behind its back.
    for (moment, side, more) in [(Moment::Write, Side::Before, 0), (Moment::Sync, Side::After, 1)] {
        let file = create(&path);
        file.write_all_at(&[0; 512], 0).unwrap();
        file.sync_all().unwrap();
        sync_folder(layer.path());
        // Writes, and is told that it is safe, again and again.
        let writer = std::thread::spawn(move || {
            let mut told = 0_u8;
            while file.write_all_at(&[told.wrapping_add(1); 512], 0).and_then(|()| file.sync_data()).is_ok() {
                told = told.wrapping_add(1);
            }
            told
        });
        assert!(layer.freeze_at(moment, side, 0, Duration::from_secs(60)), "the request comes");
        assert!(!writer.is_finished(), "it waits");
        layer.cut(&mut Random::new(3));
        let told = writer.join().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [told.wrapping_add(more); 512], "{moment:?} {side:?}");
        fs::remove_file(&path).unwrap();
        sync_folder(layer.path());
    }
    assert!(!layer.freeze_at(Moment::Write, Side::Before, 0, Duration::ZERO), "none came");
    layer.cut(&mut Random::new(4));
    fs::write(&path, b"it goes on").unwrap();
}

#[test]
fn a_failing_sync_says_so_and_leaves_its_pages_dirty_or_drops_them() {
    for pages in [Pages::Dirty, Pages::Dropped] {
        let dir = tempfile::tempdir().unwrap();
        let Some(layer) = layer(&dir) else { return };
        let path = layer.path().join("journal-1");
        let file = create(&path);
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.sync_data().unwrap();
        layer.fail(Fault { op: Faulty::Sync, path: "journal".into(), after: 1, times: 1, pages });
        file.sync_data().unwrap();
        file.write_all_at(&[2; 65536], 0).unwrap();
        assert_eq!(layer.failures(), 0);
        let error = file.sync_data().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(protocol::errno::EIO));
        assert!(layer.failures() == 1 && layer.until_failed(Duration::ZERO).is_some());
        // As systems do: the next one says that all is well, and so does the page cache.
        file.sync_data().unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), [2; 65536]);
        let file = File::open(&path).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let content = fs::read(&path).unwrap();
        let new = content.iter().filter(|byte| **byte == 2).count();
        match pages {
            Pages::Dirty => assert_eq!(new, 65536),
            Pages::Dropped => assert!(new > 0 && new < 65536, "some pages were written: {new}"),
        }
    }
}

#[test]
fn a_failing_write_writes_nothing_until_it_is_healed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(layer) = layer(&dir) else { return };
    let [broken, other] = ["ckpt.A", "other"].map(|name| layer.path().join(name));
    let file = create(&broken);
    layer.fail(Fault { op: Faulty::Write, path: "ckpt".into(), after: 0, times: u64::MAX, pages: Pages::Dirty });
    for _ in 0..3 {
        assert_eq!(file.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(protocol::errno::EIO));
    }
    fs::write(&other, b"fine").unwrap();
    layer.heal();
    assert_eq!(layer.failures(), 0);
    file.write_all_at(b"y", 0).unwrap();
    assert_eq!(fs::read(&broken).unwrap(), b"y");
}

#[test]
fn a_folder_s_sync_and_changes_of_its_names_may_fail() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut layer) = layer(&dir) else { return };
    let folder = layer.path().join("journal");
    fs::create_dir(&folder).unwrap();
    sync_folder(layer.path());
    create(&folder.join("1"));
    layer.fail(Fault { op: Faulty::SyncFolder, path: "journal".into(), after: 0, times: 1, pages: Pages::Dirty });
    let error = File::open(&folder).unwrap().sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(protocol::errno::EIO));
    layer.fail(Fault { op: Faulty::Name, path: "journal".into(), after: 0, times: 2, pages: Pages::Dirty });
    for failed in [fs::rename(folder.join("1"), folder.join("2")), fs::remove_file(folder.join("1"))] {
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(protocol::errno::EIO));
    }
    assert_eq!((layer.failures(), names(&folder)), (3, vec!["1".into()]));
    assert_eq!(layer.lose().names_undone, 1, "it was not synced");
    assert_eq!(names(&folder), Vec::<String>::new());
}
