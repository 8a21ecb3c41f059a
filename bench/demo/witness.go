package demo

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"

	"meridian/conformance/chaos"
	"meridian/wire"
)

// witness tells the judge what an engine did and saw, on a goroutine of its
// own: an engine does not wait for its judge. Reports stay in order.
type witness struct {
	chaos.Witness
	remote *chaos.Remote
	queue  chan func(chaos.Witness) error
	done   sync.WaitGroup
	err    error // of the goroutine; read after done
}

// witnessQueue is how many reports may wait.
const witnessQueue = 4096

func dialJudge(ctx context.Context, socket, who, at string) (*witness, error) {
	r, err := chaos.Dial(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	w := &witness{remote: r, queue: make(chan func(chaos.Witness) error, witnessQueue), Witness: chaos.Witness{Judge: r, Who: who, At: at}}
	w.done.Go(func() {
		for f := range w.queue {
			var convicted *chaos.Conviction // is in the judge's report as well
			if err := f(w.Witness); err != nil && !errors.As(err, &convicted) {
				w.err = errors.Join(w.err, err)
			}
		}
	})
	return w, nil
}

// close waits until the judge has heard everything.
func (w *witness) close() error {
	close(w.queue)
	w.done.Wait()
	return errors.Join(w.err, w.remote.Close())
}

func (w *witness) offer(ns wire.Namespace, k wire.Key, n int) {
	w.queue <- func(c chaos.Witness) error { return c.Offer(chaos.Block{NS: ns, Key: k}, chaos.Generated(n)) }
}

func (w *witness) put(ns wire.Namespace, k wire.Key, outcome error) {
	w.queue <- func(c chaos.Witness) error { return c.Put(chaos.Block{NS: ns, Key: k}, outcome) }
}

// served reports a body and returns what is wrong with it. It is looked at
// here, under the lease, not later on the goroutine.
func (w *witness) served(ns wire.Namespace, k wire.Key, body []byte) error {
	b := chaos.Block{NS: ns, Key: k}
	wrong := chaos.CheckBody(body, k)
	if wrong != nil {
		evidence := bytes.Clone(body)
		w.queue <- func(c chaos.Witness) error { return c.Served(b, evidence) }
		return wrong
	}
	n := uint32(len(body))
	w.queue <- func(c chaos.Witness) error {
		return w.tell(chaos.Event{Op: chaos.OpServe, Block: b, Content: chaos.Content{Len: n}})
	}
	return nil
}

func (w *witness) tell(e chaos.Event) error {
	e.Who, e.At = w.Who, w.At
	a, err := w.Judge.Tell(e)
	if err == nil && a.Guilty != nil {
		return a.Guilty
	}
	return err
}

func (w *witness) absent(ns wire.Namespace, k wire.Key) {
	w.queue <- func(c chaos.Witness) error { return c.Absent(chaos.Block{NS: ns, Key: k}, 0) }
}

func (w *witness) mayLose(ns wire.Namespace, k wire.Key) {
	w.queue <- func(chaos.Witness) error {
		e := chaos.Event{Op: chaos.OpEvict, Who: w.Who, Block: chaos.Block{NS: ns, Key: k}} // At empty: wherever it went
		_, err := w.Judge.Tell(e)
		return err
	}
}

// serveJudge is the judge's process: it hears everybody who connects.
func serveJudge(ctx context.Context, socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return chaos.Serve(ctx, l, chaos.NewLedger(chaos.LedgerOptions{}))
}
