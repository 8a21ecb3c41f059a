package helper

import (
	lru "container/list"
	"encoding/binary"
	"errors"
	"slices"

	"meridian/adapters/nixl/capi"
)

// What is kept for another time: transfers, and their parts together, of which each takes
// a few hundred bytes.
const (
	maxKept      = 1024
	maxKeptParts = 8192
)

// kept has transfers that have ended well, for the next one between the same places: the
// library has looked their ranges up already.
type kept struct {
	idle  lru.List               // of *prepared; the one that was used last is the last
	byKey map[string][]*prepared // the same
	parts int                    // of all that are idle
	lives map[string]*life
}

// life is from the first transfer with a peer until it is forgotten.
type life struct{ peer string }

// prepared is a transfer that can be posted again.
type prepared struct {
	request
	lists []releaser // those that it was made of
	key   string
	parts int
	of    *life
	kept  *kept
	ended bool         // well
	at    *lru.Element // of idle
}

// request is a transfer of the library.
type request interface {
	transfer
	Post() (done bool, err error)
}

type releaser interface{ Release() error }

// keyOf is another one for each other transfer.
func keyOf(op capi.Op, peer string, local, remote []capi.Span) string {
	b := append([]byte{byte(op)}, peer...)
	b = append(b, 0) // no name has one
	for i := range local {
		for _, n := range []uint64{local[i].Addr, remote[i].Addr, local[i].Len} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	return string(b)
}

// begin posts a transfer that was kept, or one that is made now.
func (k *kept) begin(key, peer string, parts int, prepare func() (request, []releaser, error)) (t transfer, quiet bool, err error) {
	var p *prepared
	if same := k.byKey[key]; len(same) > 0 {
		p = same[len(same)-1]
		k.take(p)
		p.ended = false
	} else {
		if k.lives == nil {
			k.lives = map[string]*life{}
		}
		if k.lives[peer] == nil {
			k.lives[peer] = &life{peer}
		}
		p = &prepared{key: key, parts: parts, of: k.lives[peer], kept: k}
		if p.request, p.lists, err = prepare(); err != nil {
			return nil, true, err
		}
	}
	if _, err := p.Post(); err != nil { // Poll tells whether it is done already
		_ = p.drop() // the error is Post's
		return nil, false, err
	}
	return p, false, nil
}

// forget is for a peer that is about to be forgotten.
func (k *kept) forget(peer string) {
	delete(k.lives, peer)
	for e := k.idle.Front(); e != nil; {
		p := e.Value.(*prepared)
		e = e.Next()
		if p.of.peer == peer {
			k.take(p)
			_ = p.drop() // the library forgets the peer, whatever becomes of its lists
		}
	}
}

// put makes one idle.
func (k *kept) put(p *prepared) {
	if k.byKey == nil {
		k.byKey = map[string][]*prepared{}
	}
	p.at = k.idle.PushBack(p)
	k.byKey[p.key] = append(k.byKey[p.key], p)
	k.parts += p.parts
}

// take takes one out that is idle.
func (k *kept) take(p *prepared) {
	k.idle.Remove(p.at)
	k.parts -= p.parts
	same := slices.DeleteFunc(k.byKey[p.key], func(q *prepared) bool { return q == p })
	if len(same) == 0 {
		delete(k.byKey, p.key)
	} else {
		k.byKey[p.key] = same
	}
}

// Poll implements transfer.
func (p *prepared) Poll() (done bool, err error) {
	done, err = p.request.Poll()
	p.ended = done && err == nil
	return done, err
}

// Release keeps a transfer that has ended well, and frees any other.
func (p *prepared) Release() error {
	k := p.kept
	if !p.ended || k.lives[p.of.peer] != p.of {
		return p.drop()
	}
	k.put(p)
	var err error
	for k.idle.Len() > maxKept || k.parts > maxKeptParts && k.idle.Len() > 1 {
		oldest := k.idle.Front().Value.(*prepared)
		k.take(oldest)
		err = errors.Join(err, oldest.drop())
	}
	return err
}

// drop frees the request, and then its lists.
func (p *prepared) drop() error {
	err := p.request.Release()
	for _, l := range p.lists {
		err = errors.Join(err, l.Release())
	}
	return err
}
