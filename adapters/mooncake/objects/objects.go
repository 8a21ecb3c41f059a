package objects

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/adapters/mooncake/engine"
	"meridian/adapters/mooncake/handshake"
	"meridian/adapters/mooncake/rpc"
	"meridian/adapters/mooncake/store"
	"meridian/fabric"
	"meridian/wire"
)

// The limits of the fabric.
const (
	maxItem  = 64<<20 + wire.HeaderLen // bytes
	maxBatch = 1024
	via      = "tcp"

	// headsAtATime bounds the headers that a Find or a Push reads at a time.
	headsAtATime = 8
	// retryTime is how long a Store whose master could not be reached is passed over.
	retryTime = time.Second
	probeBody = 64 << 10
)

// Config is what a Store needs.
type Config struct {
	Label   string
	Masters store.Masters
	Tenant  string // of the objects; "": store.DefaultTenant
	Prefix  string // of their keys
	Raw     bool   // objects beside the prefix may be read
	Lanes   int    // connections to each node; 0: engine.DefaultLanes
	// Resolver finds nodes by the names of their segments; nil: by the handshake with
	// the node itself.
	Resolver engine.Resolver
	// Dial looks where an entry of a metadata server leads to; nil without one.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Allow are the addresses where a node may say that its data plane is, besides those
	// of its segment's name.
	Allow []netip.Prefix
	Close func() error // of what Masters and Resolver were made of; nil: nothing
}

// Store is the fabric.
type Store struct {
	cfg       Config
	client    *store.Client
	initiator *engine.Initiator
	known     *known

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
	failed error // why the master could not be reached by the last call
	retry  time.Time

	foreign atomic.Uint64 // objects below the prefix that were no payloads, or damaged
}

var (
	_ fabric.Fabric      = (*Store)(nil)
	_ fabric.Finder      = (*Store)(nil)
	_ fabric.Objects     = (*Store)(nil)
	_ fabric.Prober      = (*Store)(nil)
	_ fabric.Gate        = (*Store)(nil)
	_ fabric.Keeper      = (*Store)(nil)
	_ fabric.Transporter = (*Store)(nil)
	_ fabric.Advisor     = (*Store)(nil)
)

// New makes the fabric. The master is reached when it is first needed.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, known: newKnown()}
	s.life, s.end = context.WithCancel(context.Background())
	if cfg.Resolver == nil {
		cfg.Resolver = &handshake.Client{}
	}
	s.initiator = engine.NewInitiator(engine.InitiatorConfig{Resolver: cfg.Resolver, Lanes: cfg.Lanes, Dial: cfg.Dial, Allow: func(a netip.Addr) bool {
		return slices.ContainsFunc(cfg.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
	}})
	s.client = store.NewClient(store.Options{Masters: cfg.Masters, Engine: store.Over(s.initiator), Tenant: cfg.Tenant})
	return s
}

// Recheck has connections to nodes made again, by Dial as it answers now, when the calls
// under way have ended.
func (s *Store) Recheck() { s.initiator.Recheck() }

// Label is the name of the fabric's table.
func (s *Store) Label() string { return s.cfg.Label }

// Caps says that blocks are verified when they are pulled.
func (s *Store) Caps() fabric.Caps {
	return fabric.Caps{Verified: true, MaxItem: maxItem, MaxBatch: maxBatch, Lanes: max(s.cfg.Lanes, 1)}
}

// Transports implements fabric.Transporter.
func (s *Store) Transports() []string { return []string{via} }

// key is an object's: PREFIX/NAMESPACE/KEY, both in 64 hexadecimal digits.
func (s *Store) key(id ident) string {
	return s.cfg.Prefix + "/" + hex.EncodeToString(id.ns[:]) + "/" + hex.EncodeToString(id.key[:])
}

func (s *Store) error(code wire.Code, text string, cause error) error {
	return &fabric.Error{Code: code, Fabric: s.cfg.Label, Text: text, Cause: cause}
}

