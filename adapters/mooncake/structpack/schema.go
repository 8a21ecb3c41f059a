package structpack

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"reflect"
)

// The bytes of a type literal.
const (
	litString   = 0x80
	litChar     = 0x0c
	litVector   = 0x84
	litOptional = 0x85
	litVariant  = 0x86
	litExpected = 0x87
	litVoid     = 0xfa
	litStruct   = 0xfd
	litEnd      = 0xff

	// litSize is added to an alignment below 127.
	litSize = 129
)

// scalars are the types of fixed width, by kind: byte of the literal, and width.
var scalars = map[reflect.Kind]struct {
	literal byte
	width   int
}{
	reflect.Int32:  {0x01, 4},
	reflect.Uint32: {0x02, 4},
	reflect.Int64:  {0x03, 8},
	reflect.Uint64: {0x04, 8},
	reflect.Int8:   {0x05, 1},
	reflect.Uint8:  {0x06, 1},
	reflect.Int16:  {0x07, 2},
	reflect.Uint16: {0x08, 2},
	reflect.Bool:   {0x0b, 1},
}

// Variant makes the struct that embeds it, as its first field, a std::variant: the
// other fields are pointers, one of which is set.
type Variant struct{}

// Void is no value.
type Void struct{}

// Expected is an answer of T or an error code: Code is 0 where the answer is T.
type Expected[T any] struct {
	Value T
	Code  int32
}

func (Expected[T]) expected() {}

// Optional is a pointer to a value, as an optional member wants it.
func Optional[T any](v T) *T { return &v }

var (
	typeVariant  = reflect.TypeFor[Variant]()
	typeVoid     = reflect.TypeFor[Void]()
	typeExpected = reflect.TypeFor[interface{ expected() }]()
)

// node is what is known of a type: its literal, the least bytes that a value takes,
// and how it is read and written. Fixed is the size in memory of a type without
// padding and without length fields, align its alignment; 0 for others.
type node struct {
	literal []byte
	least   int
	fixed   int
	align   int
	write   func(*writer, reflect.Value)
	read    func(*reader, reflect.Value)
}

// builder makes nodes. Path is the types that are being made, to find a type that
// contains itself.
type builder struct{ path []reflect.Type }

func (b *builder) node(t reflect.Type) node {
	for _, p := range b.path {
		if p == t {
			panic(fmt.Sprintf("structpack: %v contains itself", t))
		}
	}
	b.path = append(b.path, t)
	defer func() { b.path = b.path[:len(b.path)-1] }()
	if s, ok := scalars[t.Kind()]; ok {
		return scalar(t.Kind(), s.literal, s.width)
	}
	switch t.Kind() {
	case reflect.String:
		return node{literal: []byte{litString, litChar}, least: 1, write: (*writer).text, read: (*reader).text}
	case reflect.Slice:
		return vector(t, b.node(t.Elem()))
	case reflect.Pointer:
		return optional(t, b.node(t.Elem()))
	case reflect.Struct:
		switch {
		case t == typeVoid:
			return node{literal: []byte{litVoid}, write: func(*writer, reflect.Value) {}, read: func(*reader, reflect.Value) {}}
		case t.Implements(typeExpected):
			return expected(b.node(t.Field(0).Type))
		case t.NumField() > 0 && t.Field(0).Type == typeVariant:
			return b.variant(t)
		}
		return b.members(t, false)
	}
	panic(fmt.Sprintf("structpack: no literal for %v", t))
}

func scalar(kind reflect.Kind, literal byte, width int) node {
	n := node{literal: []byte{literal}, least: width, fixed: width, align: width}
	switch kind {
	case reflect.Bool:
		n.write, n.read = (*writer).truth, (*reader).truth
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.write = func(w *writer, v reflect.Value) { w.number(uint64(v.Int()), width) }
		n.read = func(r *reader, v reflect.Value) {
			shift := 64 - 8*width
			v.SetInt(int64(r.number(width)) << shift >> shift)
		}
	default:
		n.write = func(w *writer, v reflect.Value) { w.number(v.Uint(), width) }
		n.read = func(r *reader, v reflect.Value) { v.SetUint(r.number(width)) }
	}
	return n
}

