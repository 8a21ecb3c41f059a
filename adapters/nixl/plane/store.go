package plane

import (
	"context"
	"errors"
)

// ErrAbsent is a store's answer that it has no metadata of an agent. ErrTaken is that of
// one that keeps an agent's name for somebody else.
var (
	ErrAbsent = errors.New("its agent has not sent its metadata there")
	ErrTaken  = errors.New("an agent of this name has its metadata there already")
)

// Store is a plane on which agents find each other by name.
type Store interface {
	// Get is an agent's whole metadata as they are there now, or ErrAbsent.
	Get(ctx context.Context, agent string) ([]byte, error)
	// Publish sees to it that ours are there. It is called again and again.
	Publish(ctx context.Context, agent string, blob []byte) error
	// Withdraw takes ours out: agents that look for that forget them.
	Withdraw(ctx context.Context, agent string) error
	// String is where it is: SCHEME://HOST:PORT.
	String() string
	Close() error
}

// Mortal is a store whose end loses what is there, and which knows when that was.
type Mortal interface {
	// Life is another number once what we had published was found to be lost.
	Life() uint64
}

// Reaper is a store from which the metadata of the dead can be taken out.
type Reaper interface {
	// Reap takes out all that an agent has there, if its whole metadata are still those of
	// blob.
	Reap(ctx context.Context, agent string, blob []byte) error
}
