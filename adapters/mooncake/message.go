package mooncake

import (
	"fmt"
	"strconv"
	"strings"

	"meridian/internal/stranger"
	"meridian/wire"
)

// The texts of notifies: words with one space between them. docs/mooncake.md has the
// table.
const (
	prefix     = "mrdn"
	verbPut    = "put"    // a peer's: the payload of this key lies there in its window
	verbGet    = "get"    // a peer's: write the payload of this key there in my memory
	verbStored = "stored" // ours: the payload of this key lies there in your memory

	suffixDone    = "-done"    // ours: a put or get was done
	suffixRefused = "-refused" // ours: it was not; the code follows

	maxText = 1024 // bytes of a text that is looked at
)

// message is a notify's text, taken apart.
type message struct {
	verb string
	ns   wire.Namespace
	key  wire.Key
	addr uint64
	n    uint64 // bytes: of the payload, or of the room for it
}

func (m message) String() string {
	return fmt.Sprintf("%s %s %v %v %d %d", prefix, m.verb, m.ns, m.key, m.addr, m.n)
}

// parseMessage reads a text: mrdn VERB NAMESPACE KEY ADDRESS LENGTH.
func parseMessage(text string) (message, error) {
	if len(text) > maxText {
		return message{}, fmt.Errorf("mooncake: a notify of %d bytes, limit %d: %w", len(text), maxText, wire.CodeTooLarge)
	}
	words := strings.Split(text, " ")
	if len(words) != 6 || words[0] != prefix {
		return message{}, fmt.Errorf("mooncake: notify %s: want %q: %w", stranger.Quote(text), "mrdn VERB NAMESPACE KEY ADDRESS LENGTH", wire.CodeInvalid)
	}
	m := message{verb: words[1]}
	if m.verb != verbPut && m.verb != verbGet && m.verb != verbStored {
		return message{}, fmt.Errorf("mooncake: notify with the verb %s: want %s or %s: %w", stranger.Quote(m.verb), verbPut, verbGet, wire.CodeUnsupported)
	}
	bad := func(what, got string, err error) (message, error) {
		return message{}, fmt.Errorf("mooncake: notify to %s: %s %s: %s: %w", m.verb, what, stranger.Quote(got), stranger.Text(err.Error()), wire.CodeInvalid)
	}
	var err error
	if m.ns, err = wire.ParseNamespace(words[2]); err != nil {
		return bad("namespace", words[2], err)
	}
	if m.key, err = wire.ParseKey(words[3]); err != nil {
		return bad("key", words[3], err)
	}
	if m.addr, err = strconv.ParseUint(words[4], 10, 64); err != nil {
		return bad("address", words[4], err)
	}
	if m.n, err = strconv.ParseUint(words[5], 10, 64); err != nil {
		return bad("length", words[5], err)
	}
	if m.n < wire.HeaderLen || m.n > maxItem {
		return message{}, fmt.Errorf("mooncake: notify to %s: a payload of %d bytes, want %d to %d: %w", m.verb, m.n, wire.HeaderLen, maxItem, wire.CodeInvalid)
	}
	return m, nil
}
