"""Proton for Python as a client of the kill harness: `client.py producer|consumer`, with the flags of `packhorse-crash`.

It does what `src/harness/producer.rs` and `consumer.rs` do, over another implementation of AMQP, and writes the same history
(docs/formats/history.md). It owns no judgment: the checker reads its file. Orders come on standard input, figures go to the flow file.
"""
import argparse
import fcntl
import json
import os
import random
import socket
import struct
import sys
import termios
import threading
import time
from collections import deque

import proton
from proton import Delivery, Disposition, Endpoint, Handler, Link, Message
from proton.reactor import ApplicationEvent, Container, EventInjector

RETRY_S = 0.004
TICK_S = 0.1
TURN_MESSAGES = 32
LINKS = 1_000_000  # links that one process may have in its life
WORKING, HELD, FINISHING = 0, 1, 2


# --- bodies -------------------------------------------------------------------------------------------------------
# As core/history's `body`: run, producer, sequence, and a checksum of the filler. All fillers are beginnings of one text, in a few
# sizes, so that a checksum is computed once a size and a filler is checked by comparing.

def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc32c(data, crc=0):
    crc, table = crc ^ 0xFFFFFFFF, CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


SMALL = [0, 1, 24, 60, 150, 300, 700]
MIDDLE = [1_000, 2_000, 4_056]
LARGE = [64_000, 180_000]
LARGEST = [1_100_000]


class Bodies:
    def __init__(self, run):
        self.run = run
        self.text = random.Random(7).randbytes(max(LARGEST))
        self.sums, crc, at = {}, 0, 0
        for size in sorted(SMALL + MIDDLE + LARGE + LARGEST):
            crc, at = crc32c(self.text[at:size], crc), size
            self.sums[size] = crc

    def make(self, producer, sequence, filler):
        """A body and the checksum of its filler; -1: a body of 16 bytes, which has none."""
        if filler < 0:
            head = struct.pack("<B", 0xB5) + self.run.to_bytes(8, "little")[:3] + struct.pack("<I", producer) + sequence.to_bytes(5, "little")
            return head + crc32c(head).to_bytes(4, "little")[:3], 0
        crc = self.sums[filler]
        rest = struct.pack("<QIQQI", self.run, producer, sequence, filler, crc)
        return b"phb1" + struct.pack("<I", crc32c(rest)) + rest + self.text[:filler], crc

    def check(self, body):
        """(producer, sequence, whole), or None if the body says nothing usable."""
        if len(body) < 40:
            head = body[:13]
            if len(body) < 16 or body[0] != 0xB5 or body[13:16] != crc32c(body[16:], crc32c(head)).to_bytes(4, "little")[:3]:
                return None
            if body[1:4] != self.run.to_bytes(8, "little")[:3]:
                return None
            return struct.unpack_from("<I", body, 4)[0], int.from_bytes(body[8:13], "little"), True
        if body[:4] != b"phb1" or crc32c(body[8:40]) != struct.unpack_from("<I", body, 4)[0]:
            return None
        run, producer, sequence, filler, crc = struct.unpack_from("<QIQQI", body, 8)
        if run != self.run:
            return None
        # Those of the clients that are not foreign have fillers of their own, which take longer to check.
        known = self.sums.get(filler) == crc and body[40:] == self.text[:filler]
        whole = len(body) == 40 + filler and (known or crc32c(body[40:]) == crc)
        return producer, sequence, whole


def draw_filler(dice):
    number = dice.randrange(2_000)
    if number == 0:
        return dice.choice(LARGEST)
    if number < 5:
        return dice.choice(LARGE)
    if number < 300:
        return dice.choice(MIDDLE)
    return -1 if number < 500 else dice.choice(SMALL)


# --- history and figures ------------------------------------------------------------------------------------------

