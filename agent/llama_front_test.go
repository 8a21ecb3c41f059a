package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"meridian/agent/config"
	"meridian/agent/llama"
	"meridian/agent/openai"
)

// held is a backend whose requests in the background run until it is released.
type held struct{ release chan struct{} }

func (h *held) Models(context.Context) ([]openai.Model, error) {
	return []openai.Model{{ID: "m"}}, nil
}

func (h *held) Generate(_ context.Context, r *openai.Request, _ func(openai.Token) error) (openai.Result, error) {
	if r.Background {
		<-h.release
	}
	return openai.Result{Finish: "stop"}, nil
}

// However many slots a node has: requests in the background leave places for those for
// which somebody waits.
func TestTheBackgroundLeavesPlacesOfTheFront(t *testing.T) {
	for _, slots := range []int{1, 32, llama.MaxSlots} {
		synctest.Test(t, func(t *testing.T) {
			b := &held{make(chan struct{})}
			f, err := openai.New(frontConfig(config.Llama{Listen: "127.0.0.1:0", Slots: slots}, b, slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			ask := func(tier string) int {
				w := httptest.NewRecorder()
				body := `{"model":"m","messages":[{"role":"user","content":"hi"}],"service_tier":"` + tier + `"}`
				f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(body)))
				return w.Code
			}
			var all sync.WaitGroup
			var mu sync.Mutex
			statuses := map[int]int{}
			for range 2 * llama.Places(slots) {
				all.Go(func() {
					code := ask("flex")
					mu.Lock()
					defer mu.Unlock()
					statuses[code]++
				})
			}
			synctest.Wait()
			for range 100 {
				if code := ask("auto"); code != http.StatusOK {
					t.Fatalf("%d slots, beside %d in the background: %d", slots, f.Stats().Active, code)
				}
			}
			close(b.release)
			all.Wait()
			share := llama.BackgroundPlaces(slots)
			if statuses[http.StatusOK] != share || statuses[http.StatusTooManyRequests] != 2*llama.Places(slots)-share || share < slots {
				t.Errorf("%d slots: %v, want %d answered", slots, statuses, share)
			}
			if n := f.Stats().Active; n != 0 {
				t.Errorf("%d are still counted", n)
			}
		})
	}
}
