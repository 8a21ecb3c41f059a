package nixl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/adapters/nixl/control"
	"meridian/adapters/nixl/plane"
	"meridian/fabric"
	"meridian/fabric/lent"
	"meridian/internal/stranger"
	"meridian/wire"
)

const (
	lookEvery = 2 * time.Second  // a question to a peer's listener, to see that it lives
	stuckTime = 10 * time.Second // a transfer that has outlived its caller for so long keeps new ones from its peer
	firstWait = time.Second      // before a peer that failed is tried again; doubled, up to
	lastWait  = 15 * time.Second
	// helperWait is how long a peer waits whose helper has ended, before it looks for the
	// next one.
	helperWait = 50 * time.Millisecond
	heard      = 64 // notifications of a peer that wait

	// harmRest is how long a peer is left alone whose metadata have ended the helper; doubled
	// each time, up to harmMost.
	harmRest = 15 * time.Second
	harmMost = 10 * time.Minute

	pieceBytes = 1 << 20 // of a piece
	movesATime = 2       // transfers of a call: the staging of one is copied while another runs
	// leastMove and mostMove bound what a call's transfers may have. By tcp the library ends
	// a write with what was begun after it, and until the next ones are begun the sockets,
	// which hold MiBs, run empty.
	leastMove = 4 << 20
	mostMove  = 16 << 20
)

// peer is a listed peer: an agent, and how it is found.
type peer struct {
	PeerConfig
	node *Node
	box  chan text // notifications
	sick chan error

	listed context.Context // ends with Close, or when the peer is listed no more
	unlist context.CancelFunc

	mu     sync.Mutex
	link   *link // nil: it is not connected, and why says why
	why    error
	lates  int // transfers that have outlived their callers
	since  time.Time
	refuse bool // it was reached, and cannot be used
	was    link // the last one
	owes   bool // a lend-done, when it is connected anew
	ways   ways

	paces   [2]control.Pace // of reads and writes
	missing string          // why others do not find it
	answers bool            // its memory was read the last time, see touch

	dead  dead // the loop's
	harms uint // the loop's: helpers that its metadata have ended
}

// link is a peer's agent as it is loaded in one helper.
type link struct {
	*session
	plane.Metadata
	lent wire.Span // memory for our blocks
}

// text is a notification that came by a session.
type text struct {
	s    *session
	text string
}

func newPeer(n *Node, c PeerConfig) *peer {
	p := &peer{
		PeerConfig: c, node: n, box: make(chan text, heard), sick: make(chan error, 1),
		why: errors.New("not connected yet"),
	}
	p.listed, p.unlist = context.WithCancel(n.life)
	return p
}

// Name is the peer's, in the configuration.
func (p *peer) Name() string { return p.PeerConfig.Name }

func (p *peer) error(code wire.Code, what string, cause error) *fabric.Error {
	return &fabric.Error{Code: code, Fabric: p.node.cfg.Label, Text: what, Cause: cause}
}

// Usable is nil while the peer is connected, its memory can be read and written, and none
// of its transfers is stuck.
func (p *peer) Usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.standing(); err != nil {
		return err
	}
	if err := p.unfit(); err != nil {
		return err // not a nil *Error in an interface
	}
	return nil
}

// standing is why no call of it can be made. Under mu.
func (p *peer) standing() error {
	switch {
	case p.link == nil:
		return p.error(wire.CodeUnreachable, "peer "+p.Name(), p.why)
	case p.lates > 0 && time.Since(p.since) > stuckTime:
		return p.error(wire.CodeBusy, fmt.Sprintf("%d transfers of peer %s have not ended for %v", p.lates, p.Name(), time.Since(p.since).Round(time.Second)), nil)
	}
	return nil
}

// now is the peer's link; an error while it cannot be used.
func (p *peer) now() (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.standing(); err != nil {
		return nil, err
	}
	l := *p.link
	return &l, nil
}

// Reach says which memory the peer has lent.
func (p *peer) Reach(context.Context) (lent.Place, error) {
	if err := p.Usable(); err != nil {
		return lent.Place{}, err
	}
	l, err := p.now()
	if err != nil {
		return lent.Place{}, err
	}
	return lent.Place{ID: fmt.Sprintf("%x", l.Life), Base: l.lent.Off, Size: l.lent.Len}, nil
}

// Lends implements lent.Lender.
func (p *peer) Lends() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link != nil && p.link.lent.Len > 0
}

// late counts transfers that have outlived their callers.
func (p *peer) late(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lates += n; n < 0 || p.lates == n {
		p.since = time.Now()
	}
}

// Read and Write move the bytes of ops.
func (p *peer) Read(ctx context.Context, ops []lent.Op)  { p.move(ctx, false, ops) }
func (p *peer) Write(ctx context.Context, ops []lent.Op) { p.move(ctx, true, ops) }

