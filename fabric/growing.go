package fabric

import (
	"context"
	"errors"
	"sync"

	"meridian/wire"
)

// Coming is a block that a peer brings, and that has a home here into which its bytes come
// one after the other.
type Coming struct {
	Head wire.Header
	Att  wire.Attest
	Body []byte // its home
	Slot uint32 // of the store
}

// Growing is a body that comes in and goes on at the same time. The fabric to which it
// comes calls Came and Prove; who let it in calls End, once; the Streamer that sends it on
// looks at State whenever Changed says so. Nothing of it waits.
type Growing struct {
	begin   func()
	changed chan struct{} // holds one

	mu    sync.Mutex
	begun bool
	over  bool
	n     int
	proof wire.Verified
	err   error
}

// NewGrowing makes one. begin is called once, by the first Came: the bytes are next. It
// must not wait, nor call back.
func NewGrowing(begin func()) *Growing {
	return &Growing{begin: begin, changed: make(chan struct{}, 1)}
}

// Came says that the first n bytes are in place, where they stay as they are; with 0, that
// they are next.
func (g *Growing) Came(n int) {
	g.mu.Lock()
	first := !g.begun
	g.begun = true
	more := n > g.n
	g.n = max(g.n, n)
	g.mu.Unlock()
	if first {
		g.begin()
	}
	if more {
		g.tell()
	}
}

// Prove brings the proof of the whole body, before End.
func (g *Growing) Prove(proof wire.Verified) {
	g.mu.Lock()
	g.proof = proof
	g.mu.Unlock()
}

// End says what became of the block here: nil where it is published, so that others may have
// it.
func (g *Growing) End(err error) {
	g.mu.Lock()
	if !g.over {
		g.over, g.err = true, err
	}
	g.mu.Unlock()
	g.tell()
}

func (g *Growing) tell() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Changed gets a value after each change of State.
func (g *Growing) Changed() <-chan struct{} { return g.changed }

// GrowingState is how a Growing stands.
type GrowingState struct {
	N     int           // bytes that are in place, from the front
	Over  bool          // End was called
	Proof wire.Verified // of the whole body; where it is over without Err
	Err   error         // why it is not published
}

// State says how it stands.
func (g *Growing) State() GrowingState {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := GrowingState{N: g.n, Over: g.over, Err: g.err}
	if g.over && g.err == nil {
		st.Proof = g.proof
	}
	return st
}

// Streamer is a fabric that can push a block while its body comes in, such that its peer
// publishes nothing before this side has checked all of it, and nothing at all where that
// fails.
type Streamer interface {
	// Stream is Push of one block. M.B is the body alone, which grows; Head says what it is to
	// become. It returns when the peer has it, or will not get it, and M is not touched any
	// more. It never waits for room at the peer: there is some at once, or it is BUSY. The
	// Err of what ended for want of bytes matches ErrStarved.
	Stream(ctx context.Context, it *Item, g *Growing)
}

// ErrStarved is why a Stream ended whose body stood still: no fault of its peer.
var ErrStarved = errors.New("no more of the body came")
