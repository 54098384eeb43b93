import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.qpid.proton.Proton;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.DescribedType;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.messaging.Accepted;
import org.apache.qpid.proton.amqp.messaging.AmqpValue;
import org.apache.qpid.proton.amqp.messaging.Rejected;
import org.apache.qpid.proton.amqp.transaction.Coordinator;
import org.apache.qpid.proton.amqp.transaction.Declared;
import org.apache.qpid.proton.amqp.transaction.TransactionalState;
import org.apache.qpid.proton.amqp.transport.DeliveryState;
import org.apache.qpid.proton.codec.DescribedTypeConstructor;
import org.apache.qpid.proton.engine.Sender;
import org.apache.qpid.proton.message.Message;

/**
 * Packhorse as a resource of a Java transaction manager: XA over AMQP 1.0 as {@code docs/formats/amqp-xa.md} says, written from that page over plain Proton-J.
 *
 * <p>One resource is one link to the coordinator, so one thread of control: it works in one branch at most. What is sent and accepted under {@link #work} and
 * {@link #acceptance} between {@code start} and {@code end} is in that branch.
 */
final class PackhorseXAResource implements XAResource {
  private static final String VERSION = "packhorse:xa-1";
  private static final String BROKER = "packhorse:broker";

  /** Descriptors: ours have "PHRS" in their upper half. */
  private static final long DECLARE = 0x31;
  private static final long DOMAIN = 0x50485253_00000000L;
  private static final long XID = DOMAIN + 1, START = DOMAIN + 2, END = DOMAIN + 3, PREPARE = DOMAIN + 4, COMMIT = DOMAIN + 5, ROLLBACK = DOMAIN + 6;
  private static final long FORGET = DOMAIN + 7, RECOVER = DOMAIN + 8, RESULT = DOMAIN + 9;

  private final Wire wire;
  private final Sender coordinator;
  private final int page;
  private int timeoutSeconds;
  private Binary transaction;
  /** Where a scan goes on, and whether one is under way. */
  private Name after;
  private boolean scanning;

  /** The name of a branch. */
  record Name(int getFormatId, byte[] getGlobalTransactionId, byte[] getBranchQualifier) implements Xid {
    static Name of(Xid xid) {
      return new Name(xid.getFormatId(), xid.getGlobalTransactionId(), xid.getBranchQualifier());
    }

    @Override public boolean equals(Object other) {
      return other instanceof Name name && getFormatId == name.getFormatId && Arrays.equals(getGlobalTransactionId, name.getGlobalTransactionId)
          && Arrays.equals(getBranchQualifier, name.getBranchQualifier);
    }

    @Override public int hashCode() {
      return Objects.hash(getFormatId, Arrays.hashCode(getGlobalTransactionId), Arrays.hashCode(getBranchQualifier));
    }
  }

  /** The answer of a coordinator, a delivery state that no standard knows; none of Proton's kinds fits it. */
  private record Result(int code, List<?> xids, boolean more, String description) implements DeliveryState {
    @Override public DeliveryStateType getType() { return null; }
  }

  /** Attaches to the coordinator. {@code page}: most names of branches in one answer. */
  PackhorseXAResource(Wire wire, int page) throws IOException {
    this.wire = wire;
    this.page = page;
    wire.understand(RESULT, "packhorse:xa-result:list", reads(Result.class, list ->
        new Result((Integer) list.get(0), field(list, 1, List.<Object>of()), field(list, 2, false), field(list, 3, ""))));
    wire.understand(XID, "packhorse:xa-xid:list", reads(Name.class, list ->
        new Name((Integer) list.get(0), Wire.bytes((Binary) list.get(1)), Wire.bytes((Binary) list.get(2)))));
    Coordinator target = new Coordinator();
    target.setCapabilities(Symbol.valueOf("amqp:distributed-transactions"));
    coordinator = wire.sender(target);
    Symbol[] offered = coordinator.getRemoteOfferedCapabilities();
    if (offered == null || !Arrays.asList(offered).contains(Symbol.valueOf(VERSION))) throw new IOException("the broker does not offer " + VERSION);
  }

  /** The state to send a message under. */
  DeliveryState work() {
    TransactionalState state = new TransactionalState();
    state.setTxnId(Objects.requireNonNull(transaction, "no branch is started"));
    return state;
  }

  /** The state to settle a delivery with. */
  DeliveryState acceptance() {
    TransactionalState state = (TransactionalState) work();
    state.setOutcome(Accepted.getInstance());
    return state;
  }

  @Override public void start(Xid xid, int flags) throws XAException {
    // A timeout is said of a branch that starts; for the others it has no meaning.
    Object globalId = described(START, with(xid, UnsignedInteger.valueOf(flags), UnsignedLong.valueOf(1000L * timeoutSeconds)));
    DeliveryState answer = ask(described(DECLARE, Arrays.asList(globalId)));
    if (answer instanceof Declared declared) transaction = declared.getTxnId();
    else result(answer);
  }

