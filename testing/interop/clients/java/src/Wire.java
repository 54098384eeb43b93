import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.function.BooleanSupplier;
import org.apache.qpid.proton.Proton;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.messaging.Source;
import org.apache.qpid.proton.amqp.transport.DeliveryState;
import org.apache.qpid.proton.amqp.transport.ErrorCondition;
import org.apache.qpid.proton.codec.DecoderImpl;
import org.apache.qpid.proton.codec.DescribedTypeConstructor;
import org.apache.qpid.proton.engine.Connection;
import org.apache.qpid.proton.engine.Delivery;
import org.apache.qpid.proton.engine.Endpoint;
import org.apache.qpid.proton.engine.EndpointState;
import org.apache.qpid.proton.engine.Link;
import org.apache.qpid.proton.engine.Receiver;
import org.apache.qpid.proton.engine.Sender;
import org.apache.qpid.proton.engine.Session;
import org.apache.qpid.proton.engine.Transport;
import org.apache.qpid.proton.message.Message;

/**
 * One AMQP connection with one session over plain Proton-J, for one thread: each call writes what there is to write and reads until what it waits for has
 * happened. Proton-J has the protocol's rules and no sockets; this is its socket, and no more.
 */
final class Wire implements Closeable {
  private static final int PATIENCE_MS = 30_000;
  private static final int CHUNK = 64 * 1024;

  private final Socket socket = new Socket();
  private final InputStream in;
  private final OutputStream out;
  private final Transport transport = Proton.transport();
  private final Connection connection = Proton.connection();
  private final Session session;
  private long tags;

  /** Connects anonymously, and begins a session. */
  Wire(String host, int port, String container) throws IOException {
    socket.connect(new InetSocketAddress(host, port), PATIENCE_MS);
    socket.setTcpNoDelay(true);
    in = socket.getInputStream();
    out = socket.getOutputStream();
    transport.sasl().client();
    transport.sasl().setMechanisms("ANONYMOUS");
    transport.bind(connection);
    connection.setContainer(container);
    connection.setHostname(host);
    connection.open();
    session = connection.session();
    session.open();
    until(() -> session.getRemoteState() == EndpointState.ACTIVE, "begin");
  }

  /**
   * Says how a composite type is read that Proton-J does not know, under both of its descriptors. A delivery state must be known to be read at all, and
   * Proton-J offers no way to make it so but the decoder inside its transport.
   */
  void understand(long code, String symbol, DescribedTypeConstructor<?> how) {
    try {
      Field field = transport.getClass().getDeclaredField("_decoder");
      field.setAccessible(true);
      DecoderImpl decoder = (DecoderImpl) field.get(transport);
      decoder.register(UnsignedLong.valueOf(code), how);
      decoder.register(Symbol.valueOf(symbol), how);
    } catch (ReflectiveOperationException another) {
      throw new IllegalStateException("this Proton-J has its decoder elsewhere", another);
    }
  }

  /** A property of the broker's {@code open}, or null. */
  Object property(String name) {
    return connection.getRemoteProperties() == null ? null : connection.getRemoteProperties().get(Symbol.valueOf(name));
  }

  /** Attaches a sender to a queue, or to the coordinator. */
  Sender sender(org.apache.qpid.proton.amqp.transport.Target target) throws IOException {
    Sender sender = session.sender("out-" + tags++);
    sender.setSource(new Source());
    sender.setTarget(target);
    attach(sender);
    if (sender.getRemoteTarget() == null) until(() -> false, "attach refused", sender);
    return sender;
  }

  /** Attaches a receiver to a queue; it gets no credit yet. */
  Receiver receiver(String address) throws IOException {
    Receiver receiver = session.receiver("in-" + tags++);
    Source source = new Source();
    source.setAddress(address);
    receiver.setSource(source);
    receiver.setTarget(new org.apache.qpid.proton.amqp.messaging.Target());
    attach(receiver);
    return receiver;
  }

