//! XA branches, driven by a resource that was written from `docs/formats/amqp-xa.md` in another language. The row plays the
//! transaction manager; what it compares with is its own log of answers, the broker's counters, and a JMS consumer.

use serde_json::{Value as Json, json};

use crate::{
    broker::Broker,
    cell::{Arrived, Batch, Cell, Check, all_counted, arrived, in_order},
};

/// Messages that are there, at most, and those that one branch takes and adds.
const ALL: u64 = 30;
const SOME: u64 = 10;

const OK: i64 = 0;
const READ_ONLY: i64 = 3;
const HEURISTIC_ROLLED_BACK: i64 = 6;
const HEURISTIC_COMMITTED: i64 = 7;
const ROLLED_BACK_TIMEOUT: i64 = 106;
const NOT_THERE: i64 = -4;
const INVALID: i64 = -5;
const PROTOCOL: i64 = -6;
const DUPLICATE: i64 = -8;

const JOIN: u64 = 0x0020_0000;
const RESUME: u64 = 0x0800_0000;
const SUCCESS: u64 = 0x0400_0000;
const SUSPEND: u64 = 0x0200_0000;
const FAIL: u64 = 0x2000_0000;
const START_SCAN: u64 = 0x0100_0000;
const END_SCAN: u64 = 0x0080_0000;

/// The name of a branch: format, global id and qualifier, these in hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Xid(i64, String, String);

impl Xid {
    /// A branch of the cell's own global transaction.
    fn of(cell: &Cell<'_>, qualifier: u8) -> Xid {
        let global: String = cell.queue.bytes().rev().take(40).map(|byte| format!("{byte:02x}")).collect();
        Xid(7, global, format!("{qualifier:02x}"))
    }

    fn json(&self) -> Json {
        json!([self.0, self.1, self.2])
    }

    /// As the command line takes it.
    fn text(&self) -> String {
        format!("{}:{}:{}", self.0, self.1, self.2)
    }
}

/// Two queues each, three branches: two are prepared, then the broker is killed. After it `recover` names just those that the
/// manager has an answer for; one is committed, one rolled back.
pub(crate) fn two_phase(cell: &mut Cell<'_>) -> Check {
    let to = filled(cell)?;
    open(cell, "before", 100)?;
    let names = [1, 2, 3].map(|qualifier| Xid::of(cell, qualifier));
    let mut log = Vec::new();
    for (number, xid) in names.iter().enumerate() {
        let from = number as u64 * SOME;
        works(cell, "before", xid, from, &to)?;
        if number < 2 {
            says(cell, "before", "prepare", xid, OK)?;
            log.push(xid.clone());
        }
    }
    cell.counters(&[("prepared_out", 2 * SOME), ("removing", ALL), ("depth", ALL), ("ready", 0)])?;
    cell.counters_of(&to, &[("prepared_in", 2 * SOME), ("depth", 0)])?;
    cell.broker.kill_and_restart()?;
    cell.client.reset()?;

    open(cell, "after", 1)?;
    if recovered(cell, "after")? != log {
        return Err(format!("recover does not say what was prepared: {:?}, not {log:?}", recovered(cell, "after")?));
    }
    cell.counters(&[("prepared_out", 2 * SOME), ("depth", ALL), ("ready", ALL - 2 * SOME)])?;
    cell.counters_of(&to, &[("prepared_in", 2 * SOME), ("depth", 0)])?;
    says(cell, "after", "prepare", &names[2], NOT_THERE)?;
    says(cell, "after", "commit", &names[0], OK)?;
    says(cell, "after", "rollback", &names[1], OK)?;
    // As a manager asks again whose connection broke before the answer came.
    says(cell, "after", "commit", &names[0], OK)?;
    says(cell, "after", "rollback", &names[1], OK)?;
    if !recovered(cell, "after")?.is_empty() {
        return Err("branches that are decided are recovered".into());
    }
    consumes(cell, &to, &[(0, SOME, 0)])?;
    let queue = cell.queue.clone();
    consumes(cell, &queue, &[(SOME, SOME, 1), (2 * SOME, ALL - 2 * SOME, 1)])?;
    for queue in [&queue, &to] {
        cell.counters_of(queue, &[("depth", 0), ("prepared_in", 0), ("prepared_out", 0), ("staged", 0)])?;
    }
    Ok(())
}

