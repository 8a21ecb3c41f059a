package openai

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/connshare"
	"meridian/internal/halfopen"
)

// With one place for all: a connection that asks nothing gives it to the next one, and one
// whose answer runs keeps it.
func TestASilentConnectionMakesRoomAndAnAnswerIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: endless()}), newMemory()
		place := make(chan struct{}, 1)
		s := NewServer(f, slog.New(slog.DiscardHandler))
		done := make(chan error, 1)
		go func() {
			done <- s.Serve(connshare.Listen(m, func(net.Addr) (connshare.Place, error) {
				select {
				case place <- struct{}{}:
					return connshare.Place{Give: func() { <-place }}, nil
				default:
					return connshare.Place{}, errors.New("there is one place")
				}
			}))
		}()
		silent, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		streams, err := begin(m, streamed+"}")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := silent.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			t.Errorf("the silent one reads %d bytes, %v", n, err)
		}
		synctest.Wait()
		refused, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(refused, "GET ") }()
		if status, body := answerOn(t, refused); status != http.StatusServiceUnavailable || string(body) != "there is one place\n" {
			t.Errorf("the next one: %d %q", status, body)
		}
		if _, err := io.ReadFull(streams, make([]byte, 64<<10)); err != nil {
			t.Errorf("the answer that runs: %v", err)
		}
		for _, c := range []net.Conn{silent, streams, refused} {
			_ = c.Close()
		}
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A request whose body never comes gives its place to the next one, long before its time is
// over.
func TestABodyThatNeverComesKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFront(t, Config{Backend: endless()}), newMemory()
		s := NewServer(f, slog.New(slog.DiscardHandler))
		in := 0
		var mu sync.Mutex
		done := make(chan error, 1)
		go func() {
			done <- s.Serve(connshare.Listen(m, func(net.Addr) (connshare.Place, error) {
				mu.Lock()
				defer mu.Unlock()
				if in > 0 {
					return connshare.Place{}, errors.New("there is one place")
				}
				in++
				return connshare.Place{Give: func() { mu.Lock(); in--; mu.Unlock() }}, nil
			}))
		}()
		slow, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(slow, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(halfopen.Patience + time.Millisecond) // of the bubble
		next, err := m.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(next, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") }()
		if status, body := answerOn(t, next); status == http.StatusServiceUnavailable {
			t.Errorf("the next one: %d %q", status, body)
		}
		for _, c := range []net.Conn{slow, next} {
			_ = c.Close()
		}
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