func (p *peer) move(ctx context.Context, write bool, ops []lent.Op) {
	l, err := p.now()
	if err != nil {
		for i := range ops {
			ops[i].Err, ops[i].Quiet = err, true
		}
		return
	}
	defer func() {
		for i, via := 0, p.way(write); i < len(ops); i++ {
			ops[i].Via = via
		}
	}()
	moves := cut(ops, moveBytes(l.stage.left(p)))
	l.carry(ctx, p, l.Agent, write, moves, func(i int, quiet bool, err error) {
		if err == nil {
			return
		}
		if !quiet && ctx.Err() == nil {
			p.suspect(err)
		}
		for _, one := range moves[i] {
			if one.op.Err == nil {
				one.op.Err, one.op.Quiet = err, true
			}
			one.op.Quiet = one.op.Quiet && quiet
		}
	})
}

// pace is that of the peer's reads or writes.
func (p *peer) pace(write bool) *control.Pace {
	if write {
		return &p.paces[1]
	}
	return &p.paces[0]
}

// moveBytes is how much a transfer of a call may have whose peer has so much of the staging
// left: half of that is for another call.
func moveBytes(left uint64) int {
	return int(min(max(left/(2*movesATime), leastMove), mostMove)) / pieceBytes * pieceBytes
}

// cut makes transfers of ops: as many as may be under way at least, where they are not
// too small for that, so that the staging of one is copied while another runs.
func cut(ops []lent.Op, most int) (moves [][]piece) {
	var now []piece
	all, total := 0, 0
	for i := range ops {
		all += len(ops[i].B)
	}
	const row = movesATime * pieceBytes
	most = min((all+row-1)/row*pieceBytes, most)
	for i := range ops {
		ops[i].Err, ops[i].Quiet = nil, false
		for off := 0; off < len(ops[i].B); {
			n := min(len(ops[i].B)-off, pieceBytes)
			if total+n > most && total > 0 || len(now) == control.MaxParts {
				moves, now, total = append(moves, now), nil, 0
			}
			now = append(now, piece{b: ops[i].B[off : off+n], addr: ops[i].Addr + uint64(off), op: &ops[i], of: i})
			off, total = off+n, total+n
		}
	}
	if len(now) > 0 {
		moves = append(moves, now)
	}
	return moves
}

// suspect has the peer looked at, since a transfer failed while it was under way. The
// library does not say that a peer is gone.
func (p *peer) suspect(err error) {
	select {
	case p.sick <- err:
	default:
	}
}

// hear takes a notification; false: too many wait.
func (p *peer) hear(s *session, t string) bool {
	select {
	case p.box <- text{s, t}:
		return true
	default:
		return false
	}
}

