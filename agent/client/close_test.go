package client_test

import (
	"testing"

	"meridian/agent/client"
	"meridian/wire/link"
)

// A daemon that answers what the engine sent last, such as RELEASE, must not take
// an ordinary Close for an engine that died.
func TestCloseLetsTheDaemonAnswerWhatWasSentLast(t *testing.T) {
	answered := make(chan error, 1)
	path := serve(t, func(d *daemon) {
		d.greet()
		d.untilGone()
		_, err := d.c.Write(message(link.TypeEnd, 1, link.End{}))
		answered <- err
	})
	e, err := client.DialEngine(ctx, path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the daemon's answer met %v", err)
	}
}