/// Killed amid a prepare or a commit. A prepare that was answered is recovered, one that was not may be; then all of the branch
/// can be committed, or nothing is there. A commit that is asked for again is answered as done, however far the first one came.
pub(crate) fn kill_deciding(cell: &mut Cell<'_>) -> Check {
    let name = cell.queue.clone();
    for (round, (verb, delay_ms)) in
        [("prepare", 0), ("prepare", 1), ("prepare", 3), ("commit", 0), ("commit", 1), ("commit", 3)]
            .into_iter()
            .enumerate()
    {
        cell.queue = format!("{name}.{round}");
        let to = filled(cell)?;
        open(cell, "before", 100)?;
        let xid = Xid::of(cell, 1);
        works(cell, "before", &xid, 0, &to)?;
        if verb == "commit" {
            says(cell, "before", "prepare", &xid, OK)?;
        }
        let command = json!({"do": "xa", "resource": "before", "verb": verb, "xid": xid.json()});
        let answer = cell.killed_amid(&command, delay_ms)?;
        let answered = answer.is_ok_and(|answer| answer["code"] == OK);
        cell.broker.restart()?;
        cell.client.reset()?;

        open(cell, "after", 100)?;
        let found = recovered(cell, "after")?;
        let listed = found == [xid.clone()];
        if !listed && !found.is_empty()
            || verb == "prepare" && answered && !listed
            || verb == "commit" && answered && listed
        {
            return Err(format!("a {verb} was answered: {answered}; recovered are {found:?}"));
        }
        let done = verb == "commit" || listed;
        if done {
            says(cell, "after", "commit", &xid, OK)?;
        } else {
            says(cell, "after", "prepare", &xid, NOT_THERE)?;
        }
        if !recovered(cell, "after")?.is_empty() {
            return Err(format!("{xid:?} is over, and recovered"));
        }
        let (left, there) = (cell.depth_of(&cell.queue)?, cell.depth_of(&to)?);
        if (left, there) != if done { (ALL - SOME, SOME) } else { (ALL, 0) } {
            return Err(format!("{left} of {ALL} are left, {there} of {SOME} are there; committed: {done}"));
        }
    }
    Ok(())
}

/// A commit without a prepare; and a branch without work, whose prepare is its end.
pub(crate) fn one_phase(cell: &mut Cell<'_>) -> Check {
    let to = filled(cell)?;
    open(cell, "r", 100)?;
    let (xid, empty) = (Xid::of(cell, 1), Xid::of(cell, 2));
    works(cell, "r", &xid, 0, &to)?;
    cell.counters_of(&to, &[("staged", SOME), ("depth", 0)])?;
    says(cell, "r", "commit", &xid, PROTOCOL)?;
    says_with(cell, "r", "commit", &xid, json!({"one_phase": true}), OK)?;
    consumes(cell, &to, &[(0, SOME, 0)])?;
    cell.counters(&[("depth", ALL - SOME), ("ready", ALL - SOME), ("acknowledged_total", SOME)])?;

    starts(cell, "r", &empty, 0, OK)?;
    ends(cell, "r", &empty, SUCCESS, OK)?;
    says(cell, "r", "prepare", &empty, READ_ONLY)?;
    says(cell, "r", "commit", &empty, NOT_THERE)?;
    close(cell, "r")
}

/// Before and after the prepare, and by an end that says that the work has failed: each takes one more delivery, none a message.
pub(crate) fn rollback(cell: &mut Cell<'_>) -> Check {
    let to = filled(cell)?;
    open(cell, "r", 100)?;
    let xid = Xid::of(cell, 1);
    works(cell, "r", &xid, 0, &to)?;
    says(cell, "r", "rollback", &xid, OK)?;
    works(cell, "r", &xid, 0, &to)?;
    says(cell, "r", "prepare", &xid, OK)?;
    says(cell, "r", "rollback", &xid, OK)?;
    starts(cell, "r", &xid, 0, OK)?;
    all_counted(&takes(cell, "r", SOME)?, 2)?;
    ends(cell, "r", &xid, FAIL, OK)?;
    let answer = xa(cell, "r", "prepare", Some(&xid), json!({}))?;
    if !(100..=107).contains(&code(&answer)?) {
        return Err(format!("a branch whose work failed was prepared: {answer}"));
    }
    close(cell, "r")?;
    let queue = cell.queue.clone();
    consumes(cell, &queue, &[(0, SOME, 3), (SOME, ALL - SOME, 0)])?;
    cell.counters_of(&to, &[("depth", 0), ("staged", 0), ("prepared_in", 0), ("enqueued_total", 0)])
}

