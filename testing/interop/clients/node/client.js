// rhea as a client of the interop matrix.
//
// Reads one command a line on standard input, answers one line each on standard output; the commands are described in
// ../../README.md. It owns nothing but the translation from commands to rhea's API: what is right is judged by the driver.
'use strict';
const crypto = require('crypto');
const readline = require('readline');
const rhea = require('rhea');
const types = rhea.types;

const SHORT_MS = 30000;

// --- typed values ---------------------------------------------------------------------------------------------------

const hex = (text) => Buffer.from(text, 'hex');

// Numbers past 2^53 travel as their eight bytes.
function wide(wrap, text) {
  const big = BigInt(text);
  if (big >= BigInt(Number.MIN_SAFE_INTEGER) && big <= BigInt(Number.MAX_SAFE_INTEGER)) return wrap(Number(text));
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt.asUintN(64, big));
  return wrap(bytes);
}

const ELEMENT_CODES = { boolean: 0x56, int: 0x71, long: 0x81, ulong: 0x80, string: 0xb1, symbol: 0xb3 };

function toNative(typed) {
  const [kind, text] = Object.entries(typed)[0];
  switch (kind) {
    case 'null': return null;
    case 'boolean': return text === 'true';
    case 'ulong': case 'long': return wide(types['wrap_' + kind], text);
    case 'float': return types.wrap_float(hex(text).readFloatBE(0));
    case 'double': return types.wrap_double(hex(text).readDoubleBE(0));
    case 'decimal32': return new types.Decimal32(hex(text));
    case 'decimal64': return new types.Decimal64(hex(text));
    case 'decimal128': return new types.Decimal128(hex(text));
    case 'uuid': return types.wrap_uuid(hex(text.replace(/-/g, '')));
    case 'binary': return types.wrap_binary(hex(text));
    case 'string': return types.wrap_string(text);
    case 'symbol': return types.wrap_symbol(text);
    case 'list': return types.wrap_list(text.map(toNative));
    case 'map': return types.wrap_map(Object.fromEntries(text.map(([key, value]) => [Object.values(key)[0], toNative(value)])));
    case 'array': {
      const [of, items] = text;
      const plain = (item) => (of === 'boolean' ? item === 'true' : of === 'string' || of === 'symbol' ? item : Number(item));
      return types.wrap_array(items.map(plain), ELEMENT_CODES[of]);
    }
    default: return types['wrap_' + kind](Number(text)); // the other integers, char and timestamp
  }
}

// rhea drops most wire types when it decodes; what it still shows is told as '?', the driver compares as far as that goes.
function fromNative(value) {
  if (value === null || value === undefined) return { null: '' };
  if (typeof value === 'boolean') return { boolean: String(value) };
  if (typeof value === 'number') return { '?': Object.is(value, -0) ? '-0' : String(value) };
  if (typeof value === 'string') return { '?': value };
  if (Buffer.isBuffer(value)) return { '?': value.toString('hex') };
  if (value instanceof Date) return { '?': String(value.getTime()) };
  if (Array.isArray(value)) return { list: value.map(fromNative) };
  if (value.type && value.value !== undefined) return fromNative(value.value);
  return { map: Object.entries(value).map(([key, item]) => [{ '?': key }, fromNative(item)]) };
}

// --- messages -------------------------------------------------------------------------------------------------------

const PROPERTIES = ['message_id', 'user_id', 'to', 'subject', 'reply_to', 'correlation_id', 'content_type', 'content_encoding',
  'absolute_expiry_time', 'creation_time', 'group_id', 'group_sequence', 'reply_to_group_id'];

// The body of message `number`; the driver knows the same rule.
function filling(number, size) {
  const block = Buffer.alloc(251);
  for (let k = 0; k < 251; k++) block[k] = ((k + 31 * number) * 7 + 13) % 251;
  return size === 0 ? Buffer.alloc(0) : Buffer.alloc(size, block);
}

function numbered(number, size, durable, ids) {
  const message = { body: rhea.message.data_section(filling(number, size)), application_properties: { n: types.wrap_long(number) } };
  if (durable !== undefined && durable !== null) message.durable = durable;
  if (ids) message.application_properties._AMQ_DUPL_ID = `message ${number}`;
  return message;
}

