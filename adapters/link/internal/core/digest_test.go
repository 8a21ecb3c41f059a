package core

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"unsafe"
)

// notState are the fields that a digest leaves out: memory that is written before
// it is read the next time.
var notState = map[string]bool{
	"Session.scratch": true, "Session.idleScratch": true, "rx.scratch": true, "rx.dump": true, "rx.spare": true,
}

// dumper writes down everything that can be reached from a value, by reflection:
// a field that is added to the core is in the digest without further ado.
type dumper struct {
	b    []byte
	seen map[unsafe.Pointer]int
	leaf func(v reflect.Value, field string) // may be nil: called for every plain value
}

// digest is the whole state of a session and of the store behind it.
func digest(s *Session) string {
	d := dumper{seen: map[unsafe.Pointer]int{}, b: make([]byte, 0, 32<<10)}
	d.value(reflect.ValueOf(s), "")
	return string(d.b)
}

func (d *dumper) say(s string) { d.b = append(append(d.b, s...), ' ') }

func (d *dumper) num(n int) { d.b = append(strconv.AppendInt(d.b, int64(n), 10), ' ') }

// value writes v, which is, or is in, the field of that name.
func (d *dumper) value(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			d.say("nil")
			return
		}
		if n, ok := d.seen[v.UnsafePointer()]; ok {
			d.say("seen")
			d.num(n)
			return
		}
		d.seen[v.UnsafePointer()] = len(d.seen)
		d.value(v.Elem(), field)
	case reflect.Interface:
		if v.IsNil() {
			d.say("nil")
			return
		}
		d.say(v.Elem().Type().String())
		d.value(v.Elem(), field)
	case reflect.Struct:
		name := v.Type().Name() + "."
		for i := range v.NumField() {
			f := v.Type().Field(i).Name
			if !notState[name+f] {
				d.b = append(d.b, '\n')
				d.say(f)
				d.value(v.Field(i), f)
			}
		}
	case reflect.Slice, reflect.Array:
		d.num(v.Len())
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 && d.leaf == nil {
			d.b = append(d.b, v.Bytes()...)
			return
		}
		for i := range v.Len() {
			d.value(v.Index(i), field)
		}
	case reflect.Map:
		d.num(v.Len())
		keys := v.MapKeys()
		names := make(map[string]reflect.Value, len(keys))
		order := make([]string, 0, len(keys))
		for _, k := range keys {
			n := fmt.Sprint(k)
			names[n], order = k, append(order, n)
		}
		slices.Sort(order)
		for _, n := range order {
			d.say(n)
			d.value(v.MapIndex(names[n]), field)
		}
	case reflect.Func, reflect.Chan:
		d.say(strconv.FormatBool(v.IsNil()))
	default:
		if d.leaf != nil {
			d.leaf(v, field)
		}
		switch {
		case v.CanInt():
			d.num(int(v.Int()))
		case v.CanUint():
			d.b = append(strconv.AppendUint(d.b, v.Uint(), 10), ' ')
		case v.Kind() == reflect.Bool:
			d.say(strconv.FormatBool(v.Bool()))
		default:
			d.say(fmt.Sprint(v))
		}
	}
}

// The digest is honest: to change any one value that can be reached from a busy
// session changes it. Only what notState names is left out, and each of these is a
// field that there is.
func TestADigestSeesEveryFieldOfTheState(t *testing.T) {
	r, _, _ := busy(t)
	s := r.end[1]
	before := digest(s)
	if before != digest(s) {
		t.Fatal("the digest of one state is not always the same")
	}
	var leaves []reflect.Value
	var fields []string
	d := dumper{seen: map[unsafe.Pointer]int{}, leaf: func(v reflect.Value, field string) {
		if v.CanAddr() {
			leaves, fields = append(leaves, v), append(fields, field)
		}
	}}
	d.value(reflect.ValueOf(s), "")
	step := len(leaves)/1000 + 1 // each field at least once; bodies are long
	types := map[string]bool{}
	for i, v := range leaves {
		if types[fields[i]] && i%step != 0 {
			continue
		}
		types[fields[i]] = true
		w := reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
		old := reflect.New(v.Type()).Elem()
		old.Set(w)
		switch v.Kind() {
		case reflect.Bool:
			w.SetBool(!v.Bool())
		case reflect.String:
			w.SetString(v.String() + "x")
		case reflect.Int, reflect.Int32, reflect.Int64:
			w.SetInt(v.Int() + 1)
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			w.SetUint(v.Uint() + 1)
		default:
			t.Fatalf("%s: a %v, which the digest does not know", fields[i], v.Kind())
		}
		if digest(s) == before {
			t.Errorf("%s changed, and the digest did not", fields[i])
		}
		w.Set(old)
	}
	if digest(s) != before {
		t.Fatal("the state was not put back")
	}
	if len(types) < 60 {
		t.Errorf("only %d fields were seen", len(types))
	}
	for _, v := range []any{Session{}, rx{}} {
		for i := range reflect.TypeOf(v).NumField() {
			delete(notState2, reflect.TypeOf(v).Name()+"."+reflect.TypeOf(v).Field(i).Name)
		}
	}
	for name := range notState2 {
		t.Errorf("%s is no field", name)
	}
}

// notState2 is notState, to be ticked off.
var notState2 = func() map[string]bool {
	m := map[string]bool{}
	for k := range notState {
		m[k] = true
	}
	return m
}()
