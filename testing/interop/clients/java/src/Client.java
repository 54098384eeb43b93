import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsDestination;
import org.apache.qpid.jms.JmsSession;
import org.apache.qpid.jms.policy.JmsPrefetchPolicy;
import org.apache.qpid.jms.policy.JmsPresettlePolicy;

/**
 * Qpid JMS as a client of the interop matrix.
 *
 * <p>Reads one command a line on standard input, answers one line each on standard output; the commands are described in ../../README.md. It owns nothing
 * but the translation from commands to JMS: what is right is judged by the driver. All sessions acknowledge message by message (Qpid's mode 101), the
 * outcome goes into the property JMS_AMQP_ACK_TYPE; but those that got a coordinator are transacted, and what they receive is accepted in the transaction.
 */
public final class Client {
  private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
  private static final Map<String, Integer> ACK_TYPES = Map.of("accept", 1, "reject", 2, "release", 3, "fail", 4, "undeliverable", 5);
  private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private static final Gson GSON = new Gson();

  /** Qpid asks its policies when a link is made; these answer with what the command said, and are not copied. */
  private static final class Wishes implements JmsPrefetchPolicy, JmsPresettlePolicy {
    int prefetch;
    boolean settled;

    @Override public Wishes copy() { return this; }
    @Override public int getConfiguredPrefetch(JmsSession session, JmsDestination destination, boolean durable, boolean browser) { return prefetch; }
    @Override public boolean isConsumerPresttled(JmsSession session, JmsDestination destination) { return settled; }
    @Override public boolean isProducerPresttled(JmsSession session, JmsDestination destination) { return settled; }
  }

  private record Producer(Session session, MessageProducer producer, boolean settled) {}

  /** {@code settled}: nothing is to be said of a message, for the broker or the transaction has it settled. */
  private record Consumer(MessageConsumer consumer, boolean settled, Deque<Message> drained, List<Message> held) {}

  /** The enumeration asks the broker for what is there by a drain, and has ended for good when that brings nothing. */
  private record Browser(QueueBrowser browser, Enumeration<?> messages) {}

  private record Outcome(long number, Exception error) {}