function composed(spec) {
  const message = Object.assign({}, spec.header);
  for (const [name, typed] of Object.entries(spec.properties || {})) {
    const [kind, text] = Object.entries(typed)[0];
    message[name] = kind === 'string' || kind === 'symbol' ? text : kind === 'uint' || kind === 'timestamp' ? Number(text) : name === 'user_id' ? hex(text) : toNative(typed);
  }
  for (const section of ['delivery_annotations', 'message_annotations', 'application_properties', 'footer']) {
    if (spec[section]) message[section] = Object.fromEntries(Object.entries(spec[section]).map(([key, typed]) => [key, toNative(typed)]));
  }
  const { data, sequence, value } = spec.body;
  if (data) message.body = data.length === 1 ? rhea.message.data_section(hex(data[0])) : rhea.message.data_sections(data.map(hex));
  else if (sequence) message.body = sequence.length === 1 ? rhea.message.sequence_section(sequence[0].map(toNative)) : rhea.message.sequence_sections(sequence.map((list) => list.map(toNative)));
  else message.body = toNative(value);
  return message;
}

const sections = (body) => (body.multiple ? body.content : [body.content]);

function view(message) {
  const properties = {};
  for (const name of PROPERTIES) {
    if (message[name] !== undefined && message[name] !== null) properties[name] = fromNative(message[name]);
  }
  const section = (items) => Object.fromEntries(Object.entries(items || {}).map(([key, value]) => [key, fromNative(value)]));
  const raw = message.body;
  let body = { value: fromNative(raw) };
  if (raw && raw.typecode === 0x75) body = { data: sections(raw).map((bytes) => bytes.toString('hex')) };
  else if (raw && raw.typecode === 0x76) body = { sequence: sections(raw).map((list) => list.map(fromNative)) };
  return {
    header: { durable: !!message.durable, priority: message.priority === undefined ? 4 : message.priority, ttl: message.ttl || 0, delivery_count: message.delivery_count || 0 },
    delivery_annotations: section(message.delivery_annotations), message_annotations: section(message.message_annotations),
    properties, application_properties: section(message.application_properties), body, footer: section(message.footer),
  };
}

function summary(message) {
  const raw = message.body;
  const body = raw && raw.typecode === 0x75 ? sections(raw)[0] : Buffer.from(String(raw));
  const number = (message.application_properties || {}).n;
  return { n: number === undefined ? -1 : number, size: body.length, sha: crypto.createHash('sha256').update(body).digest('hex'), durable: !!message.durable, count: message.delivery_count || 0 };
}

// --- the engine -----------------------------------------------------------------------------------------------------

const container = rhea.create_container();
const connections = new Map(), sessions = new Map(), links = new Map(), transactions = new Map();
const waiting = new Set();   // conditions of the command that is under way

const describe = (error) => (error ? `${error.condition || ''} ${error.description || error.message || error}` : 'no reason given');

// Every event may fulfil a condition; rhea works in this one thread, so that nothing is missed in between.
function stir() {
  for (const wait of [...waiting]) wait();
}

function until(condition, what, link, limit_ms = SHORT_MS) {
  return new Promise((resolve, reject) => {
    let timer;
    const done = (settle, value) => { clearTimeout(timer); waiting.delete(check); settle(value); };
    const check = () => {
      if (condition()) return done(resolve, true);
      const gone = link && (link.gone || (link.connection && link.connection.gone));
      if (gone) done(reject, new Error(gone));
    };
    timer = setTimeout(() => done(reject, Object.assign(new Error(`${what}: nothing for ${limit_ms} ms`), { late: true })), limit_ms);
    waiting.add(check);
    check();
  });
}

function watch(connection) {
  connection.on('connection_open', () => { connection.opened = true; });
  connection.on('connection_close', () => { connection.shut = true; });
  connection.on('connection_error', (context) => { connection.gone = `connection closed by the broker: ${describe(context.connection.error)}`; });
  connection.on('disconnected', (context) => { connection.shut = true; connection.gone = connection.gone || `socket lost: ${describe(context.error)}`; stir(); });
  connection.on('session_error', (context) => { context.session.gone = `session ended by the broker: ${describe(context.session.error)}`; });
  for (const end of ['sender', 'receiver']) {
    connection.on(`${end}_error`, (context) => { context[end].gone = `link closed by the broker: ${describe(context[end].error)}`; });
    connection.on(`${end}_close`, (context) => { context[end].shut = true; });
  }
  connection.on('session_open', (context) => { context.session.opened = true; });
  connection.on('session_close', (context) => { context.session.shut = true; });
  connection.on('message', (context) => {
    context.receiver.inbox.push({ message: context.message, delivery: context.delivery });
  });
  connection.on('receiver_drained', (context) => { context.receiver.drain = false; context.receiver.drained = true; });
  for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
    connection.on(outcome, (context) => {
      const { sender, delivery } = context;
      if (delivery.counted || delivery.request) return;
      delivery.counted = true;
      sender.pending--;
      if (outcome === 'accepted') {
        sender.accepted.push(delivery.number);
        if (sender.progress && sender.accepted.length % sender.progress === 0) print({ event: 'progress', confirmed: sender.accepted.length });
      } else {
        const state = delivery.remote_state || {};
        sender.others.push(`${delivery.number}: ${outcome} ${describe(state.error)}`);
      }
    });
  }
  connection.on('settled', ({ receiver, delivery }) => {
    if (receiver) delivery.settled = true; // one that was left open until the end of its transaction
    else if (delivery.request) delivery.answered = true;
  });
  connection.on('protocol_error', (error) => { connection.gone = `protocol: ${describe(error)}`; });
  connection.on('error', (error) => { connection.gone = `error: ${describe(error)}`; });
  for (const event of ['connection_open', 'connection_close', 'connection_error', 'session_open', 'session_close', 'session_error', 'sender_open', 'receiver_open',
    'sender_close', 'receiver_close', 'sender_error', 'receiver_error', 'sendable', 'message', 'receiver_drained', 'accepted', 'rejected', 'released', 'modified', 'settled']) {
    connection.on(event, stir);
  }
}

