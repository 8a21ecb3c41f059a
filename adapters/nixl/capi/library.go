package capi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Status is what a function of the library returns.
type Status int32

// The statuses (wrapper.h of nixl-sys 1.5.1). Nearly every failure is StatusBackend.
const (
	StatusSuccess      Status = 0
	StatusInProgress   Status = 1
	StatusInvalid      Status = -1
	StatusBackend      Status = -2
	StatusInvalidState Status = -3
	StatusException    Status = -4
	StatusNoTelemetry  Status = -5
	StatusNotFound     Status = -6

	// statusMissing is of this package: the library does not have the function.
	statusMissing Status = -1000
)

var statuses = map[Status]string{
	StatusSuccess: "success", StatusInProgress: "in progress", StatusInvalid: "invalid parameter", StatusBackend: "backend error",
	StatusInvalidState: "invalid state", StatusException: "exception", StatusNoTelemetry: "no telemetry", StatusNotFound: "not found",
}

func (s Status) String() string {
	if name, ok := statuses[s]; ok {
		return fmt.Sprintf("%s (%d)", name, int32(s))
	}
	return fmt.Sprintf("status %d", int32(s))
}

// ErrMissing is matched by the error of a call whose function the library lacks.
var ErrMissing = errors.New("the library does not have this function")

// Error is a call that failed.
type Error struct {
	Call   string // the function's name
	Status Status
}

func (e *Error) Error() string {
	if e.Status == statusMissing {
		return e.Call + ": " + ErrMissing.Error()
	}
	return e.Call + ": " + e.Status.String()
}

// Is matches ErrMissing.
func (e *Error) Is(target error) bool { return target == ErrMissing && e.Status == statusMissing }

// Library is an opened libnixl_capi.so. It is never closed: UCX does not survive that.
type Library struct {
	path string
	at   [symbols]uintptr
	free uintptr // libc's
}

// Open opens the library at a path, or by a name that the dynamic linker looks for.
func Open(path string) (*Library, error) {
	if path == "" {
		return nil, errors.New("nixl: no path of a library") // dlopen would give the program itself
	}
	runtime.LockOSThread() // the linker keeps the reason of a failure for the thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("nixl: %s cannot be loaded: %w", path, err)
	}
	l := &Library{path: path}
	for s := range symbols {
		// A function that is missing has the address 0, which call looks at.
		l.at[s], _ = purego.Dlsym(handle, s.String())
	}
	if l.free, err = purego.Dlsym(purego.RTLD_DEFAULT, "free"); err != nil {
		return nil, fmt.Errorf("nixl: %w", err)
	}
	if len(l.Missing()) == int(symbols)-len(optional) {
		return nil, fmt.Errorf("nixl: %s is not NIXL's C API: it has none of its functions", path)
	}
	if l.at[isStub] != 0 {
		// A bool is the low byte of what is returned.
		if r, _, _ := purego.SyscallN(l.at[isStub]); r&0xff != 0 {
			return nil, fmt.Errorf("nixl: %s is a stub that does nothing", path)
		}
	}
	return l, nil
}

// LineBuffered has the C library write each line of the standard output at once, also
// where that is a pipe: UCX has its log there.
func LineBuffered() error {
	set, err := purego.Dlsym(purego.RTLD_DEFAULT, "setvbuf")
	if err != nil {
		return fmt.Errorf("nixl: %w", err)
	}
	stream, err := purego.Dlsym(purego.RTLD_DEFAULT, "stdout")
	if err != nil {
		return fmt.Errorf("nixl: %w", err)
	}
	const byLine = 1 // _IOLBF
	file := **(**uintptr)(unsafe.Pointer(&stream))
	if r, _, _ := purego.SyscallN(set, file, 0, byLine, 0); int32(r) != 0 {
		return errors.New("nixl: setvbuf of the standard output failed")
	}
	return nil
}

// Path is what it was opened as.
func (l *Library) Path() string { return l.path }

// Missing names the functions that the library does not have and that it cannot be used
// without.
func (l *Library) Missing() []string {
	var out []string
	for s := range symbols {
		if l.at[s] == 0 && !optional[s] {
			out = append(out, s.String())
		}
	}
	return out
}

// Prepares says whether lists can be prepared.
func (l *Library) Prepares() bool {
	for s := range optional {
		if l.at[s] == 0 {
			return false
		}
	}
	return true
}

// call calls a function that returns a status.
//
//go:uintptrescapes
func (l *Library) call(s symbol, args ...uintptr) Status {
	if l.at[s] == 0 {
		return statusMissing
	}
	r, _, _ := purego.SyscallN(l.at[s], args...)
	return Status(int32(r))
}

// failed is the error of a status; nil where it is none.
func failed(s symbol, st Status) error {
	if st == StatusSuccess || st == StatusInProgress {
		return nil
	}
	return &Error{Call: s.String(), Status: st}
}

// do is call, with its status as an error.
//
//go:uintptrescapes
func (l *Library) do(s symbol, args ...uintptr) error { return failed(s, l.call(s, args...)) }

func (l *Library) release(p *byte) {
	if p != nil {
		_, _, _ = purego.SyscallN(l.free, uintptr(unsafe.Pointer(p)))
	}
}

// cstring is s with a NUL behind it. One inside would cut it short unseen.
func cstring(s string) (*byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, fmt.Errorf("nixl: %q has a NUL in it", s)
	}
	b := make([]byte, len(s)+1)
	copy(b, s)
	return &b[0], nil
}

// maxText bounds the texts that are read out of the library, in bytes.
const maxText = 64 << 10

// text reads a C string.
func text(p *byte) string {
	if p == nil {
		return ""
	}
	b := unsafe.Slice(p, maxText)
	for i := range b {
		if b[i] == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