class Diary:
    """The clock is read before an act and after an observation; `flush` comes before bytes go to a socket."""

    def __init__(self, path, process, run):
        self.file = open(path, "wb", buffering=0)
        self.lines = []
        with open("/proc/sys/kernel/random/boot_id") as boot:
            clock = boot.read().strip()
        header = {"packhorse_history": 1, "run": f"{run:016x}", "process": process, "pid": os.getpid(), "incarnation": 0, "clock": clock,
                  "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        self.lines.append(json.dumps(header, separators=(",", ":")))
        self.flush()

    def put(self, at, event, **fields):
        shown = {"at": at, "event": event}
        shown.update((key, value) for key, value in fields.items() if value is not None)
        self.lines.append(json.dumps(shown, separators=(",", ":")))

    def flush(self):
        if self.lines:
            data = ("\n".join(self.lines) + "\n").encode()
            self.lines.clear()
            while data:
                data = data[self.file.write(data):]


class Place:
    def __init__(self, path, number):
        self.file, self.offset = os.open(path, os.O_WRONLY), number * 32

    def show(self, done, open_now, stage):
        os.pwrite(self.file, struct.pack("<QQQQ", done, open_now, stage, 0), self.offset)


# --- what both have -----------------------------------------------------------------------------------------------

class Client(Handler):
    def __init__(self, options, name):
        super().__init__()
        self.options, self.name = options, name
        self.dice = random.Random(options.seed)
        self.bodies = Bodies(options.run)
        self.diary = Diary(options.history, name, options.run)
        self.place = Place(options.flow, options.number)
        self.links, self.done, self.closing = 0, 0, False
        self.orders, self.order = deque(), None
        self.connection = self.session = None
        self.failure = None
        self.container = Container(self)
        self.injector = EventInjector()
        self.container.timeout = TICK_S
        self.container.start()
        self.container.selectable(self.injector)
        self.next_connect = 0.0
        self.next_mischief = time.monotonic() + self.dice.random() * 1.5
        self.over = False

    def read_orders(self):
        for line in sys.stdin:
            self.orders.append(line.strip())
            self.injector.trigger(ApplicationEvent("order"))
        self.orders.append("gone")
        self.injector.trigger(ApplicationEvent("order"))

    def work(self):
        threading.Thread(target=self.read_orders, daemon=True).start()
        while not self.over:
            self.container.timeout = 0.005 if self.connection is None else 0.02
            self.container.process()
            while self.orders:
                self.order = self.orders.popleft()
                if self.order == "gone":
                    raise SystemExit("the coordinator is gone")
                self.ordered()
            now = time.monotonic()
            if self.connection is None and not self.closing and now >= self.next_connect:
                self.next_connect = now + RETRY_S
                host = "%s:%d" % self.options.to
                self.connection = self.container.connect(f"amqp://{host}", reconnect=False, allowed_mechs="ANONYMOUS")
                self.connection.open_now = False
            if self.connection is not None and self.connection.open_now and not self.closing:
                if now >= self.next_mischief and self.order is None:
                    self.next_mischief = now + 0.2 + self.dice.random() * 2.5
                    self.mischief()
                self.turn()
            self.tick()
            self.diary.flush()
            self.show()
        self.diary.put(time.monotonic_ns(), "end")
        self.diary.flush()

    def cut(self):
        """The socket dies without a word."""
        descriptor = self.connection.transport._selectable.fileno()
        doomed = socket.socket(fileno=os.dup(descriptor))
        try:
            doomed.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # dead already
        doomed.close()

    def on_connection_remote_open(self, event):
        if event.connection == self.connection:
            self.connection.open_now = True
            self.session = self.connection.session()
            self.session.open()

    def on_connection_remote_close(self, event):
        event.connection.close()

    def on_transport_error(self, event):
        self.gone(event)

    def on_transport_closed(self, event):
        self.gone(event)

    def on_disconnected(self, event):
        self.gone(event)

    def gone(self, event):
        if self.connection is None or event.connection != self.connection:
            return
        self.connection = self.session = None
        self.lost()
        self.diary.flush()

    def number(self):
        self.links += 1
        return self.options.number * LINKS + self.links - 1

    def unread(self):
        """Bytes that have reached this process and that the library has not looked at: it reads a little at a time."""
        selectable = getattr(self.connection.transport, "_selectable", None) if self.connection is not None else None
        if selectable is None:
            return 0
        return struct.unpack("i", fcntl.ioctl(selectable.fileno(), termios.FIONREAD, b"\0\0\0\0"))[0]

    def tick(self):
        pass


# --- the producer -------------------------------------------------------------------------------------------------

class Out:
    def __init__(self, queue, presettled, window):
        self.queue, self.presettled, self.window = queue, presettled, window
        self.link, self.leaving = None, False
        self.number, self.sequence, self.open = 0, 0, set()


class Producer(Client):
    def __init__(self, options):
        super().__init__(options, f"producer-{options.number}")
        self.outs = [Out(queue, False, self.dice.randrange(48, 160)) for queue in options.queue]
        if options.once:
            self.outs.append(Out(options.once, True, 0))
        self.turns, self.idle_until = 0, 0.0

    def ordered(self):
        if self.order != "end":
            raise SystemExit(f"a producer was told to {self.order}")

    def mischief(self):
        what = self.dice.randrange(4)
        if what == 0:
            self.cut()
        elif what < 3:
            self.dice.choice(self.outs).leaving = True
        else:
            self.idle_until = time.monotonic() + 0.01 + self.dice.random() * 0.06

    def turn(self):
        if self.order == "end":
            if not any(out.open for out in self.outs):
                self.closing = True
                self.connection.close()
            return
        self.turns += 1
        for index, out in enumerate(self.outs):
            if out.link is None:
                out.number, out.sequence, out.leaving = self.number(), 0, False
                out.link = self.session.sender(f"out-{index}")
                out.link.target.address = out.queue
                out.link.snd_settle_mode = Link.SND_SETTLED if out.presettled else Link.SND_UNSETTLED
                out.link.out = out
                out.link.open()
            elif out.leaving:
                if not out.open and out.link.state & Endpoint.LOCAL_ACTIVE and out.link.state & Endpoint.REMOTE_ACTIVE:
                    out.link.close()
            elif time.monotonic() >= self.idle_until:
                self.fill(out)

    def fill(self, out):
        if not out.link.state & Endpoint.REMOTE_ACTIVE:
            return
        left = TURN_MESSAGES
        while left and out.link.credit > 0:
            if out.presettled and (left < TURN_MESSAGES or self.turns % 40):
                return
            if not out.presettled and len(out.open) >= out.window:
                return
            left -= 1
            self.send(out)

    def send(self, out):
        filler = draw_filler(self.dice) if not out.presettled else 60
        persistent = out.presettled or self.dice.randrange(10) > 0
        priority = self.dice.randrange(10) if self.dice.randrange(5) == 0 else 4
        at = time.monotonic_ns()
        body, crc = self.bodies.make(out.number, out.sequence, filler)
        self.diary.put(at, "send", producer=out.number, sequence=out.sequence, queue=out.queue, size_bytes=len(body), crc=crc,
                       persistent=persistent, priority=priority)
        delivery = out.link.send(Message(body=body, inferred=True, durable=persistent, priority=priority))
        if not out.presettled:
            delivery.sequence = out.sequence
            out.open.add(out.sequence)
        out.sequence += 1

    def on_delivery(self, event):
        delivery, out = event.delivery, event.link.out
        if not (delivery.updated and delivery.remote_state) or delivery.remote_state == Delivery.RECEIVED:
            return
        if out.link == event.link and delivery.sequence in out.open:
            out.open.remove(delivery.sequence)
            at = time.monotonic_ns()
            if delivery.remote_state == Delivery.ACCEPTED:
                self.done += 1
                self.diary.put(at, "sent_ok", producer=out.number, sequence=delivery.sequence)
            else:
                self.diary.put(at, "sent_rejected", producer=out.number, sequence=delivery.sequence, reason=str(delivery.remote_state))
        delivery.settle()

    def on_link_remote_close(self, event):
        out = event.link.out
        if event.link.state & Endpoint.LOCAL_ACTIVE:
            # Not asked for: the broker stops, or a link was taken over.
            self.forget(out)
            event.link.close()
        if out.link == event.link:
            out.link = None

    def forget(self, out):
        at = time.monotonic_ns()
        for sequence in sorted(out.open):
            self.diary.put(at, "sent_unknown", producer=out.number, sequence=sequence)
        out.open.clear()

    def lost(self):
        for out in self.outs:
            self.forget(out)
            out.link = None
        if self.order == "end":
            self.over = True

    def show(self):
        self.place.show(self.done, sum(len(out.open) for out in self.outs), WORKING)


# --- the consumer -------------------------------------------------------------------------------------------------

class In:
    def __init__(self, queue, presettled, dice):
        self.queue, self.presettled = queue, presettled
        self.careful = not presettled and dice.randrange(8) > 0
        self.hold = dice.randrange(24, 100)
        self.credit = self.hold + dice.randrange(30, 300)
        self.link, self.number = None, 0
        self.draining = self.leaving = self.exact = self.partly = False
        self.held, self.asked = deque(), {}


class Consumer(Client):
    def __init__(self, options):
        super().__init__(options, f"consumer-{options.number}")
        self.ins = [In(queue, False, self.dice) for queue in options.queue]
        if options.once:
            self.ins.append(In(options.once, True, self.dice))
        self.stage, self.ticked, self.received = WORKING, 0, 0

    def tick(self):
        at = time.monotonic_ns()
        # A message that has come in part is not recorded yet.
        if at - self.ticked > TICK_S * 5e8 and self.unread() == 0 and not any(one.partly for one in self.ins):
            self.ticked = at
            self.diary.put(at, "tick")

    def ordered(self):
        if self.order == "finish":
            self.order, self.stage = None, FINISHING

    def mischief(self):
        if self.stage != WORKING:
            return
        what, which = self.dice.randrange(8), self.dice.choice(self.ins)
        if what < 2:
            self.cut()
        elif what == 2:
            self.close()
        elif what < 5:
            self.drain(which)
        elif what == 5:
            self.detach(which, False)
        else:
            time.sleep(0.02 + self.dice.random() * 0.2)

    def up(self, one):
        return one.link is not None and not one.leaving and not one.draining and one.link.state & Endpoint.REMOTE_ACTIVE

    def close(self):
        """The connection ends in order, with deliveries open."""
        at = time.monotonic_ns()
        for one in self.ins:
            if one.link is not None and not one.leaving:
                self.diary.put(at, "detach", consumer=one.number, orderly=True)
                one.leaving = True
        self.closing = True
        self.connection.close()

    def drain(self, one):
        if self.up(one):
            one.draining = True
            one.link.drain_mode = True

    def detach(self, one, exact):
        if one.link is not None and not one.leaving and one.link.state & Endpoint.REMOTE_ACTIVE:
            self.diary.put(time.monotonic_ns(), "detach", consumer=one.number, orderly=True)
            one.leaving, one.exact = True, exact
            one.held.clear()
            one.asked.clear()
            one.link.close()

    def turn(self):
        ending = self.order is not None
        for index, one in enumerate(self.ins):
            if one.link is None:
                if not ending:
                    self.attach(index, one)
            elif one.draining and not one.leaving:
                if one.link.credit == 0 and one.link.queued == 0:
                    self.diary.put(time.monotonic_ns(), "credit", consumer=one.number, credit=0)
                    self.detach(one, True)
            elif self.up(one):
                self.settle(one, ending or self.stage == FINISHING)
                if ending and not one.asked:
                    self.drain(one)
                elif not ending and one.link.credit <= one.credit // 2:
                    self.diary.put(time.monotonic_ns(), "credit", consumer=one.number, credit=one.credit)
                    one.link.flow(one.credit - one.link.credit)
        gone = all(one.link is None for one in self.ins)
        if self.order == "hold" and gone:
            self.stage = HELD
        if self.order == "end" and gone:
            self.closing = True
            self.connection.close()

    def attach(self, index, one):
        one.number, one.draining, one.leaving, one.exact = self.number(), False, False, False
        one.link = self.session.receiver(f"in-{index}")
        one.link.source.address = one.queue
        one.link.snd_settle_mode = Link.SND_SETTLED if one.presettled else Link.SND_UNSETTLED
        one.link.rcv_settle_mode = Link.RCV_SECOND if one.careful else Link.RCV_FIRST
        one.link.one = one
        at = time.monotonic_ns()
        self.diary.put(at, "attach", consumer=one.number, queue=one.queue, presettled=one.presettled or None)
        self.diary.put(at, "credit", consumer=one.number, credit=one.credit)
        one.link.open()
        one.link.flow(one.credit)

    def settle(self, one, everything):
        if not everything and len(one.held) <= one.hold + one.hold // 4:
            return
        while len(one.held) > (0 if everything else one.hold):
            delivery = one.held.popleft()
            number = 199 if everything else self.dice.randrange(200)
            at, who = time.monotonic_ns(), dict(producer=delivery.producer, sequence=delivery.sequence, consumer=one.number)
            if number < 6:
                self.diary.put(at, "release", **who)
                delivery.update(Disposition.RELEASED)
            elif number < 8:
                self.diary.put(at, "reject", **who)
                delivery.local.condition = proton.Condition("packhorse:crash", "rejected by the consumer")
                delivery.update(Disposition.REJECTED)
            elif number < 15:
                failed, here = number < 12, number in (8, 14)
                self.diary.put(at, "modified", delivery_failed=failed or None, undeliverable_here=here or None, **who)
                delivery.local.failed, delivery.local.undeliverable = failed, here
                delivery.update(Disposition.MODIFIED)
            else:
                self.diary.put(at, "ack", **who)
                delivery.update(Disposition.ACCEPTED)
                delivery.acknowledged = True
            if one.careful:
                one.asked[delivery.nth] = who
            else:
                delivery.settle()

    def on_delivery(self, event):
        delivery, link = event.delivery, event.link
        one = link.one
        current = one.link == link and not one.leaving
        if one.link == link and delivery.readable:
            one.partly = delivery.partial
        if delivery.aborted:
            one.partly = False
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            message = Message()
            message.decode(link.recv(delivery.pending))
            link.advance()
            if not current:
                return
            said = self.bodies.check(bytes(message.body)) if isinstance(message.body, (bytes, memoryview)) else None
            delivery.producer, delivery.sequence, whole = said or (2**32 - 1, 2**64 - 1, False)
            count = message.delivery_count
            self.diary.put(time.monotonic_ns(), "recv", producer=delivery.producer, sequence=delivery.sequence, consumer=one.number,
                           queue=one.queue, delivery_count=count, redelivered=count > 0, crc_ok=whole)
            if delivery.settled:
                delivery.settle()
            else:
                self.received += 1
                delivery.nth, delivery.acknowledged = self.received, False
                one.held.append(delivery)
        elif delivery.updated and delivery.settled:
            who = one.asked.pop(delivery.nth, None) if current else None
            if who is not None and delivery.acknowledged:
                self.done += 1
                self.diary.put(time.monotonic_ns(), "ack", confirmed=True, **who)
            delivery.settle()

    def on_link_remote_close(self, event):
        link, one = event.link, event.link.one
        if one.link != link:
            return
        if one.leaving:
            # With a reason it is the broker's own word, which may have crossed ours.
            if one.exact and link.remote_condition is None:
                self.diary.put(time.monotonic_ns(), "detach", consumer=one.number, orderly=True, confirmed=True)
        else:
            self.diary.put(time.monotonic_ns(), "detach", consumer=one.number, orderly=False)
            link.close()
        self.forget(one)

    def forget(self, one):
        one.link, one.partly = None, False
        one.held.clear()
        one.asked.clear()

    def lost(self):
        at = time.monotonic_ns()
        for one in self.ins:
            if one.link is not None and not one.leaving:
                self.diary.put(at, "detach", consumer=one.number, orderly=False)
            self.forget(one)
        self.closing = False
        if self.order == "end":
            self.over = True

    def show(self):
        self.place.show(self.done, sum(len(one.held) + len(one.asked) for one in self.ins), self.stage)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["producer", "consumer"])
    for name in ("number", "run", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--to", type=lambda text: (text.rsplit(":", 1)[0], int(text.rsplit(":", 1)[1])), required=True)
    parser.add_argument("--history", required=True)
    parser.add_argument("--flow", required=True)
    parser.add_argument("--queue", type=lambda text: text.split(","), required=True)
    parser.add_argument("--once")
    options = parser.parse_args()
    (Producer if options.role == "producer" else Consumer)(options).work()


main()