func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.error(wire.CodeUnreachable, "the fabric is closed", nil)
	}
	s.calls.Add(1)
	return nil
}

// begin says of each item why it cannot be looked at, and keeps the rules of Item. The
// context ends with the fabric too.
func (s *Store) begin(ctx context.Context, it []fabric.Item) (within context.Context, leave func()) {
	within, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	entered, ended := s.enter(), fabric.ContextError(ctx, s.cfg.Label)
	for i := range it {
		err := cmp.Or(entered, ended)
		if err == nil && i >= maxBatch {
			err = &fabric.Error{Code: wire.CodeTooMany, Fabric: s.cfg.Label, Have: maxBatch, Need: uint64(len(it))}
		}
		it[i].Via, it[i].Loose, it[i].Err = via, false, err
	}
	return within, func() {
		stop()
		cancel()
		for i := range it {
			if it[i].Err != nil {
				it[i].Head = wire.Header{}
			}
		}
		if entered == nil {
			s.calls.Done()
		}
	}
}

// Push puts each payload that passes the strict reader. An object that is there stays.
func (s *Store) Push(ctx context.Context, it []fabric.Item) {
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	ctx, leave := s.begin(ctx, it)
	defer leave()
	var puts []store.Item
	var at []int
	for i := range it {
		if it[i].Err != nil {
			continue
		}
		if n := len(it[i].M.B); n > maxItem {
			it[i].Err = &fabric.Error{Code: wire.CodeTooLarge, Fabric: s.cfg.Label, Have: maxItem, Need: uint64(n)}
			continue
		}
		if it[i].Head, _, it[i].Err = wire.Decode(it[i].M.B, wire.Strict, wire.MaxBody); it[i].Err == nil {
			puts, at = append(puts, store.Item{Key: s.key(ident{it[i].NS, it[i].Key}), Body: it[i].M.B}), append(at, i)
		}
	}
	s.client.PutBatch(ctx, puts)
	var there []*fabric.Item
	for k, p := range puts {
		one := &it[at[k]]
		id := ident{one.NS, one.Key}
		switch {
		case p.Existed:
			there = append(there, one)
		case p.Err != nil:
			one.Err = s.said(ctx, p.Err)
		default:
			s.known.forget(id) // what a handle of before named is gone
			one.H = s.known.note(id, one.Head)
		}
	}
	// Another daemon put it, or this one before it was restarted, or somebody whose put
	// has not ended and perhaps never does: the header tells.
	side(there, func(one *fabric.Item) {
		_ = s.find(ctx, one, entry{ident: ident{one.NS, one.Key}}) // without a handle it is no copy
		one.Err = s.error(wire.CodeExists, "", nil)
	})
	s.after(ctx, it)
}

// Pull gets each object, and hashes its body where it lies.
func (s *Store) Pull(ctx context.Context, it []fabric.Item) {
	ctx, leave := s.begin(ctx, it)
	defer leave()
	var gets []store.Want
	var at []int
	var of []entry
	for i := range it {
		it[i].Proof = wire.Verified{}
		if it[i].Err != nil {
			continue
		}
		e, _, ok := s.known.of(&it[i])
		if !ok {
			it[i].Err = s.error(wire.CodeAbsent, "", nil)
			continue
		}
		gets, at, of = append(gets, store.Want{Key: s.key(e.ident), To: it[i].M.B}), append(at, i), append(of, e)
	}
	s.client.GetBatch(ctx, gets)
	for k, g := range gets {
		one := &it[at[k]]
		if g.Err != nil {
			one.Err = s.missing(ctx, of[k], g.Err)
			continue
		}
		one.Err = s.check(one, of[k], one.M.B[:g.Object.Size])
	}
	s.after(ctx, it)
}