const settleModes = { settled: 1, unsettled: 0 };

// --- transactions: rhea has no words for them, but it passes on types that it does not know --------------------------------

const COORDINATOR = 0x30, DECLARE = 0x31, DISCHARGE = 0x32, DECLARED = 0x33, TRANSACTIONAL = 0x34;
const OUTCOMES = { accept: 0x24, reject: 0x25, release: 0x26, fail: 0x27 };
const FORGED = Buffer.from("nobody's"); // no broker names a transaction so

const described = (code, fields) => types.described(types.wrap_ulong(code), types.wrap_list(fields));

// A request to a coordinator, and the state that it is answered with.
async function request(link, code, fields) {
  const body = new types.Writer();
  body.write(described(code, fields));
  if (!link.sendable()) await until(() => link.sendable(), 'credit for a request', link);
  const delivery = link.send(Buffer.concat([hex('005377'), body.toBuffer()]), undefined, 0);
  delivery.request = true;
  await until(() => delivery.answered, 'the answer to a request', link);
  const state = delivery.remote_state;
  if (rhea.message.is_rejected(state) || (state && state.error)) throw new Error(`refused: ${describe(state.error)}`);
  return state;
}

function apply(delivery, outcome, transaction) {
  if (transaction) {
    const { id, settle } = transactions.get(transaction);
    delivery.update(settle, described(TRANSACTIONAL, [types.wrap_binary(id), described(OUTCOMES[outcome], outcome === 'fail' ? [types.wrap_boolean(true)] : [])]));
  } else if (outcome === 'accept') delivery.accept();
  else if (outcome === 'reject') delivery.reject({ condition: 'packhorse:interop', description: 'rejected by the test' });
  else if (outcome === 'release') delivery.release();
  else delivery.modified({ delivery_failed: true, undeliverable_here: outcome === 'undeliverable' });
}

async function sendAll(link, messages, window, progress) {
  Object.assign(link, { accepted: [], others: [], pending: 0, progress });
  let high = 0, lost = null;
  const settled = link.local.attach.snd_settle_mode === 1;
  try {
    for (const [number, message] of messages) {
      if (link.pending >= window) await until(() => link.pending < window, 'an outcome', link, 120000);
      if (!link.sendable()) await until(() => link.sendable(), 'credit to send', link);
      const delivery = link.send(message);
      delivery.number = number;
      if (!settled) high = Math.max(high, ++link.pending);
      if (number % 64 === 0) await new Promise(setImmediate); // rhea writes when the loop turns
    }
    await until(() => link.pending === 0, 'the last outcomes', link, 120000);
  } catch (error) {
    if (!progress) throw error;
    lost = error.message;
  }
  return { accepted: link.accepted.length, confirmed: progress ? link.accepted : [], others: link.others.slice(0, 5), in_flight: high, lost };
}

