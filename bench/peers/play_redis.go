package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// redisPeer is where the server listens.
type redisPeer struct {
	Unix string `json:"unix"`
	TCP  string `json:"tcp"`
}

// redisInitiator has a connection a stream. It stores the set itself, before
// anything is timed, and reads back what it wrote in a check: the server
// compares nothing.
type redisInitiator struct {
	mode    string
	order   order
	near    []byte
	keys    [][]byte
	clients []*respClient
	ask     [][2][][]byte // keys and buffers of each stream
}

func (n *redisInitiator) prepare(_ context.Context, c Cell, peer json.RawMessage) error {
	if err := n.close(); err != nil {
		return err
	}
	var p redisPeer
	if err := json.Unmarshal(peer, &p); err != nil {
		return err
	}
	network, addr := "tcp", p.TCP
	if n.mode == "unix" {
		network, addr = "unix", p.Unix
	}
	for range c.Streams {
		r, err := dialRESP(network, addr)
		if err != nil {
			return err
		}
		n.clients = append(n.clients, r)
	}
	n.order, n.near, n.keys = orderOf(c), aligned(c.near()), nil
	fill(n.near, seedLocal, 0)
	for i := range n.order.blocks {
		n.keys = append(n.keys, fmt.Appendf(nil, "block:%d", i))
	}
	n.ask = make([][2][][]byte, c.Streams)
	for w := range n.ask {
		n.ask[w][0] = make([][]byte, c.Batch)
		for j := range c.Batch {
			n.ask[w][1] = append(n.ask[w][1], n.near[n.order.local(w, j):][:c.Size])
		}
	}
	return n.store()
}

// store makes the server hold every block of the cell's set, and nothing else.
func (n *redisInitiator) store() error {
	if err := n.clients[0].flush(); err != nil {
		return err
	}
	group := max(1, int(storeBytes/n.order.Size))
	body := make([]byte, uint64(group)*n.order.Size)
	values := make([][]byte, group)
	for j := range values {
		values[j] = body[uint64(j)*n.order.Size:][:n.order.Size]
	}
	for i := 0; i < len(n.keys); i += group {
		to := min(i+group, len(n.keys))
		fill(body, seedRemote, uint64(i)*n.order.Size)
		if err := n.clients[0].set(n.keys[i:to], values[:to-i]); err != nil {
			return err
		}
	}
	return nil
}

// storeBytes are set at a time before anything is timed.
const storeBytes = 1 << 20

func (n *redisInitiator) move(_ context.Context, stream, k int, seen *seen) error {
	keys, buffers, o := n.ask[stream][0], n.ask[stream][1], n.order
	for j := range keys {
		keys[j] = n.keys[o.item(stream, k, j)]
	}
	if o.Op == Write {
		if err := n.clients[stream].set(keys, buffers); err != nil || seen == nil {
			return err
		}
		return n.readBack(stream, keys, seen)
	}
	for j := 0; seen != nil && j < len(buffers); j++ {
		clear(buffers[j])
	}
	if err := n.clients[stream].get(keys, buffers); err != nil || seen == nil {
		return err
	}
	for j, b := range buffers {
		if err := seen.read(j, b); err != nil {
			return err
		}
	}
	return nil
}

// readBack fetches what was just written.
func (n *redisInitiator) readBack(stream int, keys [][]byte, seen *seen) error {
	got := make([]byte, n.order.Size)
	for j, key := range keys {
		clear(got)
		if err := n.clients[stream].get([][]byte{key}, [][]byte{got}); err != nil {
			return err
		}
		if err := expect(got, seedLocal, n.order.local(stream, j)); err != nil {
			return err
		}
		seen.compared(n.order.Size)
	}
	return nil
}

func (n *redisInitiator) close() error {
	var errs []error
	for _, c := range n.clients {
		errs = append(errs, c.close())
	}
	n.clients = nil
	return errors.Join(errs...)
}
