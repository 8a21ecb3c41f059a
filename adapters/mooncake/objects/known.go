package objects

import (
	"crypto/rand"
	"sync"

	"meridian/fabric"
	"meridian/wire"
)

// maxKnown bounds the handles that are known at a time. One that is not known any more
// is ABSENT; its block is still found by its key.
const maxKnown = 1 << 18

type ident struct {
	ns  wire.Namespace
	key wire.Key
}

// entry is an object that was written or read with this header.
type entry struct {
	ident
	h    fabric.Handle
	head wire.Header
}

// known are the objects that have a handle.
type known struct {
	mu    sync.Mutex
	byKey map[ident]entry
	byH   map[fabric.Handle]entry
	limit int
}

func newKnown() *known {
	return &known{byKey: map[ident]entry{}, byH: map[fabric.Handle]entry{}, limit: maxKnown}
}

// note gives the object of a key, which has this header now, its handle. Another header
// is another object: the handle of before names nothing any more.
func (k *known) note(id ident, head wire.Header) fabric.Handle {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, there := k.byKey[id]
	if there && was.head == head {
		return was.h
	}
	if there {
		delete(k.byH, was.h)
	}
	for h, e := range k.byH {
		if len(k.byH) < k.limit {
			break
		}
		delete(k.byH, h)
		delete(k.byKey, e.ident)
	}
	e := entry{ident: id, head: head}
	_, _ = rand.Read(e.h[:]) // never fails
	k.byKey[id], k.byH[e.h] = e, e
	return e.h
}

// of is the object that an item names: by its handle, or by its key, where its header
// need not be known.
func (k *known) of(it *fabric.Item) (e entry, byHandle, ok bool) {
	if it.H == (fabric.Handle{}) {
		return entry{ident: ident{it.NS, it.Key}}, false, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok = k.byH[it.H]
	return e, true, ok
}

// has reports whether a handle names anything.
func (k *known) has(h fabric.Handle) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.byH[h]
	return ok
}

// forget ends the handle of an object that is gone or another one now.
func (k *known) forget(id ident) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byH, k.byKey[id].h)
	delete(k.byKey, id)
}

// drop is forget, unless the key has another handle by now: the answer about e is old then.
func (k *known) drop(e entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.byKey[e.ident]; e.h != (fabric.Handle{}) && was.h != e.h {
		return
	}
	delete(k.byH, k.byKey[e.ident].h)
	delete(k.byKey, e.ident)
}
