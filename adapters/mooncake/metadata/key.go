package metadata

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"meridian/internal/stranger"
	"meridian/wire"
)

// Limits of what is kept about a node.
const (
	MaxBytes = 1 << 20 // of a value; engines drop what is longer
	MaxName  = 1024    // of a node's name or a cluster's, bytes
)

const prefix = "mooncake/"

// Kind is what a key's value is.
type Kind uint8

// The kinds.
const (
	KindSegment  Kind = iota // a segment descriptor
	KindEndpoint             // where the node's handshake is answered
)

var kindDirs = [...]string{KindSegment: "ram/", KindEndpoint: "rpc_meta/"}

// String is the kind as it is in a key.
func (k Kind) String() string { return strings.TrimSuffix(kindDirs[k], "/") }

// Key is a key of a metadata server: what is said about a node of a cluster.
type Key struct {
	Kind    Kind
	Cluster string // MC_METADATA_CLUSTER_ID; "" where nobody set it
	Name    string // of the node
}

// String is the key as engines write it. The segment of a name with a slash has no
// "ram/".
func (k Key) String() string {
	p := prefix
	if k.Cluster != "" {
		p += k.Cluster + "/"
	}
	if k.Kind == KindSegment && strings.Contains(k.Name, "/") {
		return p + k.Name
	}
	return p + kindDirs[k.Kind] + k.Name
}

// Check says why the key cannot be used.
func (k Key) Check() error {
	switch {
	case k.Cluster != "" && (!clean(k.Cluster) || strings.Contains(k.Cluster, "/")):
		return &KeyError{Key: k.Cluster, Want: "a cluster of printable text without a slash, 1024 bytes at most"}
	case !clean(k.Name):
		return &KeyError{Key: k.Name, Want: "a node's name of printable text, 1 to 1024 bytes"}
	}
	return nil
}

// ParseKey reads a key. One below "mooncake/" that has neither form is the segment of
// a name with a slash.
func ParseKey(s string) (Key, error) {
	rest, ours := strings.CutPrefix(s, prefix)
	if !ours {
		return Key{}, &KeyError{Key: s, Want: "one that begins with mooncake/"}
	}
	k := Key{Name: rest}
	found := k.cut(rest)
	if first, after, two := strings.Cut(rest, "/"); !found && two && first != "" {
		if found = k.cut(after); found {
			k.Cluster = first
		}
	}
	if err := k.Check(); err != nil {
		return Key{}, err
	}
	return k, nil
}

// cut takes kind and name from what follows the cluster.
func (k *Key) cut(s string) bool {
	for kind, dir := range kindDirs {
		if name, ok := strings.CutPrefix(s, dir); ok {
			k.Kind, k.Name = Kind(kind), name
			return true
		}
	}
	return false
}

func clean(s string) bool {
	if s == "" || len(s) > MaxName || !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// KeyError is a key that cannot be used. It matches CodeInvalid.
type KeyError struct{ Key, Want string }

func (e *KeyError) Error() string {
	return "metadata key " + stranger.Quote(e.Key) + ": want " + e.Want
}

// Unwrap returns CodeInvalid.
func (e *KeyError) Unwrap() error { return wire.CodeInvalid }
