package link

import (
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// fields is a message as the conformance vectors show it: names as in
// docs/spec/link-v1.md, byte strings in hex, u64 as decimal strings (JSON
// numbers end at 2^53), a nil slice as an empty one.
func fields(m any) any { return fieldsOf(reflect.ValueOf(m), "") }

func fieldsOf(v reflect.Value, name string) any {
	switch v.Kind() {
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			n := v.Type().Field(i).Name
			m[specName(n)] = fieldsOf(v.Field(i), n)
		}
		return m
	case reflect.Array, reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 && name != "N" {
			b := make([]byte, v.Len())
			reflect.Copy(reflect.ValueOf(b), v)
			return hex.EncodeToString(b)
		}
		l := []any{}
		for i := range v.Len() {
			l = append(l, fieldsOf(v.Index(i), ""))
		}
		return l
	case reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return json.Number(strconv.FormatUint(v.Uint(), 10))
	case reflect.Int32:
		return json.Number(strconv.FormatInt(v.Int(), 10))
	case reflect.Bool:
		return v.Bool()
	case reflect.String:
		return v.String()
	}
	panic("no JSON form for " + v.Type().String())
}

// specName is a Go field's name on the protocol page: DeadlineMS is deadline_ms.
func specName(s string) string {
	switch s {
	case "SLOms":
		return "slo_ms"
	case "TTLms":
		return "ttl_ms"
	case "Att":
		return "attest"
	}
	var b strings.Builder
	r := []rune(s)
	for i, c := range r {
		if i > 0 && unicode.IsUpper(c) && unicode.IsLower(r[i-1]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