  private void attach(Link link) throws IOException {
    link.open();
    until(() -> link.getRemoteState() == EndpointState.ACTIVE, "attach", link);
  }

  /** Sends a message under a state (null: none), and returns the state that it is answered with. */
  DeliveryState send(Sender sender, Message message, DeliveryState under) throws IOException {
    until(() -> sender.getCredit() > 0, "credit", sender);
    byte[] bytes = new byte[CHUNK];
    int length;
    for (; ; ) {
      try {
        length = message.encode(bytes, 0, bytes.length);
        break;
      } catch (java.nio.BufferOverflowException more) {
        bytes = new byte[2 * bytes.length];
      }
    }
    Delivery delivery = sender.delivery(Long.toString(tags++).getBytes(java.nio.charset.StandardCharsets.US_ASCII));
    if (under != null) delivery.disposition(under);
    sender.send(bytes, 0, length);
    sender.advance();
    until(() -> delivery.remotelySettled(), "an outcome", sender);
    DeliveryState answer = delivery.getRemoteState();
    delivery.settle();
    return answer;
  }

  /** Grants one credit, waits for a message, and settles it with a state. */
  Message receive(Receiver receiver, DeliveryState as) throws IOException {
    receiver.flow(1);
    until(() -> receiver.current() != null && receiver.current().isReadable() && !receiver.current().isPartial(), "a message", receiver);
    Delivery delivery = receiver.current();
    byte[] bytes = new byte[delivery.pending()];
    receiver.recv(bytes, 0, bytes.length);
    receiver.advance();
    Message message = Proton.message();
    message.decode(bytes, 0, bytes.length);
    delivery.disposition(as);
    delivery.settle();
    write();
    return message;
  }

  /** Its bytes, wherever they lie. */
  static byte[] bytes(Binary binary) {
    return java.util.Arrays.copyOfRange(binary.getArray(), binary.getArrayOffset(), binary.getArrayOffset() + binary.getLength());
  }

  private void until(BooleanSupplier condition, String what, Link... links) throws IOException {
    long end = System.nanoTime() + PATIENCE_MS * 1_000_000L;
    byte[] bytes = new byte[CHUNK];
    for (write(); !condition.getAsBoolean(); write()) {
      for (Link link : links) closed(link);
      closed(session);
      closed(connection);
      int left = (int) ((end - System.nanoTime()) / 1_000_000);
      if (left <= 0) throw new IOException(what + ": nothing for " + PATIENCE_MS + " ms");
      socket.setSoTimeout(left);
      int count;
      try {
        count = in.read(bytes);
      } catch (SocketTimeoutException late) {
        continue;
      }
      if (count < 0) throw new EOFException(what + ": the broker closed the socket");
      for (int from = 0; from < count; ) {
        int part = Math.min(transport.capacity(), count - from);
        if (part <= 0) throw new IOException(what + ": " + transport.getCondition());
        transport.tail().put(bytes, from, part);
        transport.process();
        from += part;
      }
    }
  }

  private static void closed(Endpoint endpoint) throws IOException {
    if (endpoint.getRemoteState() != EndpointState.CLOSED || endpoint.getLocalState() == EndpointState.CLOSED) return;
    ErrorCondition why = endpoint.getRemoteCondition();
    throw new IOException("closed by the broker: " + why.getCondition() + " " + why.getDescription());
  }

  private void write() throws IOException {
    for (int count; (count = transport.pending()) > 0; transport.pop(count)) {
      ByteBuffer head = transport.head();
      byte[] bytes = new byte[count];
      head.get(bytes);
      out.write(bytes);
    }
    out.flush();
  }

  /** Closes the connection in order. */
  @Override public void close() throws IOException {
    try (socket) {
      connection.close();
      until(() -> connection.getRemoteState() == EndpointState.CLOSED, "close");
    }
  }

  /** Closes the socket, nothing is said to the broker. */
  void drop() throws IOException {
    socket.close();
  }
}
