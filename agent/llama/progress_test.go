package llama_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/agent/llama/pair"
)

func TestAServerThatNeverAnswersIsNamedWhileItIsWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := broken(t, "silent")
	var mu sync.Mutex
	var told []string
	o.Progress = func(node, text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, node+": "+text)
		// Named a second time, with how long it has been, before the caller gives up.
		if strings.Contains(text, "has not answered") && strings.Contains(text, "(for ") {
			cancel()
		}
	}
	p, err := pair.Start(ctx, o)
	if err == nil {
		_ = p.Close()
		t.Fatal("it serves")
	}
	mu.Lock()
	defer mu.Unlock()
	if ctx.Err() != context.Canceled || !strings.Contains(err.Error(), "has not answered") || !strings.Contains(err.Error(), o.Model) {
		t.Errorf("%v; told: %q", err, told)
	}
}

func TestADeathIsToldWhileTheServerIsStartedAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := broken(t, "sigill")
	told := make(chan string, 100)
	o.Progress = func(_, text string) {
		select {
		case told <- text:
		default:
		}
	}
	if _, err := pair.Start(ctx, o); err == nil {
		t.Fatal("it serves")
	}
	close(told)
	for text := range told {
		if strings.Contains(text, "started again") && strings.Contains(text, "SIGILL") {
			return
		}
	}
	t.Error("nothing was told of the restarts")
}
