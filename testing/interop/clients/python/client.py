"""Proton for Python as a client of the interop matrix.

Reads one command a line on standard input, answers one line each on standard output; the commands are described in
../../README.md. It owns nothing but the translation from commands to Proton's API: what is right is judged by the driver.
"""
import hashlib
import json
import struct
import sys
import threading
import time
import uuid
from collections import deque

import proton
from proton import Array, Connection, Data, Delivery, Described, Disposition, Endpoint, Handler, Link, Message, Terminus, UNDESCRIBED
from proton.reactor import ApplicationEvent, Container, EventInjector, Transaction

SHORT_S = 30

TRANSACTIONAL = 0x34  # the descriptor of that delivery state
OUTCOMES = {"reject": 0x25, "release": 0x26, "fail": 0x27}
FORGED = b"nobody's"  # no broker names a transaction so


class Trouble(Exception):
    """What the broker, or the library, would not do."""


# --- typed values -------------------------------------------------------------------------------------------------

NUMBERS = {"ubyte": proton.ubyte, "ushort": proton.ushort, "uint": proton.uint, "ulong": proton.ulong, "byte": proton.byte,
           "short": proton.short, "int": proton.int32, "long": int, "timestamp": proton.timestamp}
ELEMENTS = {"boolean": Data.BOOL, "int": Data.INT, "long": Data.LONG, "ulong": Data.ULONG, "string": Data.STRING, "symbol": Data.SYMBOL}


def to_native(typed):
    (kind, text), = typed.items()
    if kind in NUMBERS:
        return NUMBERS[kind](int(text))
    if kind == "null":
        return None
    if kind == "boolean":
        return text == "true"
    if kind == "float":
        return proton.float32(struct.unpack(">f", bytes.fromhex(text))[0])
    if kind == "double":
        return struct.unpack(">d", bytes.fromhex(text))[0]
    if kind == "decimal32":
        return proton.decimal32(int(text, 16))
    if kind == "decimal64":
        return proton.decimal64(int(text, 16))
    if kind == "decimal128":
        return proton.decimal128(bytes.fromhex(text))
    if kind == "char":
        return proton.char(chr(int(text)))
    if kind == "uuid":
        return uuid.UUID(text)
    if kind == "binary":
        return bytes.fromhex(text)
    if kind == "symbol":
        return proton.symbol(text)
    if kind == "list":
        return [to_native(item) for item in text]
    if kind == "map":
        return {to_native(key): to_native(value) for key, value in text}
    if kind == "array":
        of, items = text
        return Array(UNDESCRIBED, ELEMENTS[of], *[to_native({of: item}) for item in items])
    return text


def from_native(value):
    if value is None:
        return {"null": ""}
    if isinstance(value, bool):
        return {"boolean": "true" if value else "false"}
    exact = type(value)
    if exact is proton.float32:
        return {"float": struct.pack(">f", value).hex()}
    if exact is proton.char:
        return {"char": str(ord(value))}
    if exact is proton.symbol:
        return {"symbol": str(value)}
    if exact is proton.decimal128:
        return {"decimal128": bytes(value).hex()}
    if exact is proton.decimal32:
        return {"decimal32": "%08x" % value}
    if exact is proton.decimal64:
        return {"decimal64": "%016x" % value}
    for kind, native in NUMBERS.items():
        if exact is native:
            return {kind: str(int(value))}
    if isinstance(value, float):
        return {"double": struct.pack(">d", value).hex()}
    if isinstance(value, (bytes, memoryview)):
        return {"binary": bytes(value).hex()}
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if isinstance(value, str):
        return {"string": str(value)}
    if isinstance(value, Array):
        of = [kind for kind, code in ELEMENTS.items() if code == value.type]
        return {"array": [of[0] if of else "?", [list(from_native(item).values())[0] for item in value.elements]]}
    if isinstance(value, dict):
        return {"map": [[from_native(key), from_native(item)] for key, item in value.items()]}
    return {"list": [from_native(item) for item in value]}


# --- messages -----------------------------------------------------------------------------------------------------

