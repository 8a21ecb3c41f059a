package nixl

import (
	"fmt"
	"strconv"
	"strings"

	"meridian/internal/stranger"
	"meridian/wire"
)

// The texts of notifications: words with one space between them. docs/nixl.md has the
// table.
const (
	prefix     = "mrdn"
	verbWindow = "window" // ours: your window is there in my agent
	verbLend   = "lend"   // a peer's: this memory of mine is for your blocks
	verbPut    = "put"    // a peer's: the payload of this key lies there in its window
	verbGet    = "get"    // a peer's: write the payload of this key there in my memory
	verbStored = "stored" // ours: the payload of this key lies there in your memory

	suffixDone    = "-done"    // ours: a lend, put or get was done
	suffixRefused = "-refused" // ours: it was not; the code follows

	maxText = 1024 // bytes of a text that is looked at
)

// message is a notification's text, taken apart. Lend and window have no key.
type message struct {
	verb string
	ns   wire.Namespace
	key  wire.Key
	addr uint64
	n    uint64 // bytes
}

func (m message) String() string {
	if m.verb == verbWindow || m.verb == verbLend || m.verb == verbLend+suffixDone {
		return fmt.Sprintf("%s %s %d %d", prefix, m.verb, m.addr, m.n)
	}
	return fmt.Sprintf("%s %s %v %v %d %d", prefix, m.verb, m.ns, m.key, m.addr, m.n)
}

// parseMessage reads what a peer may send.
func parseMessage(text string) (m message, err error) {
	if len(text) > maxText {
		return m, fmt.Errorf("nixl: a notification of %d bytes, limit %d: %w", len(text), maxText, wire.CodeTooLarge)
	}
	words := strings.Split(text, " ")
	if len(words) < 2 || words[0] != prefix {
		return m, fmt.Errorf("nixl: notification %s does not begin with %q: %w", stranger.Quote(text), prefix, wire.CodeInvalid)
	}
	m.verb = words[1]
	want := 6
	switch m.verb {
	case verbPut, verbGet:
	case verbLend:
		want = 4
	default:
		return m, fmt.Errorf("nixl: notification with the verb %s: want %s, %s or %s: %w", stranger.Quote(m.verb), verbLend, verbPut, verbGet, wire.CodeUnsupported)
	}
	if len(words) != want {
		return m, fmt.Errorf("nixl: notification to %s of %d words, want %d: %w", m.verb, len(words), want, wire.CodeInvalid)
	}
	numbers := words[want-2:]
	if want == 6 {
		if m.ns, err = wire.ParseNamespace(words[2]); err == nil {
			m.key, err = wire.ParseKey(words[3])
		}
	}
	if err == nil {
		m.addr, err = strconv.ParseUint(numbers[0], 10, 64)
	}
	if err == nil {
		m.n, err = strconv.ParseUint(numbers[1], 10, 64)
	}
	switch {
	case err != nil:
		return m, fmt.Errorf("nixl: notification to %s: %s: %w", m.verb, stranger.Quote(err.Error()), wire.CodeInvalid)
	case m.addr+m.n < m.addr:
		return m, fmt.Errorf("nixl: notification to %s: %d bytes at %d: %w", m.verb, m.n, m.addr, wire.CodeInvalid)
	case m.verb != verbLend && (m.n < wire.HeaderLen || m.n > maxItem):
		return m, fmt.Errorf("nixl: notification to %s: a payload of %d bytes, want %d to %d: %w", m.verb, m.n, wire.HeaderLen, maxItem, wire.CodeInvalid)
	}
	return m, nil
}
