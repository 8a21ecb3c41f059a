package plane

import (
	"fmt"
	"strings"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Whole is the label of an agent's whole metadata; partial ones have labels of their own.
const Whole = "metadata"

// MaxLabel bounds a label, in bytes.
const MaxLabel = 128

// What keys of a TCPStore begin and end with. The slash in front is what every client of
// a TCPStore adds.
const (
	keyBegin = "/nixl/agents/"
	keyEnd   = "/NULL_AGENT" // for everybody; NIXL has keys for nobody else yet

	// MaxKey bounds a key, in bytes.
	MaxKey = len(keyBegin) + MaxLabel + 1 + MaxName + len(keyEnd)
)

// DefaultNamespace is where agents look in etcd unless NIXL_ETCD_NAMESPACE says another
// place.
const DefaultNamespace = "/nixl/agents/"

// Key names metadata in a store.
type Key struct{ Label, Agent string }

// String is the key in a TCPStore.
func (k Key) String() string { return keyBegin + k.Label + "/" + k.Agent + keyEnd }

// Etcd is the key in etcd, below a namespace. The agent's own key, whose end has others
// forget it, is that with no label.
func (k Key) Etcd(namespace string) string { return namespace + "/" + k.Agent + "/" + k.Label }

// ParseKey reads a key of a TCPStore.
func ParseKey(s string) (k Key, err error) {
	rest, begins := strings.CutPrefix(s, keyBegin)
	rest, ends := strings.CutSuffix(rest, keyEnd)
	label, agent, found := strings.Cut(rest, "/")
	switch {
	case !begins || !ends || !found:
		return k, fmt.Errorf("nixl: the key %s, want %s: %w", stranger.Quote(s), Key{"LABEL", "AGENT"}, wire.CodeInvalid)
	case label == "" || len(label) > MaxLabel:
		return k, fmt.Errorf("nixl: a label of %d bytes, want 1 to %d: %w", len(label), MaxLabel, wire.CodeInvalid)
	}
	for _, c := range []byte(label) {
		if c < ' ' || c == 0x7f {
			return k, fmt.Errorf("nixl: a label with a control character: %w", wire.CodeInvalid)
		}
	}
	if err := CheckName(agent); err != nil {
		return k, fmt.Errorf("nixl: the key %s: %w", stranger.Quote(s), err)
	}
	return Key{label, agent}, nil
}
