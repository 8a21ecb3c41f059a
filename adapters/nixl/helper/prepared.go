package helper

import (
	"encoding/binary"
	"errors"
	"slices"

	"meridian/adapters/nixl/capi"
)

// maxKept bounds the transfers that are kept for another time.
const maxKept = 64

// kept has transfers that have ended well, for the next one between the same places: the
// library has looked their ranges up already.
type kept struct {
	idle  []*prepared // the one that was used last is the last
	lives map[string]*life
}

// life is from the first transfer with a peer until it is forgotten.
type life struct{ peer string }

// prepared is a transfer that can be posted again.
type prepared struct {
	request
	lists []releaser // those that it was made of
	key   string
	of    *life
	kept  *kept
	ended bool // well
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
func (k *kept) begin(key, peer string, prepare func() (request, []releaser, error)) (t transfer, quiet bool, err error) {
	var p *prepared
	if i := slices.IndexFunc(k.idle, func(p *prepared) bool { return p.key == key }); i >= 0 {
		p = k.idle[i]
		k.idle = slices.Delete(k.idle, i, i+1)
		p.ended = false
	} else {
		if k.lives == nil {
			k.lives = map[string]*life{}
		}
		if k.lives[peer] == nil {
			k.lives[peer] = &life{peer}
		}
		p = &prepared{key: key, of: k.lives[peer], kept: k}
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
	k.idle = slices.DeleteFunc(k.idle, func(p *prepared) bool {
		if p.of.peer == peer {
			_ = p.drop() // the library forgets the peer, whatever becomes of its lists
		}
		return p.of.peer == peer
	})
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
	var err error
	if len(k.idle) >= maxKept {
		err = k.idle[0].drop()
		k.idle = slices.Delete(k.idle, 0, 1)
	}
	k.idle = append(k.idle, p)
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