  @Override public void end(Xid xid, int flags) throws XAException {
    transaction = null; // whatever the answer is, nothing more is taken under it
    result(ask(described(END, with(xid, UnsignedInteger.valueOf(flags)))));
  }

  @Override public int prepare(Xid xid) throws XAException {
    return result(ask(described(PREPARE, with(xid)))).code();
  }

  @Override public void commit(Xid xid, boolean onePhase) throws XAException {
    result(ask(described(COMMIT, with(xid, onePhase))));
  }

  @Override public void rollback(Xid xid) throws XAException {
    result(ask(described(ROLLBACK, with(xid))));
  }

  @Override public void forget(Xid xid) throws XAException {
    result(ask(described(FORGET, with(xid))));
  }

  /** STARTRSCAN begins a scan, ENDRSCAN ends it, both together are all there is; without flags comes the next page of one that is under way. */
  @Override public Xid[] recover(int flags) throws XAException {
    if ((flags & ~(TMSTARTRSCAN | TMENDRSCAN)) != 0) throw trouble(XAException.XAER_INVAL, "flags of a scan: " + flags);
    boolean starts = (flags & TMSTARTRSCAN) != 0, ends = (flags & TMENDRSCAN) != 0;
    if (starts) {
      after = null;
      scanning = true;
    } else if (!scanning && !ends) throw trouble(XAException.XAER_INVAL, "no scan was started");
    List<Xid> found = new ArrayList<>();
    while (scanning) {
      Object place = after == null ? null : described(XID, with(after));
      Result answer = result(ask(described(RECOVER, Arrays.asList(place, UnsignedInteger.valueOf(page)))));
      for (Object xid : answer.xids()) found.add(after = (Name) xid);
      scanning = answer.more();
      if (!ends) break;
    }
    if (ends) scanning = false;
    return found.toArray(Xid[]::new);
  }

  @Override public boolean isSameRM(XAResource other) {
    Object broker = wire.property(BROKER);
    return broker != null && other instanceof PackhorseXAResource resource && broker.equals(resource.wire.property(BROKER));
  }

  @Override public int getTransactionTimeout() {
    return timeoutSeconds;
  }

  @Override public boolean setTransactionTimeout(int seconds) throws XAException {
    if (seconds < 0) throw trouble(XAException.XAER_INVAL, "a timeout of " + seconds + " s");
    timeoutSeconds = seconds;
    return true;
  }

  private DeliveryState ask(Object body) throws XAException {
    Message request = Proton.message();
    request.setBody(new AmqpValue(body));
    try {
      return wire.send(coordinator, request, null);
    } catch (IOException gone) {
      throw (XAException) trouble(XAException.XAER_RMFAIL, gone.getMessage()).initCause(gone);
    }
  }

  /** XA_OK and XA_RDONLY are results, every other code is thrown. */
  private static Result result(DeliveryState answer) throws XAException {
    if (answer instanceof Rejected rejected) throw trouble(XAException.XAER_RMERR, String.valueOf(rejected.getError()));
    if (!(answer instanceof Result result)) throw trouble(XAException.XAER_RMERR, "no answer of XA: " + answer);
    if (result.code() != XA_OK && result.code() != XA_RDONLY) throw trouble(result.code(), result.description());
    return result;
  }

  private static XAException trouble(int code, String description) {
    XAException trouble = new XAException(description);
    trouble.errorCode = code;
    return trouble;
  }

  private static List<Object> with(Xid xid, Object... more) {
    List<Object> fields = new ArrayList<>(List.of(xid.getFormatId(), new Binary(xid.getGlobalTransactionId()), new Binary(xid.getBranchQualifier())));
    fields.addAll(Arrays.asList(more));
    return fields;
  }

  private static DescribedType described(long code, List<?> fields) {
    return new DescribedType() {
      @Override public Object getDescriptor() { return UnsignedLong.valueOf(code); }
      @Override public Object getDescribed() { return fields; }
    };
  }

  private static <T> DescribedTypeConstructor<T> reads(Class<T> type, java.util.function.Function<List<?>, T> how) {
    return new DescribedTypeConstructor<>() {
      @Override public T newInstance(Object list) { return how.apply((List<?>) list); }
      @Override public Class<T> getTypeClass() { return type; }
    };
  }

  /** A field that may be null, or missing at the end of the list. */
  @SuppressWarnings("unchecked")
  private static <T> T field(List<?> list, int index, T otherwise) {
    Object value = index < list.size() ? list.get(index) : null;
    return value == null ? otherwise : (T) value;
  }
}