// run keeps the peer connected until it is listed no more, or the fabric ends.
func (p *peer) run(ctx context.Context) {
	wait := firstWait
	for ctx.Err() == nil {
		s := p.node.await(ctx)
		if s == nil {
			return
		}
		began := time.Now()
		err := p.serve(ctx, s)
		if time.Since(began) > lastWait {
			wait = firstWait
		}
		if time.Since(began) > harmMost {
			p.harms = 0
		}
		rest := p.harmed(err)
		p.mu.Lock()
		if p.link != nil {
			p.was = *p.link
			if ctx.Err() == nil {
				p.node.cfg.Helper.Log.Warn("NIXL peer is lost; it is connected anew", "peer", p.Name(), "address", p.Address, "err", err)
			}
		}
		p.link, p.why = nil, err
		p.refuse = errors.Is(err, wire.CodeConfig) || errors.Is(err, wire.CodeInvalid)
		p.mu.Unlock()
		p.node.changed()
		pause := wait // see attend
		wait = min(2*wait, lastWait)
		switch {
		case rest > 0:
			pause, wait = rest, firstWait
		case s.err() != nil: // the peer is new to the next helper
			pause, wait = helperWait, firstWait
		case errors.Is(err, plane.ErrAbsent): // it costs nothing to look
			wait = firstWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// harmed is how long the peer is left alone, where err says that its metadata have ended a
// helper, and the connections of all peers with it.
func (p *peer) harmed(err error) time.Duration {
	if !errors.Is(err, errHarm) {
		return 0
	}
	rest := min(cmp.Or(p.node.cfg.harmRest, harmRest)<<min(p.harms, 16), harmMost)
	p.harms++
	p.node.cfg.Helper.Log.Warn("the metadata of a NIXL peer have ended the helper: the peer is left alone for a while", "peer", p.Name(), "address", p.Address, "for", rest)
	return rest
}

// serve connects the peer to a helper's agent, and does what it asks until that ends.
func (p *peer) serve(ctx context.Context, s *session) error {
	l, err := p.find(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	blob, err := l.metadata(ctx)
	if err != nil {
		return err
	}
	m, err := plane.ParseMetadata(blob)
	if err != nil {
		return err
	}
	if by, agent := Planned(p.Address); by != "" && agent != m.Agent {
		return fmt.Errorf("nixl: the metadata at %s are of agent %s: %w", p.Address, stranger.Quote(m.Agent), wire.CodeInvalid)
	}
	p.clear()
	if err := s.claim(m.Agent, p); err != nil {
		return err
	}
	defer s.disclaim(m.Agent)
	defer s.forget(m.Agent)
	err = s.load(ctx, m, blob)
	p.reap(ctx, blob, err)
	if err != nil {
		return err
	}
	g, err := s.invite(ctx, p)
	if err != nil {
		return err
	}
	if err := l.give(s.metadata()); err != nil {
		return err
	}
	// A listener does one thing after the other: its answer says that it has loaded ours,
	// so that the peer can answer what it is told next. One without a listener first asks
	// for the metadata of who tells it.
	if _, err := p.same(ctx, l, m); err != nil {
		return err
	}
	if err := s.notify(ctx, m.Agent, message{verb: verbWindow, addr: g.at, n: g.w.Len}.String()); err != nil {
		return err
	}
	p.mu.Lock()
	p.link, p.lates, p.answers = &link{session: s, Metadata: m}, 0, false
	if p.was.Metadata == m { // the same agent still has the memory
		p.link.lent = p.was.lent
	}
	if p.was.Metadata != m || p.was.session != s {
		p.ways = ways{}
	}
	owes := p.owes && p.link.lent.Len > 0
	p.mu.Unlock()
	p.node.cfg.Helper.Log.Info("NIXL peer is connected", "peer", p.Name(), "address", p.Address)
	p.node.changed()
	if owes {
		p.lendDone(ctx, s, m.Agent)
	}
	return p.attend(ctx, l, s, m, blob)
}

// clear takes out what is of an earlier connection.
func (p *peer) clear() {
	for {
		select {
		case <-p.sick: //nolint:errcheck // it is of an earlier connection
		case <-p.box:
		default:
			return
		}
	}
}

// attend looks after a connected peer.
func (p *peer) attend(ctx context.Context, l source, s *session, m plane.Metadata, blob []byte) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	// A store, and a peer's memory, may take their time: what the peer asks for meanwhile is done.
	looked, looking := make(chan error, 1), false
	defer func() {
		if looking {
			l.close()
			<-looked //nolint:errcheck // the peer ends for another reason
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.quit:
			return s.err()
		case err := <-p.sick:
			return err
		case <-look.C:
			if looking {
				continue
			}
			looking = true
			go func() {
				_, err := p.same(ctx, l, m)
				if err == nil {
					p.touch(ctx, l)
				}
				looked <- err
			}()
		case err := <-looked:
			if looking = false; err != nil {
				return err
			}
		case t := <-p.box:
			if t.s != s {
				continue // of an earlier helper
			}
			list, err := parseMessages(t.text)
			if err != nil {
				p.node.refused(p.Name(), err)
				continue
			}
			said := list[0]
			if said.verb != verbLend {
				p.node.asked(ctx, p, s, m.Agent, list)
				continue
			}
			if looking { // a source is asked one thing at a time
				err := <-looked
				if looking = false; err != nil {
					return err
				}
			}
			// What was registered since is in newer metadata only.
			newer, err := p.same(ctx, l, m)
			if err != nil {
				return err
			}
			p.mu.Lock()
			p.link.lent, p.answers = wire.Span{Off: said.addr, Len: said.n}, false
			p.owes = !bytes.Equal(newer, blob)
			p.mu.Unlock()
			if p.owes { // UCX does not survive an agent that is added right after it was removed
				return fmt.Errorf("%w: its agent has registered more memory, and is loaded anew", wire.CodeUnreachable)
			}
			p.lendDone(ctx, s, m.Agent)
		}
	}
}

// lendDone tells the peer that its memory is in use.
func (p *peer) lendDone(ctx context.Context, s *session, agent string) {
	p.mu.Lock()
	said := message{verb: verbLend + suffixDone, addr: p.link.lent.Off, n: p.link.lent.Len}
	p.owes = false
	p.mu.Unlock()
	if s.notify(ctx, agent, said.String()) != nil {
		p.node.count.untold.Add(1)
	}
}

// same looks at the peer's metadata again: another agent may have its place by now.
func (p *peer) same(ctx context.Context, l source, m plane.Metadata) ([]byte, error) {
	blob, err := l.metadata(ctx)
	if err != nil {
		return nil, err
	}
	now, err := plane.ParseMetadata(blob)
	if err == nil && now != m {
		err = fmt.Errorf("%w: another agent answers at %s", wire.CodeIncarnation, p.Address)
	}
	return blob, err
}
