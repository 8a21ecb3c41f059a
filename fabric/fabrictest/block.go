package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"meridian/fabric"
	"meridian/wire"
)

// block is a payload that the suite made, and where it went.
type block struct {
	key     wire.Key
	tier    wire.Tier
	payload []byte // what must come back; never given to a fabric
	h       fabric.Handle
}

// guard is how much memory lies around plain memory that a fabric gets.
const guard = 64

// canary fills memory that nobody may touch.
const canary = 0xA5

// fill writes bytes that depend on name and on each position.
func fill(b []byte, name string) {
	f := fnv.New64a()
	_, _ = f.Write([]byte(name))
	x := f.Sum64() | 1
	var word [8]byte
	for len(b) > 0 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		b = b[copy(b, word[:]):]
	}
}

// newBlock makes a block of n body bytes; equal names give equal blocks.
func (h *Harness) newBlock(name string, n int, tier wire.Tier) *block {
	body := make([]byte, n)
	fill(body, name)
	head := wire.Header{BodyLen: uint32(n), Tier: tier, Sum: wire.SumOf(body)}
	return &block{
		key:     wire.KeyOf(h.NS, fmt.Appendf(nil, "%s/%d", name, n)),
		tier:    tier,
		payload: append(head.Append(nil), body...),
	}
}

// newBlocks makes count blocks of n bytes.
func (h *Harness) newBlocks(name string, count, n int) []*block {
	list := make([]*block, count)
	for i := range list {
		list[i] = h.newBlock(fmt.Sprintf("%s-%d", name, i), n, wire.Tier(i%3))
	}
	return list
}

func (b *block) head() wire.Header {
	var sum wire.Sum
	copy(sum[:], b.payload[16:])
	return wire.Header{BodyLen: uint32(len(b.payload) - wire.HeaderLen), Tier: b.tier, Sum: sum}
}

// room makes memory of n bytes, filled with the canary, and a function that says
// whether the memory around it was touched.
func (h *Harness) room(n int) (fabric.Mem, func() error) {
	if h.Mem != nil {
		m := h.Mem(n)
		paint(m.B)
		return m, func() error { return nil }
	}
	all := make([]byte, n+2*guard)
	paint(all)
	m := fabric.Mem{B: all[guard : guard+n]} // the capacity runs on, to tempt
	return m, func() error {
		if at := unpainted(all[:guard]); at >= 0 {
			return fmt.Errorf("memory %d bytes before M was touched", guard-at)
		}
		if at := unpainted(all[guard+n:]); at >= 0 {
			return fmt.Errorf("memory %d bytes beyond M was touched", at)
		}
		return nil
	}
}

var canaries = bytes.Repeat([]byte{canary}, 4096)

func paint(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, canaries):]
	}
}

// unpainted is the first byte that is no canary, or -1.
func unpainted(b []byte) int {
	for at := 0; at < len(b); at += len(canaries) {
		part := b[at:min(at+len(canaries), len(b))]
		if bytes.Equal(part, canaries[:len(part)]) {
			continue
		}
		return at + slices.IndexFunc(part, func(c byte) bool { return c != canary })
	}
	return -1
}

// stale marks the fields that a fabric fills, as an earlier use would have left them.
func stale(it *fabric.Item) {
	it.Head = wire.Header{BodyLen: 77}
	it.Via = "stale"
	it.Loose = true
	it.Err = errStale
}

var errStale = errors.New("left over from an earlier use of the item")

// pushItem is the item that pushes b.
func (h *Harness) pushItem(b *block) fabric.Item {
	m, _ := h.room(len(b.payload))
	copy(m.B, b.payload)
	it := fabric.Item{NS: h.NS, Key: b.key, Tier: b.tier, M: m}
	stale(&it)
	return it
}

// pullItem is the item that pulls b with room bytes of memory.
func (h *Harness) pullItem(b *block, room int) (fabric.Item, func() error) {
	m, intact := h.room(room)
	it := fabric.Item{NS: h.NS, Key: b.key, Tier: b.tier, H: b.h, M: m}
	stale(&it)
	return it, intact
}

// push pushes blocks in one batch, all of which must be taken.
func (h *Harness) push(ctx context.Context, list ...*block) error {
	items := make([]fabric.Item, len(list))
	for i, b := range list {
		items[i] = h.pushItem(b)
	}
	h.Fabric.Push(ctx, items)
	for i, b := range list {
		if err := h.pushed(b, &items[i]); err != nil {
			return fmt.Errorf("push of item %d of %d, %d body bytes: %w", i, len(list), len(b.payload)-wire.HeaderLen, err)
		}
	}
	if h.ByKey {
		return h.learn(ctx, list)
	}
	return nil
}