func vector(t reflect.Type, elem node) node {
	if elem.least == 0 {
		panic(fmt.Sprintf("structpack: elements of %v take no bytes", t))
	}
	return node{
		literal: append([]byte{litVector}, elem.literal...),
		least:   1,
		write: func(w *writer, v reflect.Value) {
			w.length(v.Len())
			for i := range v.Len() {
				elem.write(w, v.Index(i))
			}
		},
		read: func(r *reader, v reflect.Value) {
			count := r.length(elem.least)
			// The slice grows with what is really there: a count alone asks for no memory.
			s := reflect.MakeSlice(t, 0, min(count, 64))
			one := reflect.New(t.Elem()).Elem()
			for i := 0; i < count && r.err == nil; i++ {
				one.SetZero()
				elem.read(r, one)
				s = reflect.Append(s, one)
			}
			v.Set(s)
		},
	}
}

func optional(t reflect.Type, elem node) node {
	return node{
		literal: append([]byte{litOptional}, elem.literal...),
		least:   1,
		write: func(w *writer, v reflect.Value) {
			w.flag(!v.IsNil())
			if !v.IsNil() {
				elem.write(w, v.Elem())
			}
		},
		read: func(r *reader, v reflect.Value) {
			if !r.flag() {
				return
			}
			p := reflect.New(t.Elem())
			elem.read(r, p.Elem())
			v.Set(p)
		},
	}
}

func expected(value node) node {
	return node{
		literal: append(append([]byte{litExpected}, value.literal...), scalars[reflect.Int32].literal),
		least:   1,
		write: func(w *writer, v reflect.Value) {
			code := v.Field(1).Int()
			w.flag(code == 0)
			if code == 0 {
				value.write(w, v.Field(0))
			} else {
				w.number(uint64(code), 4)
			}
		},
		read: func(r *reader, v reflect.Value) {
			if r.flag() {
				value.read(r, v.Field(0))
				return
			}
			at := r.off
			code := int32(r.number(4))
			if code == 0 && r.err == nil {
				r.fail(at, "an error of code 0")
			}
			v.Field(1).SetInt(int64(code))
		},
	}
}

func (b *builder) variant(t reflect.Type) node {
	n := node{literal: []byte{litVariant}, least: 1}
	var choices []node
	for i := 1; i < t.NumField(); i++ {
		f := t.Field(i)
		if f.Type.Kind() != reflect.Pointer {
			panic(fmt.Sprintf("structpack: %v.%s is no pointer", t, f.Name))
		}
		c := b.node(f.Type.Elem())
		choices = append(choices, c)
		n.literal = append(n.literal, c.literal...)
	}
	n.literal = append(n.literal, litEnd)
	n.write = func(w *writer, v reflect.Value) {
		for i, c := range choices {
			if p := v.Field(i + 1); !p.IsNil() {
				w.number(uint64(i), 1)
				c.write(w, p.Elem())
				return
			}
		}
		w.fail(fmt.Sprintf("%v has no choice set", t))
	}
	n.read = func(r *reader, v reflect.Value) {
		at := r.off
		i := int(r.number(1))
		if i >= len(choices) {
			r.fail(at, fmt.Sprintf("choice %d of %d", i, len(choices)))
			return
		}
		p := reflect.New(t.Field(i + 1).Type.Elem())
		choices[i].read(r, p.Elem())
		v.Field(i + 1).Set(p)
	}
	return n
}

// members is a struct, or the arguments of a call, which are a tuple. A struct that
// lies in memory as it does on the wire says how it is aligned; a tuple never does.
func (b *builder) members(t reflect.Type, tuple bool) node {
	n := node{literal: []byte{litStruct}}
	var all []node
	plain := true
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			panic(fmt.Sprintf("structpack: %v.%s is not exported", t, f.Name))
		}
		m := b.node(f.Type)
		all = append(all, m)
		n.literal = append(n.literal, m.literal...)
		n.least += m.least
		plain = plain && m.fixed > 0 && n.fixed%m.align == 0
		n.fixed += m.fixed
		n.align = max(n.align, m.align)
	}
	if plain = plain && n.align > 0 && n.fixed%n.align == 0; !plain {
		n.fixed, n.align = 0, 0
	} else if !tuple {
		n.literal = append(n.literal, byte(litSize+n.align), byte(litSize+n.align))
	}
	n.literal = append(n.literal, litEnd)
	n.write = func(w *writer, v reflect.Value) {
		for i, m := range all {
			m.write(w, v.Field(i))
		}
	}
	n.read = func(r *reader, v reflect.Value) {
		for i, m := range all {
			if r.err == nil {
				m.read(r, v.Field(i))
			}
		}
	}
	return n
}

// codeOf is the first four bytes of the literal's MD5, big-endian, lowest bit clear.
func codeOf(literal []byte) uint32 {
	sum := md5.Sum(literal)
	return binary.BigEndian.Uint32(sum[:]) &^ 1
}