  private final Wishes wishes = new Wishes();
  private final Map<String, Connection> connections = new HashMap<>();
  private final Map<String, Session> sessions = new HashMap<>();
  /** The connection of each session, the session of each coordinator, and of each transaction: all by name. */
  private final Map<String, String> owners = new HashMap<>();
  /** Not JMS: the resource of XA stands on Proton-J, which Qpid JMS brings with it. */
  private final Branches branches = new Branches();
  private final Map<String, Producer> producers = new HashMap<>();
  private final Map<String, Consumer> consumers = new HashMap<>();
  private final Map<String, Browser> browsers = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    Client client = new Client();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      JsonObject answer;
      try {
        answer = client.perform(JsonParser.parseString(line).getAsJsonObject());
        answer.addProperty("ok", true);
      } catch (Exception | OutOfMemoryError trouble) { // told to the driver, which knows whether it was to be expected
        answer = new JsonObject();
        answer.addProperty("error", String.valueOf(trouble));
      }
      print(answer);
    }
    System.exit(0);
  }

  private static synchronized void print(JsonObject answer) {
    OUT.println(GSON.toJson(answer));
    OUT.flush();
  }

  private static String text(JsonObject c, String key) {
    JsonElement value = c.get(key);
    return value == null || value.isJsonNull() ? null : value.getAsString();
  }

  private static int number(JsonObject c, String key) {
    JsonElement value = c.get(key);
    return value == null || value.isJsonNull() ? 0 : value.getAsInt();
  }

  private static boolean flag(JsonObject c, String key, boolean otherwise) {
    JsonElement value = c.get(key);
    return value == null || value.isJsonNull() ? otherwise : value.getAsBoolean();
  }

  private JsonObject perform(JsonObject c) throws Exception {
    String link = text(c, "link");
    switch (text(c, "do")) {
      case "connect" -> {
        String broker = "amqp://" + text(c, "host") + ":" + number(c, "port");
        if (flag(c, "failover", false)) broker = "failover:(" + broker + ")";
        String url = broker + "?jms.requestTimeout=30000&jms.sendTimeout=120000&jms.closeTimeout=30000&jms.validatePropertyNames=false";
        JmsConnectionFactory factory = new JmsConnectionFactory(url);
        Connection connection = text(c, "user") == null ? factory.createConnection() : factory.createConnection(text(c, "user"), text(c, "password"));
        ((JmsConnection) connection).setPrefetchPolicy(wishes);
        ((JmsConnection) connection).setPresettlePolicy(wishes);
        connection.start();
        connections.put(text(c, "connection"), connection);
      }
      case "session" -> {
        sessions.put(text(c, "session"), connections.get(text(c, "connection")).createSession(false, INDIVIDUAL_ACKNOWLEDGE));
        owners.put(text(c, "session"), text(c, "connection"));
      }
      case "coordinator" -> { // JMS hides it: in its place the session becomes a transacted one
        String session = text(c, "session");
        sessions.get(session).close();
        sessions.put(session, connections.get(owners.get(session)).createSession(true, Session.SESSION_TRANSACTED));
        owners.put(link, session);
      }
      case "declare" -> owners.put(text(c, "txn"), owners.get(link)); // there always is one
      case "discharge" -> {
        Session session = sessions.get(owners.get(text(c, "txn")));
        if (flag(c, "fail", false)) session.rollback();
        else session.commit();
      }
      case "sender" -> {
        Session session = sessions.get(text(c, "session"));
        wishes.settled = "settled".equals(text(c, "settle"));
        producers.put(link, new Producer(session, session.createProducer(session.createQueue(text(c, "address"))), wishes.settled));
      }
      case "receiver" -> {
        Session session = sessions.get(text(c, "session"));
        wishes.settled = "settled".equals(text(c, "settle"));
        wishes.prefetch = number(c, "prefetch");
        if (flag(c, "browse", false)) {
          QueueBrowser browser = session.createBrowser(session.createQueue(text(c, "address")));
          browsers.put(link, new Browser(browser, browser.getEnumeration()));
        } else consumers.put(link, new Consumer(session.createConsumer(session.createQueue(text(c, "address"))), wishes.settled || session.getTransacted(), new ArrayDeque<>(), new ArrayList<>()));
      }
      case "send" -> {
        Producer producer = producers.get(link);
        int from = number(c, "from"), count = number(c, "count"), size = number(c, "size"), window = number(c, "window") == 0 ? count : number(c, "window");
        boolean ids = flag(c, "ids", false);
        int mode = flag(c, "durable", true) ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
        Sending sending = new Sending(producer, window, number(c, "progress"));
        try {
          for (long n = from; n < from + count; n++) sending.post(n, Messages.numbered(producer.session(), n, size, ids), mode, Message.DEFAULT_PRIORITY, 0);
          sending.finish();
        } catch (JMSException trouble) {
          sending.lose(trouble);
        }
        return sending.result();
      }
      case "send_specs" -> {
        Producer producer = producers.get(link);
        Sending sending = new Sending(producer, 100, 0);
        long n = 0;
        for (JsonElement element : c.getAsJsonArray("messages")) {
          JsonObject spec = element.getAsJsonObject(), header = Messages.part(spec, "header");
          int priority = header.has("priority") ? header.get("priority").getAsInt() : Message.DEFAULT_PRIORITY;
          long ttl = header.has("ttl") ? header.get("ttl").getAsLong() : 0;
          sending.post(n++, Messages.composed(producer.session(), spec), flag(header, "durable", false) ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT, priority, ttl);
        }
        sending.finish();
        return sending.result();
      }
      case "receive" -> {
        return browsers.containsKey(link) ? browse(browsers.get(link), c) : receive(consumers.get(link), c);
      }
      case "settle" -> {
        Consumer consumer = consumers.get(link);
        for (Message message : consumer.held()) settle(message, text(c, "outcome"));
        consumer.held().clear();
      }
      case "drain" -> {
        // With prefetch 0 a receive without wait is credit 1 and a drain; what it brings is kept for the next `receive`.
        Consumer consumer = consumers.get(link);
        for (Message message; (message = consumer.consumer().receiveNoWait()) != null; ) consumer.drained().add(message);
      }
      case "detach" -> {
        Producer producer = producers.remove(link);
        if (producer != null) producer.producer().close();
        Consumer consumer = consumers.remove(link);
        if (consumer != null) consumer.consumer().close();
        Browser browser = browsers.remove(link);
        if (browser != null) browser.browser().close();
      }
      case "end" -> sessions.remove(text(c, "session")).close();
      case "close" -> connections.remove(text(c, "connection")).close();
      case "reset" -> {
        for (Connection connection : connections.values()) {
          try {
            connection.close();
          } catch (JMSException late) { // a broken one cannot be closed in order
            System.err.println(late);
          }
        }
        connections.clear();
        sessions.clear();
        owners.clear();
        branches.reset();
        producers.clear();
        consumers.clear();
        browsers.clear();
      }
      case "xa", "xa-open", "xa-send", "xa-receive", "xa-close" -> {
        return branches.perform(c);
      }
      default -> throw new IllegalArgumentException("no command " + text(c, "do"));
    }
    return new JsonObject();
  }

  /** One `send`: at most `window` messages without an outcome; with progress a lost connection ends it and is not an error. */
  private static final class Sending implements CompletionListener {
    private final Producer producer;
    private final int window, progress;
    private final Map<Message, Long> open = new java.util.IdentityHashMap<>();
    private final List<Outcome> outcomes = new ArrayList<>();
    private int accepted, high;
    private String lost;

    Sending(Producer producer, int window, int progress) {
      this.producer = producer;
      this.window = window;
      this.progress = progress;
    }

    void post(long number, Message message, int mode, int priority, long ttl) throws Exception {
      if (producer.settled()) { // sent once it is written, nothing will be told about it
        producer.producer().send(message, mode, priority, ttl);
        return;
      }
      synchronized (this) {
        while (open.size() >= window && lost == null) wait(120_000);
        if (lost != null) throw new JMSException(lost);
        open.put(message, number);
        high = Math.max(high, open.size());
      }
      producer.producer().send(message, mode, priority, ttl, this);
    }

    synchronized void finish() throws Exception {
      while (!open.isEmpty() && lost == null) {
        int before = open.size();
        wait(120_000);
        if (open.size() == before) throw new JMSException("the last outcomes: nothing for 120 s");
      }
      if (lost != null) throw new JMSException(lost);
    }

    @Override public synchronized void onCompletion(Message message) {
      outcomes.add(new Outcome(open.remove(message), null));
      accepted++;
      if (progress > 0 && accepted % progress == 0) {
        JsonObject event = new JsonObject();
        event.addProperty("event", "progress");
        event.addProperty("confirmed", accepted);
        print(event);
      }
      notifyAll();
    }

    @Override public synchronized void onException(Message message, Exception error) {
      Long number = open.remove(message);
      outcomes.add(new Outcome(number == null ? -1 : number, error));
      if (progress > 0) lost = error.toString();
      notifyAll();
    }

    synchronized void lose(JMSException trouble) throws JMSException {
      if (progress == 0) throw trouble;
      lost = trouble.toString();
    }

    synchronized JsonObject result() {
      JsonArray confirmed = new JsonArray(), others = new JsonArray();
      for (Outcome outcome : outcomes) {
        if (outcome.error() == null && progress > 0) confirmed.add(outcome.number());
        if (outcome.error() != null && others.size() < 5) others.add(outcome.number() + ": " + outcome.error());
      }
      JsonObject out = new JsonObject();
      out.addProperty("accepted", accepted);
      out.addProperty("in_flight", high);
      out.addProperty("lost", lost);
      out.add("confirmed", confirmed);
      out.add("others", others);
      return out;
    }
  }

  private static void settle(Message message, String outcome) throws JMSException {
    message.setIntProperty("JMS_AMQP_ACK_TYPE", ACK_TYPES.get(outcome));
    message.acknowledge();
  }

  /** As `receive`; it never waits, and the library accepts what it shows: JMS knows no acknowledgement for a browser. */
  private static JsonObject browse(Browser browser, JsonObject c) throws JMSException {
    JsonArray messages = new JsonArray();
    while (messages.size() < number(c, "count") && browser.messages().hasMoreElements()) {
      Message message = (Message) browser.messages().nextElement();
      messages.add(flag(c, "detail", false) ? Messages.view(message) : Messages.summary(message));
    }
    JsonObject out = new JsonObject();
    out.add("messages", messages);
    return out;
  }

  private static JsonObject receive(Consumer consumer, JsonObject c) throws JMSException {
    JsonArray messages = new JsonArray();
    String outcome = text(c, "settle") == null ? "accept" : text(c, "settle");
    while (messages.size() < number(c, "count")) {
      Message message = consumer.drained().isEmpty() ? consumer.consumer().receive(number(c, "timeout_ms")) : consumer.drained().poll();
      if (message == null) break;
      messages.add(flag(c, "detail", false) ? Messages.view(message) : Messages.summary(message));
      if (consumer.settled()) continue;
      if (outcome.equals("hold")) consumer.held().add(message);
      else settle(message, outcome);
    }
    JsonObject out = new JsonObject();
    out.add("messages", messages);
    return out;
  }
}