// pushed checks an item that Push must have taken, and keeps its handle.
func (h *Harness) pushed(b *block, it *fabric.Item) error {
	switch {
	case it.Err != nil:
		return fmt.Errorf("refused: %w", it.Err)
	case it.Loose:
		return errors.New("taken, and yet loose")
	case it.Head != b.head():
		return fmt.Errorf("the item's Head is %+v, the payload's is %+v", it.Head, b.head())
	case it.H == fabric.Handle{} && !h.ByKey:
		return errors.New("taken with the zero handle")
	case it.Via == "" || it.Via == "stale":
		return fmt.Errorf("the item's Via is %q: the transport really used is not reported", it.Via)
	case !bytes.Equal(it.M.B, b.payload):
		return errors.New("the pusher's memory was changed")
	case it.NS != h.NS || it.Key != b.key || it.Tier != b.tier:
		return errors.New("NS, Key or Tier was changed")
	}
	b.h = it.H
	return nil
}

// learn asks for the handles that Push did not give, where somebody knows them.
func (h *Harness) learn(ctx context.Context, list []*block) error {
	f, ok := h.far().(fabric.Finder)
	if !ok {
		return nil
	}
	items := make([]fabric.Item, len(list))
	for i, b := range list {
		items[i] = fabric.Item{NS: h.NS, Key: b.key}
	}
	f.Find(ctx, items)
	for i, b := range list {
		if items[i].Err != nil {
			return fmt.Errorf("find of a pushed block: %w", items[i].Err)
		}
		b.h = items[i].H
	}
	return nil
}

// pulled checks an item of a pull of b that must have come.
func (h *Harness) pulled(b *block, it *fabric.Item) error {
	if it.Err != nil {
		return fmt.Errorf("refused: %w", it.Err)
	}
	if it.Loose {
		return errors.New("came, and yet is loose")
	}
	if it.Head != b.head() {
		return fmt.Errorf("the item's Head is %+v, pushed was %+v", it.Head, b.head())
	}
	if it.Via == "" || it.Via == "stale" {
		return fmt.Errorf("the item's Via is %q: the transport really used is not reported", it.Via)
	}
	if it.NS != h.NS || it.Key != b.key || it.Tier != b.tier {
		return errors.New("NS, Key or Tier was changed")
	}
	if len(it.M.B) < len(b.payload) {
		return fmt.Errorf("came into %d bytes, %d were needed", len(it.M.B), len(b.payload))
	}
	if bytes.Equal(it.M.B[:len(b.payload)], b.payload) {
		return nil
	}
	for i, c := range b.payload {
		if it.M.B[i] != c {
			return fmt.Errorf("byte %d of header and body is %#02x, pushed was %#02x", i, it.M.B[i], c)
		}
	}
	return errors.New("the bytes changed while they were compared")
}

// pull pulls blocks in one batch, all of which must come, with spare bytes more
// room than needed.
func (h *Harness) pull(ctx context.Context, spare int, list ...*block) error {
	items := make([]fabric.Item, len(list))
	intact := make([]func() error, len(list))
	for i, b := range list {
		items[i], intact[i] = h.pullItem(b, len(b.payload)+spare)
	}
	h.far().Pull(ctx, items)
	for i, b := range list {
		err := h.pulled(b, &items[i])
		if err == nil {
			err = intact[i]()
		}
		if err == nil && b.h != (fabric.Handle{}) && items[i].H != b.h {
			err = errors.New("the handle was changed")
		}
		if err != nil {
			return fmt.Errorf("pull of item %d of %d, %d body bytes: %w", i, len(list), len(b.payload)-wire.HeaderLen, err)
		}
	}
	return nil
}

// byKey is b without its handle.
func (b *block) byKey() *block {
	k := *b
	k.h = fabric.Handle{}
	return &k
}

// refused is an error unless err carries one of the codes.
func refused(what string, err error, codes ...wire.Code) error {
	if err == nil {
		return fmt.Errorf("%s: was accepted, want %v", what, codes)
	}
	if errors.Is(err, errStale) {
		return fmt.Errorf("%s: Err was left as it was before the call", what)
	}
	for _, c := range codes {
		if errors.Is(err, c) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w, want %v", what, err, codes)
}
