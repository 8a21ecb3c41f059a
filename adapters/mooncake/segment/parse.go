package segment

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"meridian/internal/stranger"
	"meridian/wire"
)

// object is one JSON object, its values not yet read. Names are compared as they
// are, which encoding/json would not do for a struct.
type object struct {
	fields map[string]json.RawMessage
	path   string // before each field's name in an error
}

// Parse reads a descriptor. Other fields than those of Descriptor are passed over.
// Buffers are read where the segment is to be had over TCP; of one with several
// protocols those that are TCP's. TOO_LARGE: longer than MaxBytes. INVALID: not
// JSON, or a *FieldError.
func Parse(b []byte) (Descriptor, error) {
	if len(b) > MaxBytes {
		return Descriptor{}, fmt.Errorf("segment descriptor: %d bytes, limit %d: %w", len(b), MaxBytes, wire.CodeTooLarge)
	}
	var o object
	if err := json.Unmarshal(b, &o.fields); err != nil {
		return Descriptor{}, fmt.Errorf("segment descriptor: no JSON object: %s: %w", stranger.Text(err.Error()), wire.CodeInvalid)
	}
	d := Descriptor{}
	var proto int64
	err := firstError(
		o.text("name", &d.Name),
		o.protocols(&d.Protocols),
		o.text("tcp_data_host", &d.DataHost),
		o.port("tcp_data_port", &d.DataPort),
		o.version("tcp_proto_version", &proto),
		o.text("timestamp", &d.Timestamp),
	)
	if err != nil {
		return Descriptor{}, err
	}
	d.Proto = int(max(proto, 1))
	if slices.Contains(d.Protocols, TCP) {
		if d.Buffers, err = o.buffers(len(d.Protocols) > 1); err != nil {
			return Descriptor{}, err
		}
	}
	return d, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// get is a field's text; nothing where it is absent or null, which Mooncake reads as
// the empty value of any type.
func (o *object) get(name string) json.RawMessage {
	if v := o.fields[name]; string(v) != "null" {
		return v
	}
	return nil
}

func (o *object) bad(name, want string) error {
	value := string(o.get(name))
	if value == "" {
		value = "absent"
	}
	return &FieldError{Field: o.path + name, Value: stranger.Text(value), Want: want}
}

func (o *object) text(name string, to *string) error {
	v := o.get(name)
	if v == nil {
		return nil
	}
	if v[0] != '"' || json.Unmarshal(v, to) != nil {
		return o.bad(name, "a string")
	}
	return nil
}

// protocols reads a string, or an array of them.
func (o *object) protocols(to *[]string) error {
	v := o.get("protocol")
	if v == nil {
		return o.bad("protocol", "a string")
	}
	if v[0] == '"' {
		*to = make([]string, 1)
		return o.text("protocol", &(*to)[0])
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return o.bad("protocol", "a string, or an array of strings")
	}
	for _, e := range list {
		var s string
		if e[0] != '"' || json.Unmarshal(e, &s) != nil {
			return o.bad("protocol", "a string, or an array of strings")
		}
		*to = append(*to, s)
	}
	return nil
}

func (o *object) port(name string, to *uint16) error {
	var n uint64
	if err := o.number(name, 1<<16-1, "a port from 0 to 65535", &n); err != nil {
		return err
	}
	*to = uint16(n)
	return nil
}

// version reads a small number of either sign.
func (o *object) version(name string, to *int64) error {
	v := o.get(name)
	if v == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 32)
	if f, whole := float(v); err != nil && whole {
		n, err = strconv.ParseInt(f, 10, 32)
	}
	if err != nil {
		return o.bad(name, "a whole number of 32 bits")
	}
	*to = n
	return nil
}

func (o *object) number(name string, limit uint64, want string, to *uint64) error {
	v := o.get(name)
	if v == nil {
		return nil
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if f, whole := float(v); err != nil && whole {
		n, err = strconv.ParseUint(f, 10, 64)
	}
	if err != nil || n > limit {
		return o.bad(name, want)
	}
	*to = n
	return nil
}

// float is a whole number that is written with a point or an exponent, such as
// 4096.0, as Mooncake's reader takes it. Above 2^53 the text may mean another number
// than it says, so it is refused there.
func float(v json.RawMessage) (digits string, whole bool) {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return "", false
	}
	return strconv.FormatFloat(f, 'f', 0, 64), true
}

const wantBuffers = "an array of objects with name, addr and length"

// buffers reads the list. Where each has a protocol of its own, those that are not
// TCP's are left out.
func (o *object) buffers(several bool) ([]Buffer, error) {
	v := o.get("buffers")
	if v == nil {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil {
		return nil, o.bad("buffers", wantBuffers)
	}
	out := make([]Buffer, 0, len(list))
	for i, e := range list {
		b := object{path: fmt.Sprintf("buffers[%d].", i)}
		if json.Unmarshal(e, &b.fields) != nil || b.fields == nil {
			return nil, &FieldError{Field: fmt.Sprintf("buffers[%d]", i), Value: stranger.Text(string(e)), Want: "an object with name, addr and length"}
		}
		if several {
			var protocol string
			if err := b.text("protocol", &protocol); err != nil {
				return nil, err
			}
			if protocol != TCP {
				continue
			}
		}
		buf, err := b.buffer()
		if err != nil {
			return nil, err
		}
		out = append(out, buf)
	}
	return out, nil
}

func (o *object) buffer() (Buffer, error) {
	var b Buffer
	const want = "a whole number above 0 and below 2^64"
	err := firstError(
		o.text("name", &b.Name),
		o.number("addr", 1<<64-1, want, &b.Addr),
		o.number("length", 1<<64-1, want, &b.Len),
	)
	switch {
	case err != nil:
		return b, err
	case b.Name == "":
		return b, o.bad("name", "a string that is not empty")
	case b.Addr == 0:
		return b, o.bad("addr", want)
	case b.Len == 0:
		return b, o.bad("length", want)
	case b.Addr+b.Len-1 < b.Addr:
		return b, o.bad("length", fmt.Sprintf("at most %d, since addr is %d and addresses end at 2^64", -b.Addr, b.Addr))
	}
	return b, nil
}
