package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// dummy is a fabric that only counts how often it was closed.
type dummy struct {
	fabric.Fabric
	name    string
	maxItem int
	down    error // why it cannot be used
	closed  *[]string
	fail    error
}

func (d *dummy) Label() string               { return d.name }
func (d *dummy) Caps() fabric.Caps           { return fabric.Caps{MaxItem: d.maxItem} }
func (d *dummy) Usable(wire.Namespace) error { return d.down }
func (d *dummy) Close() error {
	*d.closed = append(*d.closed, d.name)
	return d.fail
}

func TestRegistryClosesInReverseAndOnce(t *testing.T) {
	var r fabric.Registry
	var closed []string
	broken := errors.New("broken")
	for _, name := range []string{"a", "b", "c", "d"} {
		d := &dummy{name: name, closed: &closed}
		if name == "b" {
			d.fail = broken
		}
		if err := r.Add(name, d); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(r.Names()); got != "[a b c d]" {
		t.Errorf("names: %s", got)
	}
	if f, ok := r.Remove("c"); !ok || f.Label() != "c" {
		t.Error("remove gave another fabric")
	}
	if _, ok := r.Remove("c"); ok {
		t.Error("removed twice")
	}
	err := r.Close()
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "fabric b") {
		t.Errorf("close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if got := fmt.Sprint(closed); got != "[d b a]" {
		t.Errorf("closed %s", got)
	}
	if err := r.Add("e", &dummy{}); !errors.Is(err, wire.CodeDraining) {
		t.Errorf("add after close: %v", err)
	}
}

func TestRegistryRefusals(t *testing.T) {
	var r fabric.Registry
	for _, c := range []struct {
		name string
		f    fabric.Fabric
		code wire.Code
	}{
		{"x", &dummy{}, wire.CodeOK},
		{"x", &dummy{}, wire.CodeExists},
		{"", &dummy{}, wire.CodeInvalid},
		{"y", nil, wire.CodeInvalid},
	} {
		if err := r.Add(c.name, c.f); wire.CodeOf(err) != c.code {
			t.Errorf("add %q: %v, want %v", c.name, err, c.code)
		}
	}
	if _, ok := r.Get("y"); ok {
		t.Error("a refused fabric is registered")
	}
	for i := 1; i < fabric.MaxFabrics; i++ {
		if err := r.Add(fmt.Sprint("peer-", i), &dummy{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Add("one more", &dummy{}); !errors.Is(err, wire.CodeTooMany) {
		t.Errorf("beyond the bound: %v", err)
	}
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	var r fabric.Registry
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprint(w, "-", i)
				if err := r.Add(name, &dummy{}); err != nil {
					t.Error(err)
				}
				if _, ok := r.Get(name); !ok {
					t.Errorf("%s is gone", name)
				}
				r.Names()
				r.Remove(name)
			}
		})
	}
	wg.Wait()
	if n := len(r.Names()); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestErrorCarriesCodeCauseAndValues(t *testing.T) {
	cause := &wire.TruncatedError{Have: 1, Need: 2}
	err := error(&fabric.Error{Code: wire.CodeFull, Fabric: "f", Have: 3, Need: 4, Text: "no room", Cause: cause})
	if !errors.Is(err, wire.CodeFull) || !errors.Is(err, wire.CodeTruncated) || wire.CodeOf(err) != wire.CodeFull {
		t.Errorf("codes of %v", err)
	}
	for _, part := range []string{"f:", "FULL", "no room", "have 3, need 4", "truncated"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
}

func TestContextErrorNamesTheReason(t *testing.T) {
	if err := fabric.ContextError(t.Context(), "f"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fabric.ContextError(ctx, "f"); wire.CodeOf(err) != wire.CodeCancelled || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if err := fabric.ContextError(ctx, "f"); wire.CodeOf(err) != wire.CodeDeadline {
		t.Errorf("overdue: %v", err)
	}
}
