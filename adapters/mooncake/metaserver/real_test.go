package metaserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"meridian/bench/harness"
	"meridian/internal/realpart"
)

// realWait bounds what a real engine may take for an answer on a busy machine.
const realWait = time.Minute

// realEngine is a transfer engine of the released wheel.
type realEngine struct {
	*harness.Process
	t    *testing.T
	name string
	Addr uint64
	Port uint16
}

type order struct {
	Do     string `json:"do"`
	Peer   string `json:"peer,omitempty"`
	Addr   uint64 `json:"addr,omitempty"`
	Offset uint64 `json:"offset,omitempty"`
	Length uint64 `json:"length,omitempty"`
}

type reply struct {
	RC    int
	Addr  uint64
	Port  uint16
	Sum   string
	Error string
}

// startEngine starts one that has a name on a metadata server, and reports whether it
// could.
func startEngine(t *testing.T, name, meta string, size int) (*realEngine, string) {
	t.Helper()
	cmd := exec.Command(realpart.Python(t), "testdata/engine.py", name, meta, strconv.Itoa(size))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+realpart.Packages(t, "peers"), "MC_TCP_BIND_ADDRESS=127.0.0.1")
	p, err := harness.Start(name, cmd, harness.Options{Log: filepath.Join(t.TempDir(), name+".log"), Talk: true})
	if err != nil {
		t.Fatal(err)
	}
	e := &realEngine{Process: p, t: t, name: name}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	var first reply
	ctx, cancel := context.WithTimeout(t.Context(), realWait)
	defer cancel()
	if err := p.Next(ctx, &first); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, p.Log())
	}
	e.Addr, e.Port = first.Addr, first.Port
	return e, first.Error
}

// mustStart is startEngine for an engine that must come up.
func mustStart(t *testing.T, name, meta string, size int) *realEngine {
	t.Helper()
	e, failed := startEngine(t, name, meta, size)
	if failed != "" {
		t.Fatalf("%s: %s\n%s", name, failed, e.Log())
	}
	return e
}

func (e *realEngine) ask(o order) (r reply) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), realWait)
	defer cancel()
	if err := e.Ask(ctx, o, &r); err != nil {
		e.t.Fatalf("%s, %s: %v\n%s", e.name, o.Do, err, e.Log())
	}
	if r.RC != 0 {
		e.t.Fatalf("%s, %s: rc %d\n%s", e.name, o.Do, r.RC, e.Log())
	}
	return r
}

func TestTwoRealEnginesFindEachOtherAndMoveBytes(t *testing.T) {
	s := newServer(t)
	const size = 1 << 20
	a, b := mustStart(t, "node-a", s.url(), size), mustStart(t, "node-b", s.url(), size)
	theirs := b.ask(order{Do: "sum"}).Sum
	a.ask(order{Do: "read", Peer: "node-b", Addr: b.Addr, Length: size})
	if mine := a.ask(order{Do: "sum"}).Sum; mine != theirs {
		t.Errorf("read: %s here, %s there", mine, theirs)
	}
	mine := b.ask(order{Do: "sum", Length: 4096}).Sum
	b.ask(order{Do: "write", Peer: "node-a", Addr: a.Addr + 8192, Length: 4096})
	if theirs := a.ask(order{Do: "sum", Offset: 8192, Length: 4096}).Sum; theirs != mine {
		t.Errorf("written: %s here, %s there", mine, theirs)
	}
	if st := s.Stats(); st.Nodes != 2 {
		t.Errorf("%d nodes, want 2", st.Nodes)
	}
	a.ask(order{Do: "end"})
	<-a.Done()
	if st := s.Stats(); st.Nodes != 1 || st.Ended["removed"] != 1 {
		t.Errorf("after one engine said goodbye: %+v", st)
	}
}
