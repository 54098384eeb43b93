package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// filling is the body of message `number`; the driver knows the same rule.
func filling(number, size int) []byte {
	var block [251]byte
	for k := range block {
		block[k] = byte(((k+31*number)*7 + 13) % 251)
	}
	out := make([]byte, size)
	for at := 0; at < size; at += 251 {
		copy(out[at:], block[:])
	}
	return out
}

func numbered(number, size int, durable any, ids bool) *amqp.Message {
	m := amqp.NewMessage(filling(number, size))
	m.ApplicationProperties = map[string]any{"n": int64(number)}
	if ids {
		m.ApplicationProperties["_AMQ_DUPL_ID"] = fmt.Sprintf("message %d", number)
	}
	if d, told := durable.(bool); told {
		m.Header = &amqp.MessageHeader{Durable: d, Priority: 4}
	}
	return m
}

func annotations(section any) amqp.Annotations {
	items, there := section.(typed)
	if !there {
		return nil
	}
	out := amqp.Annotations{}
	for key, value := range items {
		out[key] = toNative(value.(typed))
	}
	return out
}

func composed(spec typed) *amqp.Message {
	m := &amqp.Message{DeliveryAnnotations: annotations(spec["delivery_annotations"]), Annotations: annotations(spec["message_annotations"]), Footer: annotations(spec["footer"])}
	if h, there := spec["header"].(typed); there {
		m.Header = &amqp.MessageHeader{Priority: 4}
		if d, there := h["durable"].(bool); there {
			m.Header.Durable = d
		}
		if p, there := h["priority"].(float64); there {
			m.Header.Priority = uint8(p)
		}
		if t, there := h["ttl"].(float64); there {
			m.Header.TTL = time.Duration(t) * time.Millisecond
		}
	}
	if p, there := spec["properties"].(typed); there {
		m.Properties = &amqp.MessageProperties{}
		for name, value := range p {
			set(m.Properties, name, toNative(value.(typed)))
		}
	}
	if a, there := spec["application_properties"].(typed); there {
		m.ApplicationProperties = map[string]any{}
		for key, value := range a {
			m.ApplicationProperties[key] = toNative(value.(typed))
		}
	}
	body := spec["body"].(typed)
	if data, there := body["data"].([]any); there {
		for _, text := range data {
			m.Data = append(m.Data, unhex(text.(string)))
		}
	} else if lists, there := body["sequence"].([]any); there {
		for _, list := range lists {
			m.Sequence = append(m.Sequence, toNative(typed{"list": list}).([]any))
		}
	} else if m.Value = toNative(body["value"].(typed)); m.Value == nil {
		m.Value = amqp.Null{}
	}
	return m
}

func set(p *amqp.MessageProperties, name string, value any) {
	switch name {
	case "message_id":
		p.MessageID = value
	case "correlation_id":
		p.CorrelationID = value
	case "user_id":
		p.UserID = value.([]byte)
	case "to":
		p.To = text(value)
	case "subject":
		p.Subject = text(value)
	case "reply_to":
		p.ReplyTo = text(value)
	case "content_type":
		p.ContentType = text(value)
	case "content_encoding":
		p.ContentEncoding = text(value)
	case "absolute_expiry_time":
		t := value.(time.Time)
		p.AbsoluteExpiryTime = &t
	case "creation_time":
		t := value.(time.Time)
		p.CreationTime = &t
	case "group_id":
		p.GroupID = text(value)
	case "group_sequence":
		n := value.(uint32)
		p.GroupSequence = &n
	case "reply_to_group_id":
		p.ReplyToGroupID = text(value)
	}
}

func text(value any) *string {
	if symbol, is := value.(amqp.Symbol); is {
		s := string(symbol)
		return &s
	}
	s := value.(string)
	return &s
}

func header(m *amqp.Message) amqp.MessageHeader {
	if m.Header == nil {
		return amqp.MessageHeader{Priority: 4}
	}
	return *m.Header
}

func view(m *amqp.Message) typed {
	h := header(m)
	properties := typed{}
	if p := m.Properties; p != nil {
		put := func(name, kind string, value *string) {
			if value != nil {
				properties[name] = tell(kind, *value)
			}
		}
		if p.MessageID != nil {
			properties["message_id"] = fromNative(p.MessageID)
		}
		if p.CorrelationID != nil {
			properties["correlation_id"] = fromNative(p.CorrelationID)
		}
		if p.UserID != nil {
			properties["user_id"] = fromNative(p.UserID)
		}
		put("to", "string", p.To)
		put("subject", "string", p.Subject)
		put("reply_to", "string", p.ReplyTo)
		put("content_type", "symbol", p.ContentType)
		put("content_encoding", "symbol", p.ContentEncoding)
		put("group_id", "string", p.GroupID)
		put("reply_to_group_id", "string", p.ReplyToGroupID)
		if p.AbsoluteExpiryTime != nil {
			properties["absolute_expiry_time"] = fromNative(*p.AbsoluteExpiryTime)
		}
		if p.CreationTime != nil {
			properties["creation_time"] = fromNative(*p.CreationTime)
		}
		if p.GroupSequence != nil {
			properties["group_sequence"] = fromNative(*p.GroupSequence)
		}
	}
	annotated := func(items amqp.Annotations) typed {
		out := typed{}
		for key, value := range items {
			out[string(mustKey(key))] = fromNative(value)
		}
		return out
	}
	application := typed{}
	for key, value := range m.ApplicationProperties {
		application[key] = fromNative(value)
	}
	body := typed{"value": fromNative(m.Value)}
	if m.Data != nil {
		data := []any{}
		for _, bytes := range m.Data {
			data = append(data, hex.EncodeToString(bytes))
		}
		body = typed{"data": data}
	} else if m.Sequence != nil {
		lists := []any{}
		for _, list := range m.Sequence {
			lists = append(lists, fromNative(list)["list"])
		}
		body = typed{"sequence": lists}
	}
	return typed{
		"header":               typed{"durable": h.Durable, "priority": h.Priority, "ttl": h.TTL.Milliseconds(), "delivery_count": h.DeliveryCount},
		"delivery_annotations": annotated(m.DeliveryAnnotations), "message_annotations": annotated(m.Annotations),
		"properties": properties, "application_properties": application, "body": body, "footer": annotated(m.Footer),
	}
}

func mustKey(key any) string {
	if s, is := key.(string); is {
		return s
	}
	for _, text := range fromNative(key) {
		return text.(string)
	}
	return ""
}

func summary(m *amqp.Message) typed {
	h := header(m)
	number, numbered := m.ApplicationProperties["n"]
	if !numbered {
		number = -1
	}
	sum := sha256.Sum256(m.GetData())
	return typed{"n": number, "size": len(m.GetData()), "sha": hex.EncodeToString(sum[:]), "durable": h.Durable, "count": h.DeliveryCount}
}