/// One branch on two connections to one broker, and suspended in between; a third connection, to another broker, is another
/// resource.
pub(crate) fn join(cell: &mut Cell<'_>) -> Check {
    let to = filled(cell)?;
    let elsewhere = cell.broker.another()?;
    open(cell, "one", 100)?;
    open(cell, "two", 100)?;
    open_at(cell, "else", &elsewhere, 100)?;
    for (other, same) in [("two", true), ("one", true), ("else", false)] {
        if xa(cell, "one", "same", None, json!({"other": other}))?["same"] != same {
            return Err(format!("isSameRM of one and {other} is not {same}"));
        }
    }
    let (xid, unknown) = (Xid::of(cell, 1), Xid::of(cell, 2));
    starts(cell, "one", &xid, 0, OK)?;
    adds(cell, "one", 0, &to)?;
    starts(cell, "two", &xid, 0, DUPLICATE)?;
    starts(cell, "two", &unknown, JOIN, NOT_THERE)?;
    starts(cell, "two", &xid, JOIN, OK)?;
    adds(cell, "two", SOME, &to)?;
    ends(cell, "two", &xid, SUCCESS, OK)?;
    says(cell, "two", "prepare", &xid, PROTOCOL)?;
    ends(cell, "one", &xid, SUSPEND, OK)?;
    starts(cell, "two", &xid, RESUME, OK)?;
    in_order(&takes(cell, "two", SOME)?, 0, 1024)?;
    ends(cell, "two", &xid, SUCCESS, OK)?;
    says(cell, "one", "prepare", &xid, OK)?;
    cell.counters_of(&to, &[("prepared_in", 2 * SOME), ("depth", 0)])?;
    says(cell, "two", "commit", &xid, OK)?;
    consumes(cell, &to, &[(0, 2 * SOME, 0)])?;
    cell.counters(&[("depth", ALL - SOME), ("acknowledged_total", SOME), ("prepared_out", 0)])?;
    ["one", "two", "else"].into_iter().try_for_each(|name| close(cell, name))
}

/// Parts of 64 bytes go through all verbs as they are, longer ones and format −1 are no xids; a scan comes page by page.
pub(crate) fn names(cell: &mut Cell<'_>) -> Check {
    open(cell, "r", 1)?;
    let queue = cell.queue.clone();
    let longest = |last: &str| Xid(i32::MAX.into(), "00ff".repeat(32), format!("{}{last}", "80".repeat(63)));
    let all = [longest("00"), longest("01"), longest("ff")];
    for (number, xid) in all.iter().enumerate() {
        starts(cell, "r", xid, 0, OK)?;
        adds(cell, "r", number as u64 * SOME, &queue)?;
        ends(cell, "r", xid, SUCCESS, OK)?;
        says(cell, "r", "prepare", xid, OK)?;
    }
    for bad in [
        Xid(7, "61".repeat(65), String::new()),
        Xid(7, "61".into(), "62".repeat(65)),
        Xid(-1, "61".into(), "62".into()),
    ] {
        starts(cell, "r", &bad, 0, INVALID)?;
        says(cell, "r", "prepare", &bad, INVALID)?;
    }
    let mut paged = Vec::new();
    for flags in [START_SCAN, 0, 0, END_SCAN] {
        let page = xids(&xa(cell, "r", "recover", None, json!({"flags": flags}))?)?;
        if page.len() != usize::from(flags != END_SCAN) {
            return Err(format!("a page of one has {page:?}"));
        }
        paged.extend(page);
    }
    if paged != all {
        return Err(format!("recovered are {paged:?}, prepared {all:?}"));
    }
    for xid in &all {
        says(cell, "r", "commit", xid, OK)?;
    }
    consumes(cell, &queue, &[(0, 3 * SOME, 0)])?;
    close(cell, "r")
}