const commands = {
  async connect(c) {
    const login = c.user ? { username: c.user, password: c.password } : { username: 'anonymous' };
    const connection = container.connect({ host: c.host, port: c.port, reconnect: false, ...login });
    watch(connection);
    await until(() => connection.opened, 'connect', connection);
    connections.set(c.connection, connection);
  },
  async session(c) {
    const connection = connections.get(c.connection);
    const session = connection.create_session(16384); // deliveries without an outcome, its default is 2048
    session.begin();
    await until(() => session.opened, 'begin', session);
    sessions.set(c.session, session);
  },
  async sender(c) {
    const options = { name: c.link, target: c.address };
    if (c.settle in settleModes) options.snd_settle_mode = settleModes[c.settle];
    const link = sessions.get(c.session).open_sender(options);
    await until(() => link.is_open() && link.remote.attach && (link.remote.attach.target || link.gone), 'attach', link);
    if (link.gone) throw new Error(link.gone);
    links.set(c.link, link);
  },
  async receiver(c) {
    const source = c.browse ? { address: c.address, distribution_mode: 'copy' } : c.address;
    const options = { name: c.link, source, credit_window: c.prefetch || 0, autoaccept: false, autosettle: false };
    if (c.settle in settleModes) options.snd_settle_mode = settleModes[c.settle];
    const link = sessions.get(c.session).open_receiver(options);
    Object.assign(link, { inbox: [], held: [] });
    await until(() => link.is_open() && link.remote.attach && (link.remote.attach.source || link.gone), 'attach', link);
    if (link.gone) throw new Error(link.gone);
    links.set(c.link, link);
    return c.browse ? { distribution_mode: link.remote.attach.source.distribution_mode } : {};
  },
  async coordinator(c) {
    const link = sessions.get(c.session).create_sender(c.link, {});
    link.set_source({});
    link.local.attach.target = described(COORDINATOR, [types.wrap_array(['amqp:local-transactions'], ELEMENT_CODES.symbol)]);
    link.attach();
    await until(() => link.is_open() && link.remote.attach, 'attach', link);
    links.set(c.link, link);
  },
  async declare(c) {
    const link = links.get(c.link), state = await request(link, DECLARE, []);
    if (!state || !state.descriptor || Number(state.descriptor.value) !== DECLARED) throw new Error(`declare was answered ${JSON.stringify(state)}`);
    transactions.set(c.txn, { link, id: types.unwrap(state.value[0]), settle: c.settle !== false });
  },
  async forge(c) {
    transactions.set(c.txn, { link: links.get(c.link), id: FORGED, settle: true });
  },
  async discharge(c) {
    const { link, id } = transactions.get(c.txn);
    await request(link, DISCHARGE, [types.wrap_binary(id), types.wrap_boolean(c.fail)]);
  },
  async send(c) {
    if (c.txn) throw new Error('rhea writes no state on a transfer');
    const first = c.from || 0;
    const messages = (function* () { for (let n = first; n < first + c.count; n++) yield [n, numbered(n, c.size, c.durable, c.ids)]; })();
    return sendAll(links.get(c.link), messages, c.window || c.count, c.progress || 0);
  },
  async send_specs(c) {
    return sendAll(links.get(c.link), c.messages.map((spec, n) => [n, composed(spec)]), 100, 0);
  },
  async credit(c) {
    links.get(c.link).add_credit(c.count);
  },
  async receive(c) {
    const link = links.get(c.link), out = [], settle = c.settle || 'accept';
    while (out.length < c.count) {
      if (!link.inbox.length) {
        try {
          await until(() => link.inbox.length, 'a message', link, c.timeout_ms);
        } catch (error) {
          if (!error.late) throw error;
          break;
        }
      }
      const { message, delivery } = link.inbox.shift();
      out.push(c.detail ? view(message) : summary(message));
      if (delivery.remote_settled) delivery.update(true);
      else if (settle === 'hold') link.held.push(delivery);
      else apply(delivery, settle, c.txn);
    }
    return { messages: out };
  },
  async settle(c) {
    const link = links.get(c.link);
    for (const delivery of link.held) apply(delivery, c.outcome, c.txn);
    link.held = [];
  },
  async drain(c) {
    const link = links.get(c.link);
    link.drained = false;
    link.drain_credit();
    await until(() => link.drained, 'the answer to drain', link);
  },
  async detach(c) {
    const link = links.get(c.link);
    links.delete(c.link);
    link.close();
    await until(() => link.shut, 'detach', link);
  },
  async end(c) {
    const session = sessions.get(c.session);
    sessions.delete(c.session);
    session.close();
    await until(() => session.shut, 'end', session);
  },
  async close(c) {
    const connection = connections.get(c.connection);
    connections.delete(c.connection);
    connection.close();
    await until(() => connection.shut, 'close');
  },
  async reset() {
    const open = [...connections.values()].filter((connection) => !connection.shut);
    for (const map of [connections, sessions, links, transactions]) map.clear();
    for (const connection of open) {
      connection.close();
      await until(() => connection.shut, 'close', undefined, 5000).catch(() => {});
    }
  },
};

const print = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    try {
      print({ ok: true, ...(await commands[command.do](command)) });
    } catch (error) {
      print({ error: error.message || String(error) });
    }
  }
  process.exit(0);
})();