// header is that of an object of a size, if it is a payload.
func (s *Store) header(e entry, b []byte, size uint64) (wire.Header, error) {
	head, err := wire.ParseHeader(b, wire.Strict, wire.MaxBody)
	if err != nil || size != wire.HeaderLen+uint64(head.BodyLen) {
		s.foreign.Add(1)
		return head, s.error(wire.CodeChecksum, "object "+s.key(e.ident)+" is no MRDN payload", err)
	}
	return head, nil
}

// check looks whether an object that was read is the payload that an item asked for.
func (s *Store) check(it *fabric.Item, e entry, b []byte) error {
	head, err := s.header(e, b, uint64(len(b)))
	if err != nil {
		return err
	}
	if e.h != (fabric.Handle{}) && head != e.head {
		s.known.forget(e.ident)
		return s.error(wire.CodeStale, "another block has the key now", nil)
	}
	proof := wire.Hash(b[wire.HeaderLen:])
	if err := head.Match(proof); err != nil {
		s.foreign.Add(1)
		return s.error(wire.CodeChecksum, "object "+s.key(e.ident), err)
	}
	it.H, it.Head, it.Att, it.Proof = s.known.note(e.ident, head), head, wire.AttestNone, proof
	return nil
}

// Find reads the header of each object.
func (s *Store) Find(ctx context.Context, it []fabric.Item) {
	ctx, leave := s.begin(ctx, it)
	defer leave()
	var asked []*fabric.Item
	for i := range it {
		if it[i].Err == nil {
			asked = append(asked, &it[i])
		}
	}
	side(asked, func(one *fabric.Item) {
		e, _, ok := s.known.of(one)
		if !ok {
			one.Err = s.error(wire.CodeAbsent, "", nil)
			return
		}
		one.Err = s.find(ctx, one, e)
	})
	s.after(ctx, it)
}

// side does something for each item, some at a time.
func side(items []*fabric.Item, do func(*fabric.Item)) {
	places := make(chan struct{}, headsAtATime)
	var wg sync.WaitGroup
	for _, one := range items {
		places <- struct{}{}
		wg.Go(func() {
			do(one)
			<-places
		})
	}
	wg.Wait()
}

func (s *Store) find(ctx context.Context, it *fabric.Item, e entry) error {
	b := make([]byte, wire.HeaderLen)
	o, err := s.client.GetRange(ctx, s.key(e.ident), 0, b)
	if err != nil && !errors.Is(err, wire.CodeInvalid) { // which an object that is shorter is
		return s.missing(ctx, e, err)
	}
	head, err := s.header(e, b, o.Size)
	switch {
	case err != nil:
		return err
	case e.h != (fabric.Handle{}) && head != e.head:
		s.known.forget(e.ident)
		return s.error(wire.CodeStale, "another block has the key now", nil)
	}
	it.H, it.Head, it.Att = s.known.note(e.ident, head), head, wire.AttestNone
	return nil
}

// missing is why an object could not be read. One that the Store says it does not have,
// since it evicted it or its master was restarted, has no handle any more: who has the
// block puts it again.
func (s *Store) missing(ctx context.Context, e entry, err error) error {
	said := s.said(ctx, err)
	if errors.Is(said, wire.CodeAbsent) {
		s.known.drop(e)
	}
	return said
}

// said is an error of the Store as one of the contract.
func (s *Store) said(ctx context.Context, err error) error {
	if ended := fabric.ContextError(ctx, s.cfg.Label); ended != nil {
		return ended
	}
	return s.error(codeOf(err), "", err)
}

func codeOf(err error) wire.Code {
	var conn *rpc.ConnError
	switch {
	case errors.Is(err, store.CodeNotFound), errors.Is(err, store.CodeNotReady):
		return wire.CodeAbsent
	case errors.Is(err, store.CodeNoSpace):
		return wire.CodeFull
	case errors.Is(err, store.CodeChecksum):
		return wire.CodeChecksum
	case errors.Is(err, store.CodeLeaseOver):
		return wire.CodeNoProgress
	case errors.Is(err, store.ErrVersion):
		return wire.CodeUnsupported
	case errors.Is(err, store.ErrNoReplica), errors.As(err, &conn):
		return wire.CodeUnreachable
	}
	return wire.CodeOf(err)
}