/// A branch that is not prepared in time is rolled back, its messages are there for others at once, and whoever asks is told; one
/// that is prepared has all the time in the world.
pub(crate) fn timeout(cell: &mut Cell<'_>) -> Check {
    let to = filled(cell)?;
    open(cell, "prepared", 100)?;
    open(cell, "late", 100)?;
    let (prepared, late) = (Xid::of(cell, 1), Xid::of(cell, 2));
    for name in ["prepared", "late"] {
        xa(cell, name, "timeout", None, json!({"seconds": 2}))?;
    }
    works(cell, "prepared", &prepared, 0, &to)?;
    says(cell, "prepared", "prepare", &prepared, OK)?;
    starts(cell, "late", &late, 0, OK)?;
    in_order(&takes(cell, "late", SOME)?, SOME, 1024)?;
    adds(cell, "late", SOME, &to)?;
    cell.counters(&[("ready", ALL - 2 * SOME), ("prepared_out", SOME), ("removing", 2 * SOME)])?;
    // The second is over when these are there again.
    cell.counters(&[("ready", ALL - SOME), ("removing", SOME)])?;
    ends(cell, "late", &late, SUCCESS, ROLLED_BACK_TIMEOUT)?;
    says(cell, "late", "prepare", &late, ROLLED_BACK_TIMEOUT)?;
    cell.counters(&[("prepared_out", SOME), ("depth", ALL)])?;
    says(cell, "late", "commit", &prepared, OK)?;
    consumes(cell, &to, &[(0, SOME, 0)])?;
    let queue = cell.queue.clone();
    consumes(cell, &queue, &[(SOME, SOME, 1), (2 * SOME, ALL - 2 * SOME, 0)])?;
    ["prepared", "late"].into_iter().try_for_each(|name| close(cell, name))
}

/// An operator decides by the command line: the manager is told what, until it forgets.
pub(crate) fn heuristic(cell: &mut Cell<'_>) -> Check {
    let to = filled(cell)?;
    open(cell, "r", 100)?;
    for (qualifier, verb, answer) in [(1, "commit", HEURISTIC_COMMITTED), (2, "rollback", HEURISTIC_ROLLED_BACK)] {
        let xid = Xid::of(cell, qualifier);
        works(cell, "r", &xid, u64::from(qualifier - 1) * SOME, &to)?;
        says(cell, "r", "prepare", &xid, OK)?;
        says(cell, "r", "forget", &xid, PROTOCOL)?;
        cell.broker.operate(&["tx", verb, &xid.text(), "--reason", "the manager is gone", "--who", "ann"])?;
        // Decided is decided, before the manager has said a word.
        cell.counters(&[("prepared_out", 0), ("acknowledged_total", SOME)])?;
        cell.counters_of(&to, &[("prepared_in", 0), ("depth", SOME)])?;
        if recovered(cell, "r")? != [xid.clone()] {
            return Err(format!("{xid:?} is decided heuristically, and not recovered alone"));
        }
        says(cell, "r", "commit", &xid, answer)?;
        says(cell, "r", "rollback", &xid, answer)?;
        says(cell, "r", "forget", &xid, OK)?;
        says(cell, "r", "forget", &xid, NOT_THERE)?;
        if !recovered(cell, "r")?.is_empty() {
            return Err(format!("{xid:?} is forgotten, and recovered"));
        }
    }
    consumes(cell, &to, &[(0, SOME, 0)])?;
    let queue = cell.queue.clone();
    consumes(cell, &queue, &[(SOME, SOME, 1), (2 * SOME, ALL - 2 * SOME, 0)])?;
    close(cell, "r")
}

/// The cell's queue with its messages; answers the name of another.
fn filled(cell: &mut Cell<'_>) -> Check<String> {
    cell.open()?;
    cell.fill(Batch::of(ALL))?;
    Ok(format!("{}.to", cell.queue))
}

fn open(cell: &mut Cell<'_>, name: &str, page: u64) -> Check {
    let at = cell.broker.view();
    open_at(cell, name, &at, page)
}

/// A resource on a connection of its own, that asks for `page` names of branches at a time.
fn open_at(cell: &mut Cell<'_>, name: &str, broker: &Broker, page: u64) -> Check {
    let (host, port) = (broker.amqp().ip().to_string(), broker.amqp().port());
    cell.call(json!({"do": "xa-open", "resource": name, "host": host, "port": port, "page": page})).map(|_| ())
}

fn close(cell: &mut Cell<'_>, name: &str) -> Check {
    cell.call(json!({"do": "xa-close", "resource": name})).map(|_| ())
}

/// A verb of XA; the answer has a `code`.
fn xa(cell: &mut Cell<'_>, resource: &str, verb: &str, xid: Option<&Xid>, more: Json) -> Check<Json> {
    let mut command = more;
    command["do"] = json!("xa");
    command["resource"] = json!(resource);
    command["verb"] = json!(verb);
    if let Some(xid) = xid {
        command["xid"] = xid.json();
    }
    cell.call(command)
}

