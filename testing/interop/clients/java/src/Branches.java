import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.qpid.proton.Proton;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.messaging.Accepted;
import org.apache.qpid.proton.amqp.messaging.ApplicationProperties;
import org.apache.qpid.proton.amqp.messaging.Data;
import org.apache.qpid.proton.amqp.messaging.Target;
import org.apache.qpid.proton.amqp.transaction.TransactionalState;
import org.apache.qpid.proton.amqp.transport.DeliveryState;
import org.apache.qpid.proton.engine.Receiver;
import org.apache.qpid.proton.engine.Sender;
import org.apache.qpid.proton.message.Message;

/** The commands {@code xa-…}: a transaction manager without a mind, for the driver is the one that decides. Each resource has a connection of its own. */
final class Branches {
  private record Opened(Wire wire, PackhorseXAResource resource, Map<String, Sender> senders, Map<String, Receiver> receivers) {}

  private final Map<String, Opened> resources = new HashMap<>();

  JsonObject perform(JsonObject c) throws IOException {
    String name = c.get("resource").getAsString();
    JsonObject out = new JsonObject();
    if (c.get("do").getAsString().equals("xa-open")) {
      Wire wire = new Wire(c.get("host").getAsString(), c.get("port").getAsInt(), "interop-" + name);
      resources.put(name, new Opened(wire, new PackhorseXAResource(wire, c.get("page").getAsInt()), new HashMap<>(), new HashMap<>()));
      return out;
    }
    Opened opened = resources.get(name);
    switch (c.get("do").getAsString()) {
      case "xa" -> {
        try {
          out.addProperty("code", XAResource.XA_OK);
          verb(opened.resource(), c, out);
        } catch (XAException answer) {
          out.addProperty("code", answer.errorCode);
          out.addProperty("description", answer.getMessage());
        }
      }
      case "xa-send" -> send(opened, c, out);
      case "xa-receive" -> receive(opened, c, out);
      case "xa-close" -> resources.remove(name).wire().close();
      default -> throw new IllegalArgumentException("no command " + c.get("do"));
    }
    return out;
  }

  private void verb(PackhorseXAResource resource, JsonObject c, JsonObject out) throws XAException {
    int flags = c.has("flags") ? c.get("flags").getAsInt() : XAResource.TMNOFLAGS;
    switch (c.get("verb").getAsString()) {
      case "start" -> resource.start(xid(c), flags);
      case "end" -> resource.end(xid(c), flags);
      case "prepare" -> out.addProperty("code", resource.prepare(xid(c)));
      case "commit" -> resource.commit(xid(c), c.has("one_phase") && c.get("one_phase").getAsBoolean());
      case "rollback" -> resource.rollback(xid(c));
      case "forget" -> resource.forget(xid(c));
      case "recover" -> {
        JsonArray xids = new JsonArray();
        for (Xid xid : resource.recover(flags)) {
          JsonArray parts = new JsonArray();
          parts.add(xid.getFormatId());
          parts.add(Values.HEX.formatHex(xid.getGlobalTransactionId()));
          parts.add(Values.HEX.formatHex(xid.getBranchQualifier()));
          xids.add(parts);
        }
        out.add("xids", xids);
      }
      case "timeout" -> resource.setTransactionTimeout(c.get("seconds").getAsInt());
      case "same" -> out.addProperty("same", resource.isSameRM(resources.get(c.get("other").getAsString()).resource()));
      default -> throw new IllegalArgumentException("no verb " + c.get("verb"));
    }
  }

  private static Xid xid(JsonObject c) {
    JsonArray parts = c.getAsJsonArray("xid");
    return new PackhorseXAResource.Name(parts.get(0).getAsInt(), Values.HEX.parseHex(parts.get(1).getAsString()), Values.HEX.parseHex(parts.get(2).getAsString()));
  }

  private static void send(Opened opened, JsonObject c, JsonObject out) throws IOException {
    String address = c.get("address").getAsString();
    Sender sender = opened.senders().get(address);
    if (sender == null) {
      Target target = new Target();
      target.setAddress(address);
      opened.senders().put(address, sender = opened.wire().sender(target));
    }
    long from = c.get("from").getAsLong(), count = c.get("count").getAsLong();
    int accepted = 0;
    JsonArray others = new JsonArray();
    for (long n = from; n < from + count; n++) {
      Message message = Proton.message();
      message.setDurable(true);
      message.setApplicationProperties(new ApplicationProperties(Map.of("n", n)));
      message.setBody(new Data(new Binary(Messages.filling(n, c.get("size").getAsInt()))));
      DeliveryState answer = opened.wire().send(sender, message, opened.resource().work());
      if (answer instanceof TransactionalState state && state.getOutcome() instanceof Accepted) accepted++;
      else others.add(n + ": " + answer);
    }
    out.addProperty("accepted", accepted);
    out.add("others", others);
  }

  private static void receive(Opened opened, JsonObject c, JsonObject out) throws IOException {
    String address = c.get("address").getAsString();
    Receiver receiver = opened.receivers().get(address);
    if (receiver == null) opened.receivers().put(address, receiver = opened.wire().receiver(address));
    JsonArray messages = new JsonArray();
    for (int count = c.get("count").getAsInt(); count > 0; count--) {
      Message message = opened.wire().receive(receiver, opened.resource().acceptance());
      byte[] body = Wire.bytes(((Data) message.getBody()).getValue());
      JsonObject summary = new JsonObject();
      summary.addProperty("n", (Number) message.getApplicationProperties().getValue().get("n"));
      summary.addProperty("size", body.length);
      summary.addProperty("sha", Messages.sha(body));
      summary.addProperty("durable", message.isDurable());
      summary.addProperty("count", message.getDeliveryCount());
      messages.add(summary);
    }
    out.add("messages", messages);
  }

  /** Whatever is left open, broken or not. */
  void reset() {
    for (Opened opened : resources.values()) {
      try {
        opened.wire().drop();
      } catch (IOException late) {
        System.err.println(late);
      }
    }
    resources.clear();
  }
}
