package loglimit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/testlog"
)

const burst = 5

func logger() (*slog.Logger, *testlog.Buffer) {
	p := &testlog.Buffer{}
	return Logger(slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug})), burst), p
}

func TestAFloodIsAFewLinesAndACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, p := logger()
		for i := range 10_000 {
			log.Warn("refused", "peer", "a", "from", i)
		}
		log.Warn("refused", "peer", "b")
		time.Sleep(Every)
		synctest.Wait()
		got := p.Lines()
		if len(got) != burst+2 || !strings.Contains(got[burst+1], `msg="refused: and 9995 more" more=9995 within=1m0s`) {
			t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
		}
	})
}

func TestAFloodWithoutEndIsAFewLinesInEachEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, p := logger()
		for range 36_000 {
			log.Info("refused")
			time.Sleep(10 * time.Millisecond)
		}
		if got := len(p.Lines()); got < 6*burst || got > 7*(burst+1) {
			t.Errorf("%d lines in six minutes", got)
		}
	})
}

// The account is of all loggers that come of one.
func TestLoggersWithAttributesShareTheAccount(t *testing.T) {
	log, p := logger()
	for i := range 1000 {
		Logger(log.With("agent", "x"), 1).With("peer", "a", "n", i).Info("gone")
		log.With("peer", "b").WithGroup("g").Info("gone", "n", i)
	}
	if got := len(p.Lines()); got != 2*burst {
		t.Errorf("%d lines, want %d", got, 2*burst)
	}
	log.Handler().(*Handler).Flush()
	got := p.Lines()
	if len(got) != 2*burst+2 || !strings.Contains(got[2*burst], "and 995 more") {
		t.Errorf("after Flush: %s", strings.Join(got[2*burst:], "\n"))
	}
}

func TestKindsByNameAndDebugRecords(t *testing.T) {
	log, p := logger()
	for i := range 100 {
		log.Log(WithKind(context.Background(), fmt.Sprint("kind ", i%2)), slog.LevelError, fmt.Sprint("text ", i))
		log.Debug("a line of llama-server")
	}
	if got := len(p.Lines()); got != 100+2*burst {
		t.Errorf("%d lines, want %d", got, 100+2*burst)
	}
}

// Who makes a new kind for each record is limited all the same, and holds no
// memory for them.
func TestTheNumberOfKindsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, p := logger()
		for i := range 20_000 {
			log.Warn(fmt.Sprint("message ", i))
		}
		kinds := func() int {
			a := log.Handler().(*Handler).account
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.kinds)
		}
		if n := kinds(); n > MaxKinds+1 {
			t.Errorf("%d kinds", n)
		}
		time.Sleep(Every)
		synctest.Wait()
		got := p.Lines()
		if len(got) > MaxKinds+burst+1 || !strings.Contains(got[len(got)-1], "log lines of more kinds than are counted apart: and") {
			t.Errorf("%d lines, the last: %s", len(got), got[len(got)-1])
		}
		time.Sleep(Every)
		log.Warn("one more")
		if n := kinds(); n > 2 {
			t.Errorf("%d kinds are left when their time is over", n)
		}
	})
}

func TestOneLimitIsEnough(t *testing.T) {
	log, _ := logger()
	for range 7 {
		log.Info("x")
	}
	if n := log.Handler().(*Handler).LeftOut(); n != 2 {
		t.Errorf("%d records were left out, want 2", n)
	}
	if h := log.Handler(); New(h, 1) != h {
		t.Error("a limited handler was limited again")
	}
}

// net/http puts the address into its text: each would be a kind of its own.
func TestWhatAnHTTPServerSaysOfManyAddressesIsOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, p := logger()
		server := slog.NewLogLogger(Server(log.Handler()), slog.LevelWarn)
		for i := range 1000 {
			server.Printf("http: TLS handshake error from 10.0.0.%d:%d: EOF", i%256, i)
		}
		if n := len(p.Lines()); n != burst {
			t.Errorf("%d lines, want %d", n, burst)
		}
		if !strings.Contains(p.Lines()[0], `msg="http connection" text="http: TLS handshake error from 10.0.0.0:0: EOF"`) {
			t.Error(p.Lines()[0])
		}
	})
}
