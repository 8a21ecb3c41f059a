package fabrictest

import (
	"context"
	"testing"
	"time"

	"meridian/blocks/window"
	"meridian/fabric"
	"meridian/wire"
)

// Harness is a fabric and what the suite must know to use it. Only Fabric is
// needed. Every check gets a fresh one, and closes Fabric at its end.
type Harness struct {
	Fabric fabric.Fabric
	// Far is where pushed blocks are pulled, found, listed and dropped; nil: Fabric.
	Far fabric.Fabric
	// Windows are those that Fabric reaches, a fabric.Target of the other end; nil:
	// one-sided access is not tried.
	Windows *window.Table
	At      string // Range.Peer of Windows
	// NS is a namespace in which blocks can be pushed.
	NS wire.Namespace
	// ByKey is for fabrics whose Push does not learn a handle: blocks are named
	// by key until Find gives one.
	ByKey bool
	// MaxBody bounds the bodies that the suite pushes, in bytes, at least 8 KiB;
	// 0: 1 MiB.
	MaxBody int
	// Mem makes memory of n bytes for a payload; nil: plain memory. It is called
	// often and should not fail.
	Mem func(n int) fabric.Mem
	// Damage flips one bit of the body that is stored or sent for the block, so
	// that every later pull of it carries the damage; nil: not tried.
	Damage func(it fabric.Item) error
	// Settle lets happen whatever the fabric still does in the background; nil:
	// the suite makes other traffic, and looks again after Close.
	Settle func()
	// Leaks is an error while the fabric holds a block, reservation, lease or
	// transfer; it is asked when everything has been dropped and quiesced, if
	// the fabric is a Dropper.
	Leaks func() error
	// Peer is whom Probe asks.
	Peer string
}

func (h *Harness) far() fabric.Fabric {
	if h.Far != nil {
		return h.Far
	}
	return h.Fabric
}

func (h *Harness) maxBody() int {
	n := 1 << 20
	if h.MaxBody > 0 {
		n = h.MaxBody
	}
	if limit := h.Fabric.Caps().MaxItem; limit > 0 {
		n = min(n, limit-wire.HeaderLen)
	}
	return n
}

// Check is one part of the contract.
type Check struct {
	Name string
	// Applies says whether the fabric has what the check is about; nil: always.
	Applies func(h *Harness) bool
	// Run is nil for a fabric that keeps the contract. h is used up by it.
	Run func(ctx context.Context, h *Harness) error
}

// Checks returns the whole suite.
func Checks() []Check {
	var all []Check
	all = append(all, basicChecks()...)
	all = append(all, refusalChecks()...)
	all = append(all, endChecks()...)
	all = append(all, optionalChecks()...)
	all = append(all, windowChecks()...)
	all = append(all, placeChecks()...)
	return all
}

// patience ends a check whose fabric hangs.
const patience = time.Minute

// Run holds the contract against the fabrics that f makes.
func Run(t *testing.T, f func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			h := f(t)
			defer func() {
				if err := h.Fabric.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			if c.Applies != nil && !c.Applies(&h) {
				t.Log("the fabric has no such part")
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.Run(ctx, &h); err != nil {
				t.Error(err)
			}
		})
	}
}
