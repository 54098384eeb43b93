import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Decimal128;
import org.apache.qpid.proton.amqp.Decimal32;
import org.apache.qpid.proton.amqp.Decimal64;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.UnsignedShort;

/** Typed values, one-key objects such as {"int": "-5"} (see ../../README.md), to and from what Qpid JMS works with. */
final class Values {
  static final HexFormat HEX = HexFormat.of();

  private Values() {}

  static Object toNative(JsonObject typed) {
    var entry = typed.entrySet().iterator().next();
    String kind = entry.getKey();
    JsonElement raw = entry.getValue();
    switch (kind) {
      case "list" -> {
        List<Object> out = new ArrayList<>();
        raw.getAsJsonArray().forEach(item -> out.add(toNative(item.getAsJsonObject())));
        return out;
      }
      case "map" -> {
        Map<Object, Object> out = new LinkedHashMap<>();
        raw.getAsJsonArray().forEach(pair -> out.put(toNative(pair.getAsJsonArray().get(0).getAsJsonObject()), toNative(pair.getAsJsonArray().get(1).getAsJsonObject())));
        return out;
      }
      case "array" -> throw new IllegalArgumentException("an array is no message body of JMS");
      default -> { }
    }
    String text = raw.getAsString();
    return switch (kind) {
      case "null" -> null;
      case "boolean" -> Boolean.valueOf(text);
      case "ubyte" -> UnsignedByte.valueOf(text);
      case "ushort" -> UnsignedShort.valueOf(text);
      case "uint" -> UnsignedInteger.valueOf(text);
      case "ulong" -> UnsignedLong.valueOf(text);
      case "byte" -> Byte.valueOf(text);
      case "short" -> Short.valueOf(text);
      case "int" -> Integer.valueOf(text);
      case "long" -> Long.valueOf(text);
      case "float" -> ByteBuffer.wrap(HEX.parseHex(text)).getFloat();
      case "double" -> ByteBuffer.wrap(HEX.parseHex(text)).getDouble();
      case "decimal32" -> new Decimal32(ByteBuffer.wrap(HEX.parseHex(text)).getInt());
      case "decimal64" -> new Decimal64(ByteBuffer.wrap(HEX.parseHex(text)).getLong());
      case "decimal128" -> new Decimal128(HEX.parseHex(text));
      case "char" -> (char) Integer.parseInt(text);
      case "timestamp" -> new Date(Long.parseLong(text));
      case "uuid" -> UUID.fromString(text);
      case "binary" -> new Binary(HEX.parseHex(text));
      case "symbol" -> Symbol.valueOf(text);
      default -> text;
    };
  }

  static JsonObject one(String kind, String text) {
    JsonObject out = new JsonObject();
    out.addProperty(kind, text);
    return out;
  }

  static JsonObject one(String kind, JsonElement value) {
    JsonObject out = new JsonObject();
    out.add(kind, value);
    return out;
  }

  static JsonObject fromNative(Object value) {
    if (value == null) return one("null", "");
    if (value instanceof Boolean) return one("boolean", value.toString());
    if (value instanceof UnsignedByte) return one("ubyte", value.toString());
    if (value instanceof UnsignedShort) return one("ushort", value.toString());
    if (value instanceof UnsignedInteger) return one("uint", value.toString());
    if (value instanceof UnsignedLong) return one("ulong", value.toString());
    if (value instanceof Byte) return one("byte", value.toString());
    if (value instanceof Short) return one("short", value.toString());
    if (value instanceof Integer) return one("int", value.toString());
    if (value instanceof Long) return one("long", value.toString());
    if (value instanceof Float f) return one("float", "%08x".formatted(Float.floatToRawIntBits(f)));
    if (value instanceof Double d) return one("double", "%016x".formatted(Double.doubleToRawLongBits(d)));
    if (value instanceof Decimal32 d) return one("decimal32", "%08x".formatted(d.getBits()));
    if (value instanceof Decimal64 d) return one("decimal64", "%016x".formatted(d.getBits()));
    if (value instanceof Decimal128 d) return one("decimal128", HEX.formatHex(d.asBytes()));
    if (value instanceof Character c) return one("char", Integer.toString(c));
    if (value instanceof Date d) return one("timestamp", Long.toString(d.getTime()));
    if (value instanceof UUID) return one("uuid", value.toString());
    if (value instanceof Symbol) return one("symbol", value.toString());
    if (value instanceof byte[] b) return one("binary", HEX.formatHex(b));
    if (value instanceof Binary b) return one("binary", HEX.formatHex(b.getArray(), b.getArrayOffset(), b.getArrayOffset() + b.getLength()));
    if (value instanceof Map<?, ?> map) {
      JsonArray pairs = new JsonArray();
      map.forEach((key, item) -> {
        JsonArray pair = new JsonArray();
        pair.add(fromNative(key));
        pair.add(fromNative(item));
        pairs.add(pair);
      });
      return one("map", pairs);
    }
    if (value instanceof List<?> list) {
      JsonArray items = new JsonArray();
      list.forEach(item -> items.add(fromNative(item)));
      return one("list", items);
    }
    return one("string", value.toString());
  }
}
