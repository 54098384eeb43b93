import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageEOFException;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Builds the messages the driver asks for and tells what arrived, as far as JMS can say. */
final class Messages {
  private Messages() {}

  /** The body of message {@code number}; the driver knows the same rule. */
  static byte[] filling(long number, int size) {
    byte[] out = new byte[size];
    for (int k = 0; k < Math.min(size, 251); k++) out[k] = (byte) (((k + 31 * number) * 7 + 13) % 251);
    for (int done = 251; done < size; done *= 2) System.arraycopy(out, 0, out, done, Math.min(done, size - done));
    return out;
  }

  static Message numbered(Session session, long number, int size, boolean ids) throws JMSException {
    BytesMessage message = session.createBytesMessage();
    message.writeBytes(filling(number, size));
    message.setLongProperty("n", number);
    if (ids) message.setStringProperty("_AMQ_DUPL_ID", "message " + number);
    return message;
  }

  static Message composed(Session session, JsonObject spec) throws JMSException {
    Message message = body(session, spec.getAsJsonObject("body"));
    for (Map.Entry<String, JsonElement> property : part(spec, "application_properties").entrySet())
      message.setObjectProperty(property.getKey(), Values.toNative(property.getValue().getAsJsonObject()));
    for (Map.Entry<String, JsonElement> property : part(spec, "properties").entrySet()) {
      Object value = Values.toNative(property.getValue().getAsJsonObject());
      switch (property.getKey()) {
        case "subject" -> message.setJMSType((String) value);
        case "reply_to" -> message.setJMSReplyTo(session.createQueue((String) value));
        case "correlation_id" -> message.setJMSCorrelationID((String) value);
        case "group_id" -> message.setStringProperty("JMSXGroupID", (String) value);
        case "group_sequence" -> message.setIntProperty("JMSXGroupSeq", ((Number) value).intValue());
        case "reply_to_group_id" -> message.setStringProperty("JMS_AMQP_REPLY_TO_GROUP_ID", (String) value);
        default -> throw new JMSException("JMS cannot set " + property.getKey());
      }
    }
    return message;
  }

  private static Message body(Session session, JsonObject body) throws JMSException {
    if (body.has("data")) {
      BytesMessage message = session.createBytesMessage();
      message.writeBytes(Values.HEX.parseHex(body.getAsJsonArray("data").get(0).getAsString()));
      return message;
    }
    if (body.has("sequence")) {
      StreamMessage message = session.createStreamMessage();
      for (JsonElement item : body.getAsJsonArray("sequence").get(0).getAsJsonArray()) message.writeObject(Values.toNative(item.getAsJsonObject()));
      return message;
    }
    JsonObject typed = body.getAsJsonObject("value");
    Object value = Values.toNative(typed);
    if (value == null || value instanceof String) return session.createTextMessage((String) value);
    ObjectMessage message = session.createObjectMessage();
    message.setBooleanProperty("JMS_AMQP_TYPED_ENCODING", true);
    message.setObject((Serializable) value);
    return message;
  }

  static JsonObject part(JsonObject spec, String section) {
    return spec.has(section) ? spec.getAsJsonObject(section) : new JsonObject();
  }

  static JsonObject summary(Message message) throws JMSException {
    byte[] body = message instanceof BytesMessage bytes ? read(bytes) : message instanceof TextMessage text ? text.getText().getBytes(StandardCharsets.UTF_8) : new byte[0];
    JsonObject out = new JsonObject();
    out.addProperty("n", message.propertyExists("n") ? message.getLongProperty("n") : -1);
    out.addProperty("size", body.length);
    out.addProperty("sha", sha(body));
    out.addProperty("durable", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
    out.addProperty("count", message.getIntProperty("JMSXDeliveryCount") - 1);
    out.addProperty("redelivered", message.getJMSRedelivered());
    return out;
  }

  static JsonObject view(Message message) throws JMSException {
    JsonObject out = new JsonObject(), header = new JsonObject(), properties = new JsonObject(), body;
    header.addProperty("durable", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
    header.addProperty("priority", message.getJMSPriority());
    header.addProperty("delivery_count", message.getIntProperty("JMSXDeliveryCount") - 1);
    for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
      String name = (String) names.nextElement();
      if (!name.startsWith("JMS")) properties.add(name, Values.fromNative(message.getObjectProperty(name)));
    }
    if (message instanceof BytesMessage bytes) {
      JsonArray data = new JsonArray();
      data.add(Values.HEX.formatHex(read(bytes)));
      body = Values.one("data", data);
    } else if (message instanceof StreamMessage stream) {
      List<Object> items = new ArrayList<>();
      try {
        for (;;) items.add(stream.readObject());
      } catch (MessageEOFException end) {
        JsonArray lists = new JsonArray();
        lists.add(Values.fromNative(items).get("list"));
        body = Values.one("sequence", lists);
      }
    } else if (message instanceof MapMessage map) {
      Map<Object, Object> items = new LinkedHashMap<>();
      for (Enumeration<?> names = map.getMapNames(); names.hasMoreElements(); ) {
        String name = (String) names.nextElement();
        items.put(name, map.getObject(name));
      }
      body = Values.one("value", Values.fromNative(items));
    } else if (message instanceof ObjectMessage object) {
      body = Values.one("value", Values.fromNative(object.getObject()));
    } else {
      body = Values.one("value", Values.fromNative(message instanceof TextMessage text ? text.getText() : null));
    }
    out.add("header", header);
    out.add("application_properties", properties);
    out.add("body", body);
    return out;
  }

  private static byte[] read(BytesMessage message) throws JMSException {
    byte[] out = new byte[(int) message.getBodyLength()];
    message.readBytes(out);
    return out;
  }

  static String sha(byte[] body) {
    try {
      return Values.HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
