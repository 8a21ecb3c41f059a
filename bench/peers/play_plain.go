package peers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"runtime"
	"time"

	"meridian/adapters/link"
	"meridian/bench/linkbench"
	"meridian/bench/measure"
)

// plainTarget serves memory over sockets without a protocol.
type plainTarget struct {
	server *linkbench.PlainServer
	addrs  map[string]string
	memory []byte
	size   uint64
	dirty  bool
}

func newPlainTarget(dir string) (target, error) {
	t, err := loadTLS(dir, targetName)
	if err != nil {
		return nil, err
	}
	path := dir + "/plain.sock"
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	local, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return &plainTarget{
		server: linkbench.ServePlain("", tcp, tls.NewListener(under, plainTLS(t)), local),
		addrs:  map[string]string{"tcp": tcp.Addr().String(), "tls": under.Addr().String(), "unix": path},
	}, nil
}

func (t *plainTarget) prepare(c Cell) (any, error) {
	if uint64(len(t.memory)) < c.Set {
		t.memory, t.dirty = aligned(c.Set), true
	}
	if c.Op == Read && t.dirty {
		fill(t.memory, seedRemote, 0)
	}
	t.dirty, t.size = c.Op == Write, c.Size
	blocks := make([][]byte, c.Set/c.Size)
	for i := range blocks {
		blocks[i] = t.memory[uint64(i)*c.Size:][:c.Size]
	}
	t.server.Show(blocks)
	return t.addrs, nil
}

func (t *plainTarget) wipe(c Cell) error {
	clear(t.memory[:c.Set])
	return nil
}

func (t *plainTarget) verify(w []written) (uint64, error) { return verifyRegion(t.memory, t.size, w) }

func (t *plainTarget) close() error {
	t.server.Close()
	return nil
}

// plainInitiator takes the fastest of several ways for each cell, so that what
// it carries is a bound: one writev a batch or smaller writes, over one
// connection a stream or as many as the link has lanes.
type plainInitiator struct {
	mode, dir string
	order     order
	near      []byte
	conns     [][]*linkbench.PlainClient // of each stream
	way       plainWay
}

type plainWay struct {
	conns  int // of a stream
	pieces bool
}

// trial is how long each way is tried.
const trial = 25 * time.Millisecond

// plainLanes is the number of connections that a link has by default.
func plainLanes() int { return min(4, runtime.NumCPU()) }

func (n *plainInitiator) prepare(ctx context.Context, c Cell, peer json.RawMessage) error {
	if err := n.close(); err != nil {
		return err
	}
	var addrs map[string]string
	if err := json.Unmarshal(peer, &addrs); err != nil {
		return err
	}
	n.order, n.near = orderOf(c), aligned(c.near())
	fill(n.near, seedLocal, 0)
	t, err := loadTLS(n.dir, "tls")
	if err != nil {
		return err
	}
	lanes := min(plainLanes(), c.Batch)
	n.conns = make([][]*linkbench.PlainClient, c.Streams)
	for w := range n.conns {
		for range lanes {
			p, err := n.dial(addrs[n.mode], t)
			if err != nil {
				return err
			}
			n.conns[w] = append(n.conns[w], p)
		}
	}
	return n.choose(ctx, lanes)
}

func (n *plainInitiator) dial(addr string, t *link.TLS) (*linkbench.PlainClient, error) {
	var c net.Conn
	var err error
	switch n.mode {
	case "tls":
		c, err = tls.Dial("tcp", addr, plainTLS(t))
	case "unix":
		c, err = net.Dial("unix", addr)
	default:
		c, err = net.Dial("tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return linkbench.NewPlainClient(c, "")
}

// choose tries every way and keeps the fastest.
func (n *plainInitiator) choose(ctx context.Context, lanes int) error {
	best, rate := plainWay{}, -1.0
	for _, conns := range []int{1, lanes} {
		for _, pieces := range []bool{false, true} {
			n.way = plainWay{conns, pieces}
			k := make([]int, n.order.Streams)
			took, elapsed, err := measure.During(n.order.Streams, trial, func(w int) error {
				k[w]++
				return n.move(ctx, w, k[w]-1, nil)
			})
			if err != nil {
				return err
			}
			if r := float64(len(took)) / elapsed.Seconds(); r > rate {
				best, rate = n.way, r
			}
		}
		if lanes == 1 {
			break
		}
	}
	n.way = best
	return nil
}

func (n *plainInitiator) move(_ context.Context, stream, k int, seen *seen) error {
	o := n.order
	if seen != nil && o.Op == Read {
		clear(n.near[o.local(stream, 0):][:o.batchBytes()])
	}
	errs := make(chan error, n.way.conns)
	for i := range n.way.conns {
		from, to := i*o.Batch/n.way.conns, (i+1)*o.Batch/n.way.conns
		part := func() error { return n.part(n.conns[stream][i], stream, k, from, to) }
		if i == n.way.conns-1 {
			errs <- part()
		} else {
			go func() { errs <- part() }()
		}
	}
	for range n.way.conns {
		if err := <-errs; err != nil {
			return err
		}
	}
	for j := 0; seen != nil && j < o.Batch; j++ {
		if o.Op == Write {
			seen.put(j, uint64(o.item(stream, k, j)))
		} else if err := seen.read(j, n.near[o.local(stream, j):][:o.Size]); err != nil {
			return err
		}
	}
	return nil
}

// part moves items from..to-1 of a batch over one connection.
func (n *plainInitiator) part(c *linkbench.PlainClient, stream, k, from, to int) error {
	numbers := make([]uint32, 0, 128)
	for j := from; j < to; j++ {
		numbers = append(numbers, uint32(n.order.item(stream, k, j)))
	}
	buf := n.near[n.order.local(stream, from):][:uint64(to-from)*n.order.Size]
	if n.order.Op == Write {
		return c.Write(numbers, buf, n.way.pieces)
	}
	return c.Read(numbers, buf, n.way.pieces)
}

func (n *plainInitiator) close() error {
	var errs []error
	for _, s := range n.conns {
		for _, c := range s {
			errs = append(errs, c.Close())
		}
	}
	n.conns = nil
	return errors.Join(errs...)
}
