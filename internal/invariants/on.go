//go:build invariants

package invariants

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Enabled says whether the program was built with the tag invariants.
const Enabled = true

const (
	pattern = 0xCC    // of released memory
	edge    = 4 << 10 // bytes at either end of large memory that are filled
	page    = 4 << 10 // between the ends, the first bytes of each page
	mark    = 16      // that many
	depth   = 12      // functions of a stack
	maxLeft = 64      // reports kept until somebody takes them
)

// Stack is where something was made or released.
type Stack struct {
	pc [depth]uintptr
	n  int
}

// Here is the caller's stack, without the last skip functions.
func Here(skip int) (s Stack) {
	s.n = runtime.Callers(skip+2, s.pc[:])
	return s
}

// String prints a function and a line of source in turn, innermost first.
func (s Stack) String() string {
	if s.n == 0 {
		return "\t(unknown)\n"
	}
	var b strings.Builder
	for frames := runtime.CallersFrames(s.pc[:s.n]); ; {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}

var filled = bytes.Repeat([]byte{pattern}, edge)

// Overwrite fills memory that nobody may read or write any more with the pattern.
// Of large memory it fills the first and the last edge bytes and a few bytes of
// each page between: what a slot of 1 MiB costs is then a hundredth of its hash.
func Overwrite(b []byte) {
	parts(b, func(part []byte) bool {
		copy(part, filled)
		return true
	})
}

// OverwriteItems fills all of the memory of s, which its owner keeps for the next
// use. It panics where T holds a pointer, which the garbage collector would follow.
func OverwriteItems[T any](s []T) {
	s = s[:cap(s)]
	t := reflect.TypeFor[T]()
	ok, known := plainTypes.Load(t)
	if !known {
		ok = plain(t)
		plainTypes.Store(t, ok)
	}
	if ok != true {
		panic("invariants: " + t.String() + " holds pointers")
	}
	if len(s) > 0 {
		Overwrite(unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0]))))
	}
}

var plainTypes sync.Map // reflect.Type -> bool

// plain reports whether a type consists of numbers only.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !plain(f.Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
}

// Intact panics where memory that Overwrite filled was written since.
func Intact(b []byte, what string) {
	parts(b, func(part []byte) bool {
		if bytes.Equal(part, filled[:len(part)]) {
			return true
		}
		for i, c := range part {
			if c != pattern {
				at := len(b) - cap(part) + i
				panic(fmt.Sprintf("invariants: %s: byte %d of %d was written after the release: %#02x", what, at, len(b), c))
			}
		}
		return true
	})
}

// parts calls f for the pieces of b that are filled, until it returns false. The
// capacity of each reaches to the end of b.
func parts(b []byte, f func([]byte) bool) {
	b = b[:len(b):len(b)]
	if len(b) <= 4*edge {
		for len(b) > 0 && f(b[:min(edge, len(b))]) {
			b = b[min(edge, len(b)):]
		}
		return
	}
	last := len(b) - edge
	ok := f(b[:edge])
	for at := edge; ok && at+mark <= last; at += page {
		ok = f(b[at : at+mark])
	}
	_ = ok && f(b[last:])
}

// Life is one use of something that is used again and again: a place, a message,
// a buffer. Its zero value is not in use.
type Life struct {
	mu       sync.Mutex
	used     bool
	from, to Stack
}

// Begin starts a use; it panics during another.
func Begin(l *Life, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used {
		panic(fmt.Sprintf("invariants: %s is taken while it is in use; taken first by\n%s", what, l.from))
	}
	l.used, l.from = true, Here(1)
}

// End ends a use; it panics where none runs, and names who ended the last one.
func End(l *Life, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used {
		panic(fmt.Sprintf("invariants: %s is released twice; released first by\n%s", what, l.to))
	}
	l.used, l.to = false, Here(1)
}

var left struct {
	mu  sync.Mutex
	all []string
}

// Left reports something that its owner should have ended and did not.
func Left(what string, made Stack) {
	left.mu.Lock()
	defer left.mu.Unlock()
	if len(left.all) < maxLeft {
		left.all = append(left.all, fmt.Sprintf("%s, made by\n%s", what, made))
	}
}

// TakeLeft returns what was reported since the last call.
func TakeLeft() []string {
	left.mu.Lock()
	defer left.mu.Unlock()
	all := left.all
	left.all = nil
	return all
}