fn code(answer: &Json) -> Check<i64> {
    answer["code"].as_i64().ok_or_else(|| format!("no code in {answer}"))
}

fn says(cell: &mut Cell<'_>, resource: &str, verb: &str, xid: &Xid, wanted: i64) -> Check {
    says_with(cell, resource, verb, xid, json!({}), wanted)
}

/// Expects this code of XA.
fn says_with(cell: &mut Cell<'_>, resource: &str, verb: &str, xid: &Xid, more: Json, wanted: i64) -> Check {
    let answer = xa(cell, resource, verb, Some(xid), more)?;
    if code(&answer)? == wanted {
        Ok(())
    } else {
        Err(format!("{verb} of {xid:?} was answered {answer}, wanted {wanted}"))
    }
}

fn starts(cell: &mut Cell<'_>, resource: &str, xid: &Xid, flags: u64, wanted: i64) -> Check {
    says_with(cell, resource, "start", xid, json!({"flags": flags}), wanted)
}

fn ends(cell: &mut Cell<'_>, resource: &str, xid: &Xid, flags: u64, wanted: i64) -> Check {
    says_with(cell, resource, "end", xid, json!({"flags": flags}), wanted)
}

/// A branch that takes the messages `from..` of the cell's queue, adds as many with the same numbers to another, and ends.
fn works(cell: &mut Cell<'_>, resource: &str, xid: &Xid, from: u64, to: &str) -> Check {
    starts(cell, resource, xid, 0, OK)?;
    in_order(&takes(cell, resource, SOME)?, from, 1024)?;
    adds(cell, resource, from, to)?;
    ends(cell, resource, xid, SUCCESS, OK)
}

/// Sends in the branch that is started.
fn adds(cell: &mut Cell<'_>, resource: &str, from: u64, to: &str) -> Check {
    let answer = cell.call(
        json!({"do": "xa-send", "resource": resource, "address": to, "from": from, "count": SOME, "size": 1024}),
    )?;
    if answer["accepted"] == SOME { Ok(()) } else { Err(format!("of {SOME} sent in a branch: {answer}")) }
}

/// Receives from the cell's queue, and accepts in the branch that is started.
fn takes(cell: &mut Cell<'_>, resource: &str, count: u64) -> Check<Vec<Arrived>> {
    let answer = cell.call(json!({"do": "xa-receive", "resource": resource, "address": cell.queue, "count": count}))?;
    answer["messages"].as_array().into_iter().flatten().map(arrived).collect()
}

fn xids(answer: &Json) -> Check<Vec<Xid>> {
    let read = |parts: &Json| {
        let (format, global, qualifier) = (parts[0].as_i64()?, parts[1].as_str()?, parts[2].as_str()?);
        Some(Xid(format, global.to_owned(), qualifier.to_owned()))
    };
    let list = answer["xids"].as_array().ok_or_else(|| format!("no xids in {answer}"))?;
    list.iter().map(|parts| read(parts).ok_or_else(|| format!("not an xid: {parts}"))).collect()
}

/// All that `recover` has.
fn recovered(cell: &mut Cell<'_>, resource: &str) -> Check<Vec<Xid>> {
    xids(&xa(cell, resource, "recover", None, json!({"flags": START_SCAN | END_SCAN}))?)
}

/// A consumer on another connection gets just these: number, count and delivery-count of each run of them.
fn consumes(cell: &mut Cell<'_>, queue: &str, runs: &[(u64, u64, u64)]) -> Check {
    let at = cell.broker.amqp();
    let name = format!("of.{queue}");
    cell.call(json!({"do": "connect", "connection": name, "host": at.ip().to_string(), "port": at.port()}))?;
    cell.call(json!({"do": "session", "connection": name, "session": name}))?;
    cell.call(json!({"do": "receiver", "session": name, "link": name, "address": queue, "prefetch": ALL}))?;
    for (from, count, deliveries) in runs {
        let messages = cell.receive(&name, *count, "accept")?;
        in_order(&messages, *from, 1024)?;
        all_counted(&messages, *deliveries)?;
    }
    cell.receive_nothing(&name)?;
    cell.call(json!({"do": "close", "connection": name})).map(|_| ())
}
