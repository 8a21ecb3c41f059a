package blocks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/invariants/leak"
	"meridian/wire"
)

// childEnv makes the test binary a process that only lives until its standard
// input ends.
const childEnv = "MERIDIAN_BLOCKS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	leak.Main(m)
}

// child starts a process; end lets it finish and reaps it.
func child(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

// manual is a clock that tests move.
type manual struct{ now atomic.Int64 }

func (m *manual) read() time.Duration { return time.Duration(m.now.Load()) }
func (m *manual) add(d time.Duration) { m.now.Add(int64(d)) }

// rig is a store with a manual clock, one namespace and one owner.
type rig struct {
	*Store
	t     *testing.T
	clock *manual
	ns    wire.Namespace
	o     Owner
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, clock: &manual{}, ns: nsOf("n")}
	cfg := Config{
		Capacity: 4 << 20, ExtentBytes: 256 << 10, Agent: [16]byte{0xaa}, Incarnation: 7,
		Clock: r.clock.read, Rand: seeded(9),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Store = s
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.AddNamespace(r.ns, tenantOf("t")); err != nil {
		t.Fatal(err)
	}
	r.o = s.NewOwner(0)
	return r
}

// bodyOf is n bytes that belong to a key and to no other.
func bodyOf(k wire.Key, n int) []byte {
	b := make([]byte, n)
	seed := binary.LittleEndian.Uint64(k[:]) | 1
	for i := 0; i+8 <= n; i += 8 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		binary.LittleEndian.PutUint64(b[i:], seed)
	}
	return b
}

// put ingests a body under a key and returns its view.
func (r *rig) put(name string, body []byte) View {
	r.t.Helper()
	v, err := r.Reserve(r.o, r.ns, []uint32{uint32(len(body))}, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	k := Commit{Slot: v[0].Ref.Slot, Gen: v[0].Ref.Gen, Key: keyOf(name), Tier: wire.OutputCritical, Att: wire.AttestProducer}
	if err := r.Ingest(r.o, body, &k); err != nil {
		r.t.Fatal(err)
	}
	return r.look(name)
}

func (r *rig) look(name string) View {
	r.t.Helper()
	var v [1]View
	if r.Lookup(r.ns, []wire.Key{keyOf(name)}, v[:]) != 1 {
		r.t.Fatalf("%s: %v", name, v[0].Err)
	}
	return v[0]
}

func (r *rig) acquire(name string, ttl time.Duration, hold bool) (View, Lease) {
	r.t.Helper()
	v := []View{{NS: r.ns, Key: keyOf(name)}}
	l, err := r.Acquire(r.o, v, ttl, hold)
	if err != nil || v[0].Err != nil {
		r.t.Fatalf("acquire %s: %v, %v", name, err, v[0].Err)
	}
	return v[0], l
}

// check looks for lost slots and references.
func (r *rig) check() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.core.check(); err != nil {
		r.t.Fatal(err)
	}
}

func wantCode(t *testing.T, what string, err error, want wire.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %s", what, err, want)
	}
}

// checkPayload compares a payload with its header and with the body expected.
func checkPayload(t *testing.T, p []byte, body []byte) {
	t.Helper()
	h, got, err := wire.Decode(p, wire.Strict, wire.MaxBody)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, body) || h.Sum != wire.SumOf(body) {
		t.Fatal("the payload is not what was put")
	}
}