// after notes whether the master could be reached: it has answered for one item, or for
// none.
func (s *Store) after(ctx context.Context, it []fabric.Item) {
	var lost error
	for i := range it {
		var conn *rpc.ConnError
		var told *store.Error
		switch err := it[i].Err; {
		case errors.As(err, &conn):
			lost = err
		case err == nil, errors.As(err, &told):
			s.note(nil)
			return
		}
	}
	if lost != nil && ctx.Err() == nil {
		s.note(lost)
	}
}

func (s *Store) note(failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.retry = failed, time.Now().Add(retryTime)
}

// Usable says whether the master can be asked: it could the last time, or that is a
// while ago.
func (s *Store) Usable(wire.Namespace) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil && time.Now().Before(s.retry) {
		return s.error(wire.CodeUnreachable, "the master could not be reached a moment ago", s.failed)
	}
	return nil
}

// Keeps says that an object may be there: what the Store evicted is not known before it
// is looked for, and is known then.
func (s *Store) Keeps(h fabric.Handle) bool {
	return s.known.has(h) && s.Usable(wire.Namespace{}) == nil
}

// Quiesce has nothing to wait for: memory is touched only while a call runs.
func (s *Store) Quiesce(ctx context.Context) error { return fabric.ContextError(ctx, s.cfg.Label) }

// Close ends calls under way. What was put stays.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := s.client.Close()
	s.initiator.Close()
	s.calls.Wait()
	if !was && s.cfg.Close != nil {
		err = errors.Join(err, s.cfg.Close())
	}
	return err
}

// Probe puts an object of 64 KiB, gets it, compares and removes it.
func (s *Store) Probe(ctx context.Context, _ string) (string, float64, error) {
	if err := s.enter(); err != nil {
		return "", 0, err
	}
	defer s.calls.Done()
	if err := fabric.ContextError(ctx, s.cfg.Label); err != nil {
		return "", 0, err
	}
	body := make([]byte, probeBody)
	_, _ = rand.Read(body) // never fails
	key := s.cfg.Prefix + "/probe/" + hex.EncodeToString(body[:16])
	began := time.Now()
	_, err := s.client.Put(ctx, key, body)
	if err == nil {
		err = s.readBack(ctx, key, body)
	}
	took := time.Since(began)
	var conn *rpc.ConnError
	if errors.As(err, &conn) && ctx.Err() == nil {
		s.note(err)
	}
	if err != nil {
		return via, 0, s.said(ctx, err)
	}
	s.note(nil)
	return via, 2 * probeBody / took.Seconds() / 1e9, nil
}

// readBack compares an object with what was put, and removes it.
func (s *Store) readBack(ctx context.Context, key string, body []byte) error {
	b, _, err := s.client.Get(ctx, key, probeBody)
	if err == nil && !slices.Equal(b, body) {
		err = fmt.Errorf("other bytes were read than were written: %w", wire.CodeChecksum)
	}
	return errors.Join(err, s.client.Remove(ctx, key, true)) // forced: our own read has a lease on it
}

// Findings implements fabric.Advisor.
func (s *Store) Findings() []fabric.Finding {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	foreign := s.foreign.Load()
	out := []fabric.Finding{
		{ID: "master", Severe: true, Bad: failed != nil, Subject: "master of the Mooncake Store"},
		{
			ID: "foreign", Bad: foreign > 0, Subject: fmt.Sprintf("objects below %s/ that are no blocks, or damaged: %d", s.cfg.Prefix, foreign),
			Reason: "somebody else writes there, or memory of a node was changed", Fix: "give the fabric another prefix, or look at the node that the error names",
		},
	}
	if failed != nil {
		out[0].Reason, out[0].Fix = failed.Error(), "start mooncake_master, or correct masters"
	}
	return out
}
