package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

// Typed values travel as one-key objects, {"int": "-5"}; see ../../README.md.
type typed = map[string]any

// must ends the cell with a plain error where the driver's table asks for what cannot be encoded.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func unhex(text string) []byte { return must(hex.DecodeString(text)) }

func arrayOf[T any](of string, items []any) []T {
	out := make([]T, 0, len(items))
	for _, item := range items {
		out = append(out, toNative(typed{of: item}).(T))
	}
	return out
}

func toNative(value typed) any {
	for kind, raw := range value {
		switch kind {
		case "list":
			out := []any{}
			for _, item := range raw.([]any) {
				out = append(out, toNative(item.(typed)))
			}
			return out
		case "map":
			out := map[any]any{}
			for _, pair := range raw.([]any) {
				out[toNative(pair.([]any)[0].(typed))] = toNative(pair.([]any)[1].(typed))
			}
			return out
		case "array":
			of, items := raw.([]any)[0].(string), raw.([]any)[1].([]any)
			switch of {
			case "boolean":
				return arrayOf[bool](of, items)
			case "int":
				return arrayOf[int32](of, items)
			case "long":
				return arrayOf[int64](of, items)
			case "ulong":
				return arrayOf[uint64](of, items)
			case "symbol":
				return arrayOf[amqp.Symbol](of, items)
			default:
				return arrayOf[string](of, items)
			}
		}
		text := raw.(string)
		switch kind {
		case "null":
			return nil
		case "boolean":
			return text == "true"
		case "ubyte":
			return uint8(must(strconv.ParseUint(text, 10, 8)))
		case "ushort":
			return uint16(must(strconv.ParseUint(text, 10, 16)))
		case "uint":
			return uint32(must(strconv.ParseUint(text, 10, 32)))
		case "ulong":
			return must(strconv.ParseUint(text, 10, 64))
		case "byte":
			return int8(must(strconv.ParseInt(text, 10, 8)))
		case "short":
			return int16(must(strconv.ParseInt(text, 10, 16)))
		case "int":
			return int32(must(strconv.ParseInt(text, 10, 32)))
		case "long":
			return must(strconv.ParseInt(text, 10, 64))
		case "float":
			return math.Float32frombits(uint32(must(strconv.ParseUint(text, 16, 32))))
		case "double":
			return math.Float64frombits(must(strconv.ParseUint(text, 16, 64)))
		case "timestamp":
			return time.UnixMilli(must(strconv.ParseInt(text, 10, 64))).UTC()
		case "uuid":
			var id amqp.UUID
			copy(id[:], unhex(strings.ReplaceAll(text, "-", "")))
			return id
		case "binary":
			return unhex(text)
		case "symbol":
			return amqp.Symbol(text)
		case "string":
			return text
		}
		panic(fmt.Errorf("go-amqp has no %s", kind))
	}
	panic(fmt.Errorf("an empty value"))
}

func tell(kind string, text any) typed { return typed{kind: fmt.Sprint(text)} }

func tellArray[T any](of string, items []T) typed {
	out := []any{}
	for _, item := range items {
		for _, text := range fromNative(item) {
			out = append(out, text)
		}
	}
	return typed{"array": []any{of, out}}
}

func fromNative(value any) typed {
	switch v := value.(type) {
	case nil:
		return tell("null", "")
	case amqp.Null:
		return tell("null", "")
	case bool:
		return tell("boolean", v)
	case uint8:
		return tell("ubyte", v)
	case uint16:
		return tell("ushort", v)
	case uint32:
		return tell("uint", v)
	case uint64:
		return tell("ulong", v)
	case int8:
		return tell("byte", v)
	case int16:
		return tell("short", v)
	case int32:
		return tell("int", v)
	case int64:
		return tell("long", v)
	case float32:
		return tell("float", fmt.Sprintf("%08x", math.Float32bits(v)))
	case float64:
		return tell("double", fmt.Sprintf("%016x", math.Float64bits(v)))
	case time.Time:
		return tell("timestamp", v.UnixMilli())
	case amqp.UUID:
		return tell("uuid", v.String())
	case []byte:
		return tell("binary", hex.EncodeToString(v))
	case amqp.Symbol:
		return tell("symbol", v)
	case string:
		return tell("?", v) // a symbol is decoded as a string too
	case []any:
		out := []any{}
		for _, item := range v {
			out = append(out, fromNative(item))
		}
		return typed{"list": out}
	case map[any]any:
		return tellMap(v)
	case map[string]any:
		return tellMap(v)
	case amqp.Annotations:
		return tellMap(v)
	case []bool:
		return tellArray("boolean", v)
	case []int32:
		return tellArray("int", v)
	case []int64:
		return tellArray("long", v)
	case []uint64:
		return tellArray("ulong", v)
	case []string:
		return tellArray("string", v)
	case []amqp.Symbol:
		return tellArray("symbol", v)
	}
	return tell(fmt.Sprintf("%T", value), value)
}

func tellMap[K comparable, M ~map[K]any](items M) typed {
	out := []any{}
	for key, item := range items {
		out = append(out, []any{fromNative(key), fromNative(item)})
	}
	return typed{"map": out}
}
