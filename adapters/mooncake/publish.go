package mooncake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/wire"
)

// Times of what is published.
const (
	// publishEvery is how often it is looked whether the metadata server still has our
	// segment: after so long, and a call, a server that was restarted has it again.
	publishEvery = 10 * time.Second
	publishWait  = 15 * time.Second // for one look, and for what follows from it
	removeWait   = 5 * time.Second
	firstRetry   = 250 * time.Millisecond // doubles up to publishEvery
)

// publisher keeps our segment on a metadata server.
type publisher struct {
	plane metadata.Plane
	node  func() metadata.Node // what is to be there now
	log   *slog.Logger
	after func(time.Duration) <-chan time.Time

	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}
	changed chan struct{}
	removed sync.Once

	mu  sync.Mutex
	err error // why it is not there
}

var errNotYet = errors.New("the metadata server has not answered yet")

// publish begins to keep what node says on the server, until close.
func publish(ctx context.Context, plane metadata.Plane, log *slog.Logger, after func(time.Duration) <-chan time.Time, node func() metadata.Node) *publisher {
	p := &publisher{plane: plane, node: node, log: log, after: after, done: make(chan struct{}), changed: make(chan struct{}, 1), err: errNotYet}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run()
	return p
}

func (p *publisher) run() {
	defer close(p.done)
	for retry := firstRetry; ; {
		wait := publishEvery
		if err := p.look(); err == nil {
			retry = firstRetry
		} else {
			wait = retry
			retry = min(2*retry, publishEvery)
		}
		select {
		case <-p.ctx.Done():
			return
		case <-p.changed:
		case <-p.after(wait):
		}
	}
}

// again has the server looked at now, since what is to be there has changed.
func (p *publisher) again() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// look publishes what is not there as it should be.
func (p *publisher) look() error {
	ctx, cancel := context.WithTimeout(p.ctx, publishWait)
	defer cancel()
	n := p.node()
	ok, err := p.has(ctx, n)
	if err == nil && !ok {
		err = p.plane.Publish(ctx, n)
	}
	if p.ctx.Err() == nil {
		p.set(n, err)
	}
	return err
}

// has reports whether the server has our segment as it is. What cannot be read there is
// not ours; whether it can be replaced is Publish's to say.
func (p *publisher) has(ctx context.Context, n metadata.Node) (bool, error) {
	at, err := p.plane.Endpoint(ctx, n.Name())
	if err == nil && at == n.At {
		var d segment.Descriptor
		if d, _, err = p.plane.Get(ctx, n.Name()); err == nil {
			return d.DataHost == n.Segment.DataHost && d.DataPort == n.Segment.DataPort && slices.Equal(d.Buffers, n.Segment.Buffers), nil
		}
	}
	if errors.Is(err, wire.CodeAbsent) || errors.Is(err, wire.CodeInvalid) || errors.Is(err, wire.CodeUnsupported) {
		err = nil
	}
	return false, err
}

// set keeps how it went, and tells the log what is new.
func (p *publisher) set(n metadata.Node, err error) {
	p.mu.Lock()
	was := p.err
	p.err = err
	p.mu.Unlock()
	switch {
	case err != nil && (was == nil || was == errNotYet || was.Error() != err.Error()):
		p.log.Warn("mooncake: this daemon's segment is not on the metadata server; it is tried again", "segment", n.Name(), "err", err)
	case err == nil && was != nil:
		p.log.Info("mooncake: this daemon's segment is on the metadata server", "segment", n.Name(), "handshake", n.At.Addr())
	}
}

// trouble is why our segment is not on the server; nil: it is.
func (p *publisher) trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// close takes our segment back, if the server may have it, and looks no more.
func (p *publisher) close() {
	p.stop()
	<-p.done
	p.removed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeWait)
		defer cancel()
		n := p.node()
		if err := p.plane.Remove(ctx, n); err != nil && !errors.Is(err, wire.CodeExists) && !errors.Is(err, wire.CodeStale) {
			p.log.Warn("mooncake: this daemon's segment stays on the metadata server", "segment", n.Name(), "err", err)
		}
	})
}

// finding says how the segment stands.
func (p *publisher) finding() fabric.Finding {
	n := p.node()
	f := fabric.Finding{ID: "published", Severe: true, Subject: fmt.Sprintf("segment %s on the metadata server", metadata.Quote(n.Name()))}
	err := p.trouble()
	if err == nil {
		return f
	}
	f.Bad, f.Reason = true, "engines cannot find this daemon: "+err.Error()
	f.Fix = "look whether the metadata server runs and this host reaches it; it is tried again every few seconds"
	if errors.Is(err, wire.CodeExists) || errors.Is(err, wire.CodeStale) {
		f.Fix = "give this daemon another name by segment, or stop the node that has the name"
	}
	return f
}
