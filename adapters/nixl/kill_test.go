package nixl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/adapters/nixl/internal/wheel"
	"meridian/blocks"
	"meridian/fabric"
	"meridian/internal/testbed"
	"meridian/wire"
)

// helperOf is the helper that serves now.
func helperOf(t *testing.T, n *Node) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	s := n.await(ctx)
	if s == nil {
		t.Fatal("no helper")
	}
	return s
}

// What becomes of a transfer whose helper may be killed.
const (
	atOnce   = "done at once"
	repeated = "done after recovery"
	wrong    = "done with wrong bytes"
	lost     = "not done"
)

// attemptTime is the deadline of one attempt.
const attemptTime = 10 * time.Second

// The helper is killed, or stopped, again and again in the middle of transfers, each of
// which pushes a block and pulls it: each ends once, none with a wrong byte, none later than
// its deadline, and nearly all succeed when they are made again. Then nothing is left.
func TestAThousandTransfersWhoseHelperIsKilled(t *testing.T) {
	total, kills := uint64(1000), uint64(5)
	if os.Getenv("MERIDIAN_TEST_FULL") != "" {
		total, kills = 5000, 100
	}
	const workers, stopEach = 8, 5 // every fifth one is stopped, not killed
	far := newLender(t, "far", 64<<20)
	cfg := config(t, PeerConfig{"far", far.addr})
	cfg.Helper.hang, cfg.Helper.rest = 500*time.Millisecond, 100*time.Millisecond
	n := newNode(t, cfg)
	lends(t, n, "far")
	before := accountOf(t, n)

	var mu sync.Mutex
	outcome := map[string]int{}
	begun := make(chan struct{}, total)
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			for key := w; key < total; key += workers {
				begun <- struct{}{}
				result := oneTransfer(t, n, key)
				mu.Lock()
				outcome[result]++
				mu.Unlock()
			}
		})
	}
	names := map[string]bool{}
	for i := range kills {
		for range total / (kills + 1) {
			<-begun
		}
		s := helperOf(t, n)
		names[s.agent] = true
		signal := syscall.SIGKILL
		if i%stopEach == stopEach-1 {
			signal = syscall.SIGSTOP
		}
		_ = syscall.Kill(s.Pid(), signal)
		<-s.quit
	}
	wg.Wait()
	sum := 0
	t.Logf("%d transfers, %d helpers killed or stopped:", total, kills)
	for _, result := range []string{atOnce, repeated, lost, wrong} {
		t.Logf("%6d  %s", outcome[result], result)
		sum += outcome[result]
	}
	t.Logf("%6d  in all", sum)
	good := outcome[atOnce] + outcome[repeated]
	if uint64(sum) != total || outcome[wrong] > 0 || uint64(good)*100 < total*95 {
		t.Errorf("%d outcomes of %d transfers: %v", sum, total, outcome)
	}
	if uint64(len(names)) != kills || n.restarts.Load() != kills {
		t.Errorf("%d agents were killed, and %d helpers started again; want %d", len(names), n.restarts.Load(), kills)
	}
	lends(t, n, "far")
	testbed.Until(t, fmt.Sprintf("all is as it was before: %+v", before), func() bool { return accountOf(t, n) == before })
}

// account is what a fabric holds that must not grow.
type account struct {
	descriptors, windows, inFlight, owners, reserved, leaked int
	bytes, staging                                           uint64
}

func accountOf(t *testing.T, n *Node) account {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	store, isStore := n.cfg.Store.(*blocks.Store)
	if !isStore {
		t.Fatal("the store is another one")
	}
	w, b := n.cfg.Windows.Stats(), store.Stats()
	a := account{len(fds), w.Windows, w.InFlight, b.Owners, b.Reserved, b.Leaked, w.Bytes, 0}
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s != nil {
		s.stage.mu.Lock()
		a.staging = s.stage.space.Used
		s.stage.mu.Unlock()
	}
	return a
}

// oneTransfer pushes and pulls a block until that succeeds, and says how it went.
func oneTransfer(t *testing.T, n *Node, key uint64) string {
	want := item(t, key, 4000)
	result := atOnce
	ends := time.Now().Add(testbed.Patience)
	for stage := 0; stage < 2; {
		it := want
		it.M.B = bytes.Clone(want.M.B)
		move := n.Push
		if stage == 1 {
			clear(it.M.B)
			move = n.Pull
		}
		list := []fabric.Item{it}
		ctx, cancel := context.WithTimeout(t.Context(), attemptTime)
		move(ctx, list)
		cancel()
		switch err := list[0].Err; {
		case err == nil && !bytes.Equal(list[0].M.B, want.M.B):
			return wrong
		case err == nil, stage == 0 && errors.Is(err, wire.CodeExists):
			stage++
		case time.Now().After(ends):
			return lost
		case errors.Is(err, wire.CodeUnreachable), errors.Is(err, wire.CodeLaneLost), errors.Is(err, wire.CodeDeadline):
			result = repeated
			time.Sleep(5 * time.Millisecond) // as a caller that tries again
		default:
			t.Errorf("block %d: %v", key, err)
			return lost
		}
	}
	return result
}

// A peer that is killed while its memory is read costs that read and no more: no wrong byte
// counts, the staging is accounted for, and who comes in its place is another peer.
func TestAPeerThatIsKilledInTheMiddleOfARead(t *testing.T) {
	const size = 16 << 20
	app := wheel.Listen(t, "app", 64<<20)
	cfg := config(t, PeerConfig{"app", app.Listen})
	cfg.Helper.Environment = []string{"UCX_TLS=tcp,self"} // by cma the kernel reads, at once
	n := newNode(t, cfg)
	from := ""
	testbed.Until(t, "the application is told of its window", func() bool {
		for _, told := range app.Notifs() {
			from = told[0]
		}
		return from != ""
	})
	app.Notify(from, message{verb: verbLend, addr: app.Addr, n: 64 << 20}.String())
	lends(t, n, "app")
	list := []fabric.Item{item(t, 1, size)}
	if n.Push(t.Context(), list); list[0].Err != nil {
		t.Fatal(list[0].Err)
	}
	want := list[0].M.B
	s := helperOf(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), attemptTime)
	defer cancel()
	stopped := make(chan struct{})
	ended := make(chan fabric.Item, 1)
	go func() {
		got := []fabric.Item{list[0]}
		for ctx.Err() == nil { // until the death meets a read
			got[0].M.B = make([]byte, len(want))
			if n.Pull(ctx, got); got[0].Err != nil {
				break
			}
			if !bytes.Equal(got[0].M.B, want) {
				t.Error("other bytes were read")
			}
		}
		ended <- got[0]
		close(stopped)
	}()
	testbed.Until(t, "a read is under way", func() bool {
		s.stage.mu.Lock()
		defer s.stage.mu.Unlock()
		return s.stage.space.Used > 0
	})
	app.Kill()
	<-stopped
	got := <-ended
	if got.Err == nil || got.Loose || got.Proof != (wire.Verified{}) {
		t.Errorf("a read from a peer that was killed: %v, loose %v", got.Err, got.Loose)
	}
	testbed.Until(t, "what is out of use is what transfers have that did not end well", func() bool {
		s.stage.mu.Lock()
		defer s.stage.mu.Unlock()
		return s.stage.space.Used == s.stage.lost
	})
	testbed.Until(t, "the peer is lost, and its block with it", func() bool { return n.Usable(wire.Namespace{}) != nil && !n.Keeps(got.H) })
	if err := s.err(); err != nil && !strings.Contains(err.Error(), "staging") {
		t.Errorf("the helper ended: %v", err)
	}
}