PROPERTIES = {"message_id": "id", "user_id": "user_id", "to": "address", "subject": "subject", "reply_to": "reply_to",
              "correlation_id": "correlation_id", "content_type": "content_type", "content_encoding": "content_encoding",
              "absolute_expiry_time": "expiry_time", "creation_time": "creation_time", "group_id": "group_id",
              "group_sequence": "group_sequence", "reply_to_group_id": "reply_to_group_id"}


def filling(number, size):
    """The body of message `number`; the driver knows the same rule."""
    block = bytes(((k + 31 * number) * 7 + 13) % 251 for k in range(251))
    return (block * (size // 251 + 1))[:size]


def numbered(number, size, durable, ids):
    message = Message(body=filling(number, size), inferred=True)
    message.properties = {"n": number}
    if ids:
        message.properties["_AMQ_DUPL_ID"] = f"message {number}"
    if durable is not None:
        message.durable = durable
    return message


def composed(spec):
    message = Message()
    for name, value in (spec.get("header") or {}).items():
        setattr(message, name, value / 1000 if name == "ttl" else value)
    annotations = lambda section: {proton.symbol(k): to_native(v) for k, v in spec[section].items()} if spec.get(section) else None
    message.instructions = annotations("delivery_annotations")
    message.annotations = annotations("message_annotations")
    for name, typed in (spec.get("properties") or {}).items():
        value = to_native(typed)
        setattr(message, PROPERTIES[name], value / 1000 if name.endswith("_time") else value)
    if spec.get("application_properties"):
        message.properties = {k: to_native(v) for k, v in spec["application_properties"].items()}
    body = spec["body"]
    if "data" in body:
        message.body, message.inferred = bytes.fromhex(body["data"][0]), True
    elif "sequence" in body:
        message.body, message.inferred = [to_native(item) for item in body["sequence"][0]], True
    else:
        message.body = to_native(body["value"])
    return message


def view(message):
    properties = {}
    for name, attribute in PROPERTIES.items():
        value = getattr(message, attribute)
        if value is None or value == 0 or value == "" or value == b"" or (name.startswith("content") and str(value) == "None"):
            continue  # absent fields come as such from Proton, a content type as the symbol None
        if name.endswith("_time"):
            properties[name] = {"timestamp": str(round(value * 1000))}
        elif name == "group_sequence":
            properties[name] = {"uint": str(value)}
        elif name.startswith("content"):
            properties[name] = {"symbol": str(value)}
        elif isinstance(value, int):
            properties[name] = {"ulong": str(value)}
        else:
            properties[name] = from_native(value)
    section = lambda items: {str(k): from_native(v) for k, v in (items or {}).items()}
    if message.inferred and isinstance(message.body, (bytes, memoryview)):
        body = {"data": [bytes(message.body).hex()]}
    elif message.inferred and isinstance(message.body, list):
        body = {"sequence": [[from_native(item) for item in message.body]]}
    else:
        body = {"value": from_native(message.body)}
    return {"header": {"durable": message.durable, "priority": message.priority, "ttl": round(message.ttl * 1000),
                       "delivery_count": message.delivery_count},
            "delivery_annotations": section(message.instructions), "message_annotations": section(message.annotations),
            "properties": properties, "application_properties": section(message.properties), "body": body}


def summary(message):
    body = message.body if isinstance(message.body, (bytes, memoryview)) else str(message.body).encode()
    return {"n": (message.properties or {}).get("n", -1), "size": len(body), "sha": hashlib.sha256(body).hexdigest(),
            "durable": message.durable, "count": message.delivery_count}


# --- the engine ---------------------------------------------------------------------------------------------------

class Events(Handler):
    """Notes what Proton reports, on the objects it reports it of."""

    def on_delivery(self, event):
        delivery, link = event.delivery, event.link
        if link.is_receiver:
            if delivery.aborted or (delivery.readable and not delivery.partial):
                if delivery.aborted:
                    delivery.settle()
                    return
                message = Message()
                message.decode(link.recv(delivery.pending))
                link.advance()
                link.inbox.append((delivery, message))
                if link.prefetch and link.credit < link.prefetch:
                    link.granted = True
            elif delivery.updated and delivery.settled:
                delivery.settle()  # one that was left open until the end of its transaction
        elif delivery.updated and hasattr(delivery, "transaction"):
            transaction = delivery.transaction
            transaction.handle_outcome(event)
            if delivery.remote_state == Delivery.REJECTED and transaction.failed:
                transaction.handler.on_transaction_commit_failed(event)  # Proton keeps a refused abort to itself
            delivery.settle()
        elif delivery.updated and delivery.remote_state:
            link.outcomes.append((delivery.number, delivery.remote_state, delivery.remote.condition, delivery.remote.data))
            delivery.settle()
            link.unsettled_now -= 1

    def on_connection_remote_close(self, event):
        event.connection.gone = f"connection closed by the broker: {event.connection.remote_condition}"
        event.connection.close()

    def on_session_remote_close(self, event):
        event.session.gone = f"session ended by the broker: {event.session.remote_condition}"
        event.session.close()

    def on_link_remote_close(self, event):
        event.link.gone = f"link closed by the broker: {event.link.remote_condition}"
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def on_transport_error(self, event):
        if event.connection:
            event.connection.gone = f"transport: {event.transport.condition}"

    def on_transport_closed(self, event):
        if event.connection and not getattr(event.connection, "gone", None):
            event.connection.gone = "the broker closed the socket"


class Answer:
    """What a coordinator said to the last request of one transaction; Proton calls it."""

    def __init__(self):
        self.said = None

    def note(self, said):
        self.said = said

    def on_transaction_declared(self, event):
        self.note("declared")

    def on_transaction_committed(self, event):
        self.note("committed")

    def on_transaction_aborted(self, event):
        self.note("aborted")

    def on_transaction_declare_failed(self, event):
        self.note(f"refused: {event.delivery.remote.condition}")

    on_transaction_commit_failed = on_transaction_declare_failed


class Client:
    def __init__(self):
        self.container = Container(Events())
        self.injector = EventInjector()
        self.commands = deque()
        self.container.timeout = 1.0
        self.container.start()
        self.container.selectable(self.injector)
        self.connections, self.sessions, self.links, self.transactions = {}, {}, {}, {}

    # The container turns in this one thread; the reader thread only wakes it.
    def read_commands(self):
        for line in sys.stdin:
            self.commands.append(json.loads(line))
            self.injector.trigger(ApplicationEvent("command"))
        self.commands.append(None)
        self.injector.trigger(ApplicationEvent("command"))

    def turn(self, wait_s):
        self.container.timeout = max(0.0, wait_s)
        self.container.process()

    def until(self, condition, what, watch=None, limit_s=SHORT_S):
        end = time.monotonic() + limit_s
        while not condition():
            if watch is not None:
                self.check(watch)
            left = end - time.monotonic()
            if left <= 0:
                raise Trouble(f"{what}: nothing for {limit_s} s")
            self.turn(min(left, 1.0))

    def check(self, endpoint):
        chain = [endpoint]
        if isinstance(endpoint, Link):
            chain.append(endpoint.session)
        if not isinstance(endpoint, Connection):
            chain.append(endpoint.connection)
        for part in chain:
            if getattr(part, "gone", None):
                raise Trouble(part.gone)

    def run(self):
        threading.Thread(target=self.read_commands, daemon=True).start()
        while True:
            while not self.commands:
                self.turn(1.0)
            command = self.commands.popleft()
            if command is None:
                return
            try:
                answer = {"ok": True, **(getattr(self, "do_" + command["do"])(command) or {})}
            except Exception as error:  # told to the driver, which knows whether it was to be expected
                answer = {"error": str(error) or repr(error)}
            print(json.dumps(answer), flush=True)

    # --- commands ---

    def do_connect(self, c):
        extra = {"user": c["user"], "password": c["password"], "allowed_mechs": "PLAIN"} if c.get("user") else {"allowed_mechs": "ANONYMOUS"}
        connection = self.container.connect(f"amqp://{c['host']}:{c['port']}", reconnect=False, **extra)
        connection.gone = None
        self.until(lambda: connection.state & Endpoint.REMOTE_ACTIVE, "connect", connection)
        self.connections[c["connection"]] = connection

    def do_session(self, c):
        session = self.connections[c["connection"]].session()
        session.gone = None
        session.open()
        self.until(lambda: session.state & Endpoint.REMOTE_ACTIVE, "begin", session)
        self.sessions[c["session"]] = session

    def attached(self, link, c, wanted):
        link.gone, link.inbox, link.held, link.outcomes, link.unsettled_now, link.sent = None, deque(), [], deque(), 0, 0
        link.prefetch, link.granted = 0, False
        link.open()
        self.until(lambda: link.state & Endpoint.REMOTE_ACTIVE, "attach", link)
        if wanted(link) is None:
            self.until(lambda: False, "attach refused", link)
        self.links[c["link"]] = link
        return link

    def do_sender(self, c):
        link = self.sessions[c["session"]].sender(c["link"])
        link.target.address = c["address"]
        link.snd_settle_mode = {"settled": Link.SND_SETTLED, "unsettled": Link.SND_UNSETTLED}.get(c.get("settle"), Link.SND_MIXED)
        self.attached(link, c, lambda l: l.remote_target.address)

    def do_receiver(self, c):
        link = self.sessions[c["session"]].receiver(c["link"])
        link.source.address = c["address"]
        link.snd_settle_mode = {"settled": Link.SND_SETTLED, "unsettled": Link.SND_UNSETTLED}.get(c.get("settle"), Link.SND_MIXED)
        if c.get("browse"):
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
        self.attached(link, c, lambda l: l.remote_source.address)
        link.prefetch = c.get("prefetch") or 0
        if link.prefetch:
            link.flow(link.prefetch)
        if c.get("browse"):
            modes = {Terminus.DIST_MODE_COPY: "copy", Terminus.DIST_MODE_MOVE: "move"}
            return {"distribution_mode": modes.get(link.remote_source.distribution_mode)}

    def post(self, link, message, number, transaction):
        self.until(lambda: link.credit > 0, "credit to send", link)
        delivery = transaction.send(link, message) if transaction else link.send(message)
        link.sent += 1
        if link.snd_settle_mode != Link.SND_SETTLED:
            delivery.number = number
            link.unsettled_now += 1

    def post_all(self, link, messages, window, progress=0, transaction=None):
        accepted, others, high = [], [], 0

        def reap():
            while link.outcomes:
                number, state, condition, data = link.outcomes.popleft()
                if transaction and state == TRANSACTIONAL and data[0] == transaction.id:
                    state = data[1].descriptor  # the same numbers as of states that are known to Proton
                elif transaction and state == Delivery.ACCEPTED:
                    state = "accepted, but not in the transaction"
                if state == Delivery.ACCEPTED:
                    accepted.append(number)
                    if progress and len(accepted) % progress == 0:
                        print(json.dumps({"event": "progress", "confirmed": len(accepted)}), flush=True)
                else:
                    others.append(f"{number}: {state} {condition or ''}")

        lost = None
        try:
            for number, message in messages:
                self.until(lambda: link.unsettled_now < window, "an outcome", link, 120)
                self.post(link, message, number, transaction)
                high = max(high, link.unsettled_now)
                if link.sent % 64 == 0:
                    self.turn(0)
                    reap()
            self.until(lambda: link.unsettled_now == 0, "the last outcomes", link, 120)
        except Trouble as trouble:
            if not progress:
                raise
            lost = str(trouble)
        reap()
        return {"accepted": len(accepted), "confirmed": accepted if progress else [], "others": others[:5], "in_flight": high, "lost": lost}

    def do_send(self, c):
        first, count = c.get("from", 0), c["count"]
        messages = ((n, numbered(n, c["size"], c.get("durable"), c.get("ids"))) for n in range(first, first + count))
        return self.post_all(self.links[c["link"]], messages, c.get("window") or count, c.get("progress") or 0,
                             self.transactions[c["txn"]] if c.get("txn") else None)

    def do_send_specs(self, c):
        return self.post_all(self.links[c["link"]], ((n, composed(spec)) for n, spec in enumerate(c["messages"])), 100)

    def do_credit(self, c):
        self.links[c["link"]].flow(c["count"])
        self.turn(0)

    def do_receive(self, c):
        link, out = self.links[c["link"]], []
        wait_s, settle = c["timeout_ms"] / 1000, c.get("settle") or "accept"
        while len(out) < c["count"]:
            try:
                self.until(lambda: link.inbox, "a message", link, wait_s)
            except Trouble:
                self.check(link)
                break
            delivery, message = link.inbox.popleft()
            out.append(view(message) if c.get("detail") else summary(message))
            if delivery.settled:
                delivery.settle()
            elif settle == "hold":
                link.held.append(delivery)
            else:
                self.settle(delivery, settle, c.get("txn"))
            if link.prefetch and link.credit <= link.prefetch // 2:
                link.flow(link.prefetch - link.credit)
        self.turn(0)
        return {"messages": out}

    def settle(self, delivery, outcome, transaction=None):
        if transaction:
            transaction = self.transactions[transaction]
            if outcome == "accept":
                transaction.accept(delivery)
                return
            # Proton has accept alone; the others are said the same way.
            delivery.local.data = [transaction.id, Described(proton.ulong(OUTCOMES[outcome]), [True] if outcome == "fail" else [])]
            delivery.update(TRANSACTIONAL)
            delivery.settle()
            return
        if outcome == "reject":
            delivery.local.condition = proton.Condition("packhorse:interop", "rejected by the test")
            delivery.update(Disposition.REJECTED)
        elif outcome in ("fail", "undeliverable"):
            delivery.local.failed = True
            delivery.local.undeliverable = outcome == "undeliverable"
            delivery.update(Disposition.MODIFIED)
        else:
            delivery.update({"accept": Disposition.ACCEPTED, "release": Disposition.RELEASED}[outcome])
        delivery.settle()

    def do_settle(self, c):
        link = self.links[c["link"]]
        for delivery in link.held:
            self.settle(delivery, c["outcome"], c.get("txn"))
        link.held = []
        self.turn(0)

    def do_coordinator(self, c):
        link = self.sessions[c["session"]].sender(c["link"])
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(proton.symbol("amqp:local-transactions"))
        self.attached(link, c, lambda l: l.remote_target.type == Terminus.COORDINATOR or None)

    def do_declare(self, c):
        link, answer = self.links[c["link"]], Answer()
        self.until(lambda: link.credit > 0, "credit to declare", link)
        transaction = Transaction(link, answer, settle_before_discharge=c.get("settle", True))
        self.until(lambda: answer.said, "declare", link)
        if answer.said != "declared":
            raise Trouble(answer.said)
        self.transactions[c["txn"]] = transaction

    def do_forge(self, c):
        self.do_declare(c)
        self.transactions[c["txn"]].id = FORGED

    def do_discharge(self, c):
        transaction = self.transactions[c["txn"]]
        link, answer = transaction.txn_ctrl, transaction.handler
        self.until(lambda: link.credit > 0, "credit to discharge", link)
        answer.said = None
        transaction.discharge(c["fail"])
        self.until(lambda: answer.said, "discharge", link)
        if answer.said not in ("committed", "aborted"):
            raise Trouble(answer.said)
        self.turn(0)

    def do_drain(self, c):
        link = self.links[c["link"]]
        link.drain_mode = True
        self.until(lambda: link.credit == 0, "the answer to drain", link)
        link.drain_mode = False

    def do_detach(self, c):
        link = self.links.pop(c["link"])
        link.close()
        self.until(lambda: link.state & Endpoint.REMOTE_CLOSED, "detach", link.session)

    def do_end(self, c):
        session = self.sessions.pop(c["session"])
        session.close()
        self.until(lambda: session.state & Endpoint.REMOTE_CLOSED, "end", session.connection)

    def do_close(self, c):
        connection = self.connections.pop(c["connection"])
        connection.close()
        self.until(lambda: connection.state & Endpoint.REMOTE_CLOSED, "close")

    def do_reset(self, _):
        for connection in self.connections.values():
            connection.close()
        for connection in self.connections.values():
            try:
                self.until(lambda: connection.state & Endpoint.REMOTE_CLOSED or connection.gone, "close", None, 5)
            except Trouble:
                pass
        self.connections, self.sessions, self.links, self.transactions = {}, {}, {}, {}


Client().run()
