//! SASL framing: whose turn it is, and the bytes of mechanisms, which mean nothing here.
//!
//! Owns the order of SASL frames. Must not know a mechanism or a password.

use alloc::vec::Vec;

use super::connection::{Connection, Expect, sasl_fault};
use super::emit::{Emit, Kind};
use super::event::{Fault, Told};
use super::terms::Misuse;
use super::timer::Wait;
use crate::codec::{
    FrameHeader, FrameKind, SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslPerformative,
    SaslResponse, Symbols,
};

/// How far the login is.
#[derive(Debug, Default)]
pub(crate) struct Sasl {
    /// Server: the encoded `sasl-mechanisms`, until they are sent.
    pub(crate) mechanisms: Vec<u8>,
    /// Client: whether `sasl-init` is out.
    pub(crate) init_sent: bool,
    /// Whether `sasl-init` (server) or the mechanisms (client) came.
    begun: bool,
    /// Challenges so far.
    rounds: u8,
    /// Whether the outcome was ok.
    pub(crate) done: bool,
}

#[cold]
fn out_of_turn(name: &str) -> Fault {
    Fault::told("amqp:illegal-state", alloc::format!("SASL: {name} out of turn"), Told::Silence)
}

impl Connection {
    /// Server: the mechanisms offered, strongest first; at least one. Call it once, before the first `next`.
    ///
    /// # Panics
    ///
    /// If the list is empty: the standard forbids it (amqp10 5.3.3.1).
    pub fn sasl_mechanisms(&mut self, mechanisms: &[&str]) {
        assert!(!mechanisms.is_empty(), "sasl-mechanisms must name at least one");
        self.sasl.mechanisms.clear();
        SaslMechanisms { sasl_server_mechanisms: Symbols::from_slice(mechanisms) }.encode(&mut self.sasl.mechanisms);
    }

    pub(crate) fn send_mechanisms(&mut self) {
        //= amqp10 5.3.3.1 (sent even if `sasl-init` came first)
        let encoded = core::mem::take(&mut self.sasl.mechanisms);
        self.sasl_frame(|out| out.extend_from_slice(&encoded));
    }

    fn sasl_frame(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        // Bearer tokens and challenges may be long: what we take ourselves, we also send.
        self.framed(0, FrameKind::Sasl, u32::MAX, fill);
    }

    pub(crate) fn on_sasl(&mut self, frame: &[u8], now_ms: u64) -> Result<Option<Emit>, Fault> {
        let header = match FrameHeader::parse(frame, u32::MAX, FrameKind::Sasl) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(sasl_fault(&error)),
        };
        let body = header.body(frame);
        //= amqp10 5.3.1 (exactly one body, never empty)
        let performative = SaslPerformative::decode(body, &self.set.limits).map_err(|error| sasl_fault(&error))?;
        let begun = self.sasl.begun;
        let kind = match (&performative, self.set.server) {
            (SaslPerformative::SaslInit(_), true) if !begun => {
                self.sasl.begun = true;
                self.waiting = true;
                Kind::SaslInit
            }
            (SaslPerformative::SaslResponse(_), true) if begun => {
                self.waiting = true;
                Kind::SaslResponse
            }
            (SaslPerformative::SaslMechanisms(_), false) if !begun => {
                self.sasl.begun = true;
                self.waiting = !self.sasl.init_sent;
                Kind::SaslMechanisms
            }
            (SaslPerformative::SaslChallenge(_), false) if begun && self.sasl.init_sent => {
                self.sasl.rounds = self.sasl.rounds.saturating_add(1);
                if self.sasl.rounds > self.set.limits.sasl_rounds {
                    return Err(too_many_rounds(self.set.limits.sasl_rounds));
                }
                self.waiting = true;
                Kind::SaslChallenge
            }
            (SaslPerformative::SaslOutcome(outcome), false) if begun && self.sasl.init_sent => {
                if outcome.code == SaslCode::Ok {
                    self.sasl.done = true;
                    self.expect = Expect::AmqpHeader;
                    self.send_header();
                    self.timer.wait(now_ms, Wait::Open, self.set.open_ms);
                } else {
                    self.over = true;
                }
                Kind::SaslOutcome
            }
            (other, _) => return Err(out_of_turn(other.name())),
        };
        Ok(Some(Emit::framed(kind, frame, body)))
    }

    /// Server: asks the client for more. Answers [`super::Event::SaslInit`] or [`super::Event::SaslResponse`].
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`]: it is not our turn. [`Misuse::Full`]: more rounds than `Limits::sasl_rounds`; give the outcome.
    pub fn sasl_challenge(&mut self, challenge: &[u8]) -> Result<(), Misuse> {
        self.sasl_turn(true)?;
        if self.sasl.rounds >= self.set.limits.sasl_rounds {
            return Err(Misuse::Full);
        }
        self.sasl.rounds += 1;
        self.sasl_frame(|out| SaslChallenge { challenge }.encode(out));
        self.waiting = false;
        Ok(())
    }

    /// Server: ends the login. Unless the code is ok, the connection is over: write what is queued and close the socket.
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`]: it is not our turn.
    ///
    //= amqp10 5.3.3.6
    pub fn sasl_outcome(&mut self, code: SaslCode, additional_data: Option<&[u8]>) -> Result<(), Misuse> {
        self.sasl_turn(true)?;
        self.sasl_frame(|out| SaslOutcome { code, additional_data }.encode(out));
        self.waiting = false;
        if code == SaslCode::Ok {
            self.sasl.done = true;
            self.expect = Expect::AmqpHeader;
        } else {
            self.over = true;
        }
        Ok(())
    }

    /// Client: chooses a mechanism. Answers [`super::Event::SaslMechanisms`], or goes out before it.
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`]: chosen already.
    pub fn sasl_init(
        &mut self,
        mechanism: &str,
        initial_response: Option<&[u8]>,
        hostname: Option<&str>,
    ) -> Result<(), Misuse> {
        if self.set.server || !self.set.sasl || self.over || self.sasl.init_sent {
            return Err(Misuse::WrongState);
        }
        self.sasl_frame(|out| SaslInit { mechanism, initial_response, hostname }.encode(out));
        self.sasl.init_sent = true;
        self.waiting = false;
        Ok(())
    }

    /// Client: answers [`super::Event::SaslChallenge`].
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`]: it is not our turn.
    pub fn sasl_response(&mut self, response: &[u8]) -> Result<(), Misuse> {
        self.sasl_turn(false)?;
        self.sasl_frame(|out| SaslResponse { response }.encode(out));
        self.waiting = false;
        Ok(())
    }

    fn sasl_turn(&self, server: bool) -> Result<(), Misuse> {
        let ours = self.set.server == server && self.expect == Expect::Sasl && self.waiting && !self.over;
        if ours { Ok(()) } else { Err(Misuse::WrongState) }
    }
}

#[cold]
fn too_many_rounds(limit: u8) -> Fault {
    Fault::told("amqp:resource-limit-exceeded", alloc::format!("SASL: more than {limit} challenges"), Told::Silence)
}
