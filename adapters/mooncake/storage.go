package mooncake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/adapters/mooncake/segment"
	"meridian/adapters/mooncake/store"
	"meridian/fabric"
	"meridian/internal/etcd"
	"meridian/wire"
)

// LendConfig is memory that this daemon lends to a Mooncake Store.
type LendConfig struct {
	Masters store.Masters
	Bytes   uint64
	Close   func() error // of what the masters are found by
}

// readersWait is what readers of a storage node that drains have to finish: as long as
// the lease of a read is by default. It takes no more than half of the drain's time.
const readersWait = 5 * time.Second

// storage is the storage node of a server.
type storage struct {
	lent *store.Lent
	node *store.Node
	stop context.CancelFunc
	done chan struct{}

	closing func() error
}

// lend makes the memory, which nobody is offered yet.
func (s *server) lend() error {
	if s.Lend == nil {
		return nil
	}
	lent, err := store.NewLent(s.Lend.Bytes)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", wire.CodeConfig, err), s.Lend.Close())
	}
	s.storage = &storage{lent: lent, done: make(chan struct{}), closing: s.Lend.Close}
	return nil
}

// offer tells the master of the memory, and goes on until close. Each offer has other
// addresses, which the metadata server is told.
func (s *server) offer(ctx context.Context) error {
	if s.storage == nil {
		return nil
	}
	o := store.NodeOptions{Masters: s.Lend.Masters, Lent: s.storage.lent, Name: s.ourName(), Segment: s.ourName(), Log: s.node.cfg.Log}
	if s.publisher != nil {
		o.Hidden = s.hidden
	}
	node, err := store.StartNode(o)
	if err != nil {
		return err
	}
	s.storage.node = node
	ctx, s.storage.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.storage.done)
		for seen := uint64(0); node.Wait(ctx, func(st store.Status) bool { return st.Offers > seen }) == nil; {
			seen = node.Status().Offers
			if s.publisher != nil {
				s.publisher.Again()
			}
		}
	}()
	return nil
}

// errHidden is why memory is not offered that peers could not reach.
var errHidden = errors.New("its segment is not on the metadata server")

func (s *server) hidden() error {
	if err := s.publisher.Trouble(); err != nil {
		return fmt.Errorf("%w: %w", errHidden, err)
	}
	return nil
}

// enter is an access to the lent memory, if the address is one that was offered.
func (s *storage) enter(peer string, addr, n uint64, write bool) (b []byte, leave func(wrote uint64), err error, ours bool) {
	if s == nil {
		return nil, nil, nil, false
	}
	if base, size := s.lent.Range(); addr-base >= size {
		return nil, nil, nil, false
	}
	b, leave, err = s.lent.Enter(peer, addr, n, write)
	return b, leave, err, true
}

// buffers are those of our descriptor.
func (s *storage) buffers(name string) []segment.Buffer {
	if s == nil {
		return nil
	}
	base, size := s.lent.Range()
	if size == 0 {
		return nil
	}
	return []segment.Buffer{{Name: name, Addr: base, Len: size}}
}

// drain has the master give out no more of the memory, and returns when readers had
// their time.
func (s *storage) drain(ctx context.Context) {
	if s == nil {
		return
	}
	grace := readersWait
	if end, ok := ctx.Deadline(); ok {
		grace = min(grace, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, grace+readersWait)
	defer cancel()
	_ = s.node.Drain(ctx, grace) // what was not drained ends with close; the log has it
}

func (s *storage) close() error {
	if s == nil {
		return nil
	}
	if s.node == nil {
		return s.closing()
	}
	s.stop()
	<-s.done
	return errors.Join(s.node.Close(), s.closing())
}

// finding says how the node stands with its master.
func (s *storage) finding() []fabric.Finding {
	if s == nil {
		return nil
	}
	st := s.node.Status()
	f := fabric.Finding{
		ID: "store_node", Severe: true, Subject: fmt.Sprintf("storage node: %s, memory offered %d times, %d pings answered and %d not", st.State, st.Offers, st.Pings, st.Missed),
		Bad: st.State == store.NodeOffering || st.State == store.NodeLost || st.Err != nil,
	}
	if f.Bad {
		f.Reason, f.Fix = "the master has not answered yet", "look whether mooncake_master runs at store_masters, and whether this host reaches it; it is tried again every second"
		if st.Err != nil {
			f.Reason = st.Err.Error()
		}
		if errors.Is(st.Err, errHidden) {
			f.Fix = "do what the finding published says; the memory is offered then"
		}
	}
	return []fabric.Finding{f}
}

// Masters reads where the masters of a Store are: HOST:PORT, several of them with commas
// between, or etcd://HOST:PORT;HOST:PORT. close ends what it opened.
func Masters(at, cluster string) (m store.Masters, closing func() error, err error) {
	closing = func() error { return nil }
	m, err = store.ParseMasters(at, cluster, func(endpoints []string) (store.KV, error) {
		c, err := etcd.Open(etcd.Config{Endpoints: endpoints})
		if err != nil {
			return nil, err
		}
		closing = sync.OnceValue(c.Close)
		return keyOf{c}, nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", wire.CodeConfig, err)
	}
	return m, closing, err
}

// keyOf reads one key of etcd.
type keyOf struct{ *etcd.Client }

// Get implements store.KV.
func (k keyOf) Get(ctx context.Context, key string) (string, bool, error) {
	v, err := k.Client.Get(ctx, key)
	return string(v.B), v.There(), err
}
