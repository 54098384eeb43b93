//! Deadlines of one connection, as numbers in the caller's milliseconds.
//!
//! Owns what is awaited until when and who was heard when. Must not read a clock.

use super::event::{Fault, Told};

/// What one handshake deadline waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Header,
    Sasl,
    Open,
    Close,
}

#[derive(Debug)]
pub(crate) struct Timer {
    /// The step that is awaited, and until when.
    wait: Option<(Wait, u64, u32)>,
    /// Twice the `idle-time-out` that we tell; 0 = none.
    expire_ms: u64,
    /// Half the peer's `idle-time-out`; 0 = none.
    speak_ms: u64,
    heard: u64,
    said: u64,
    reading: bool,
    open: bool,
}

impl Timer {
    pub(crate) fn new(now: u64, idle_ms: u32, wait: Wait, wait_ms: u32) -> Self {
        Self {
            wait: Some((wait, now + u64::from(wait_ms), wait_ms)),
            expire_ms: 2 * u64::from(idle_ms),
            speak_ms: 0,
            heard: now,
            said: now,
            reading: true,
            open: false,
        }
    }

    /// Waits for the next step of the handshake.
    pub(crate) fn wait(&mut self, now: u64, wait: Wait, ms: u32) {
        self.wait = Some((wait, now + u64::from(ms), ms));
    }

    /// Both `open`s are out: from now on idle times count.
    pub(crate) fn opened(&mut self, now: u64) {
        self.wait = None;
        self.open = true;
        self.heard = now;
        self.said = now;
    }

    pub(crate) fn peer_idle(&mut self, ms: u32) {
        self.speak_ms = u64::from(ms / 2);
    }

    pub(crate) fn heard(&mut self, now: u64) {
        self.heard = now;
    }

    pub(crate) fn said(&mut self, now: u64) {
        self.said = now;
    }

    pub(crate) fn set_reading(&mut self, reading: bool, now: u64) {
        if reading && !self.reading {
            self.heard = now;
        }
        self.reading = reading;
    }

    fn idle_at(&self) -> Option<u64> {
        (self.open && self.reading && self.expire_ms > 0).then_some(self.heard + self.expire_ms)
    }

    fn speak_at(&self) -> Option<u64> {
        (self.open && self.speak_ms > 0).then_some(self.said + self.speak_ms)
    }

    /// When [`Timer::expired`] or [`Timer::must_speak`] has something to say.
    pub(crate) fn deadline(&self, may_speak: bool, closing: bool) -> Option<u64> {
        let wait = self.wait.map(|(_, at, _)| at);
        let idle = self.idle_at().filter(|_| !closing);
        let speak = self.speak_at().filter(|_| may_speak);
        [wait, idle, speak].into_iter().flatten().min()
    }

    pub(crate) fn must_speak(&self, now: u64) -> bool {
        self.speak_at().is_some_and(|at| now >= at)
    }

    /// What has taken too long. Before a protocol header and in SASL there is no way to say so.
    pub(crate) fn expired(&self, now: u64, closing: bool) -> Option<Fault> {
        if let Some((wait, at, ms)) = self.wait
            && now >= at
        {
            let (what, told) = match wait {
                Wait::Header => ("the protocol header", Told::Silence),
                Wait::Sasl => ("the login", Told::Silence),
                Wait::Open => ("the open", Told::Frame),
                Wait::Close => ("the close", Told::Silence),
            };
            let text = alloc::format!("{what} did not come within {ms} ms");
            return Some(Fault::told("amqp:resource-limit-exceeded", text, told));
        }
        if self.idle_at().is_some_and(|at| now >= at) && !closing {
            //= amqp10 2.4.5
            let text = alloc::format!("nothing came for {} ms, twice the idle-time-out we told", self.expire_ms);
            return Some(Fault::new("amqp:resource-limit-exceeded", text));
        }
        None
    }
}
