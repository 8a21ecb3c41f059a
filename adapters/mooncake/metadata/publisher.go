package metadata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/fabric"
	"meridian/internal/stranger"
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

// Publisher keeps a node of this daemon on a metadata server.
type Publisher struct {
	plane Plane
	node  func() Node // what is to be there now
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

// Keep begins to keep what node says on a plane's server, until Close. after is
// time.After, or a test's.
func Keep(ctx context.Context, plane Plane, log *slog.Logger, after func(time.Duration) <-chan time.Time, node func() Node) *Publisher {
	p := &Publisher{plane: plane, node: node, log: log, after: after, done: make(chan struct{}), changed: make(chan struct{}, 1), err: errNotYet}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run()
	return p
}

func (p *Publisher) run() {
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

// Again has the server looked at now, since what is to be there has changed.
func (p *Publisher) Again() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// look publishes what is not there as it should be.
func (p *Publisher) look() error {
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
func (p *Publisher) has(ctx context.Context, n Node) (bool, error) {
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
func (p *Publisher) set(n Node, err error) {
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

// Trouble is why our segment is not on the server; nil: it is.
func (p *Publisher) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close takes our segment back, if the server may have it, and looks no more. It
// may be called again.
func (p *Publisher) Close() {
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

// Finding says how the segment stands.
func (p *Publisher) Finding() fabric.Finding {
	n := p.node()
	f := fabric.Finding{ID: "published", Severe: true, Subject: fmt.Sprintf("segment %s on the metadata server", stranger.Quote(n.Name()))}
	err := p.Trouble()
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
