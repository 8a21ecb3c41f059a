// Package notice is the texts by which a peer that lends memory and this daemon tell each
// other of memory and of blocks in it: words with one space between them. docs/mooncake.md
// and docs/nixl.md have the tables; an adapter says which of them a peer may send.
//
// The package may import wire and internal/stranger. It must never keep a text.
package notice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"meridian/internal/stranger"
	"meridian/wire"
)

// The verbs.
const (
	Window = "window" // ours: your window is there
	Lend   = "lend"   // a peer's: this memory of mine is for your blocks
	Put    = "put"    // a peer's: the payload of this key lies there in its window
	Get    = "get"    // a peer's: write the payload of this key there in my memory
	Stored = "stored" // ours: the payload of this key lies there in your memory

	Done    = "-done"    // behind a peer's verb: it was done
	Refused = "-refused" // behind a peer's verb: it was not; the code follows the text
)

// What is looked at of a text.
const (
	MaxText  = 1024 // bytes of a line
	MaxLines = 64   // blocks to put
)

const prefix = "mrdn"

// Notice is a text, taken apart.
type Notice struct {
	Verb string
	NS   wire.Namespace // with Key, of all but Window, Lend and Lend-done
	Key  wire.Key
	Addr uint64
	Len  uint64 // bytes: of the memory, of the payload, or of the room for it
}

// keyed says that a verb is about a block.
func keyed(verb string) bool { return verb != Window && verb != Lend && verb != Lend+Done }

func (n Notice) String() string {
	if !keyed(n.Verb) {
		return fmt.Sprintf("%s %s %d %d", prefix, n.Verb, n.Addr, n.Len)
	}
	return fmt.Sprintf("%s %s %v %v %d %d", prefix, n.Verb, n.NS, n.Key, n.Addr, n.Len)
}

// form is how the text of a verb looks.
func form(verb string) string {
	if !keyed(verb) {
		return prefix + " " + verb + " ADDRESS LENGTH"
	}
	return prefix + " " + verb + " NAMESPACE KEY ADDRESS LENGTH"
}

// Answer is what a peer is told that has sent n: what became of it.
func (n Notice) Answer(code wire.Code) string {
	if code == wire.CodeOK {
		n.Verb += Done
		return n.String()
	}
	n.Verb += Refused
	return n.String() + " " + code.String()
}

// ParseAll reads a text of one line, as Parse does, or of several that each say Put. Where
// one line is wrong all are. The error matches TOO_MANY for too many lines.
func ParseAll(text string, payload uint64, verbs ...string) ([]Notice, error) {
	if n := strings.Count(text, "\n") + 1; n > MaxLines {
		return nil, fmt.Errorf("a text of %d lines, limit %d: %w", n, MaxLines, wire.CodeTooMany)
	}
	lines := strings.Split(text, "\n")
	list := make([]Notice, len(lines))
	for i, line := range lines {
		n, err := Parse(line, payload, verbs...)
		if err == nil && len(lines) > 1 && n.Verb != Put {
			err = fmt.Errorf("%s in a text of %d lines: several are for %s only: %w", n.Verb, len(lines), Put, wire.CodeUnsupported)
		}
		if err != nil {
			return nil, err
		}
		list[i] = n
	}
	return list, nil
}

// Parse reads a text that a stranger has sent, with one of the verbs and about a payload of
// so many bytes at most. The error matches TOO_LARGE for a long text, UNSUPPORTED for
// another verb, else INVALID.
func Parse(text string, payload uint64, verbs ...string) (n Notice, err error) {
	if len(text) > MaxText {
		return n, fmt.Errorf("a text of %d bytes, limit %d: %w", len(text), MaxText, wire.CodeTooLarge)
	}
	words := strings.Split(text, " ")
	if len(words) < 2 || words[0] != prefix {
		return n, fmt.Errorf("%s: want %q: %w", stranger.Quote(text), "mrdn VERB ...", wire.CodeInvalid)
	}
	if n.Verb = words[1]; !slices.Contains(verbs, n.Verb) {
		return n, fmt.Errorf("the verb %s: want %s: %w", stranger.Quote(n.Verb), strings.Join(verbs, " or "), wire.CodeUnsupported)
	}
	bad := func(what string) (Notice, error) {
		return Notice{}, fmt.Errorf("%s: %s: %w", n.Verb, what, wire.CodeInvalid)
	}
	if want := form(n.Verb); len(words) != len(strings.Split(want, " ")) {
		return bad(fmt.Sprintf("%d words, want %q", len(words), want))
	}
	if keyed(n.Verb) {
		if n.NS, err = wire.ParseNamespace(words[2]); err != nil {
			return bad("namespace " + stranger.Quote(words[2]) + ": " + stranger.Text(err.Error()))
		}
		if n.Key, err = wire.ParseKey(words[3]); err != nil {
			return bad("key " + stranger.Quote(words[3]) + ": " + stranger.Text(err.Error()))
		}
	}
	numbers := words[len(words)-2:]
	if n.Addr, err = strconv.ParseUint(numbers[0], 10, 64); err != nil {
		return bad("address " + stranger.Quote(numbers[0]))
	}
	if n.Len, err = strconv.ParseUint(numbers[1], 10, 64); err != nil {
		return bad("length " + stranger.Quote(numbers[1]))
	}
	switch {
	case n.Addr+n.Len < n.Addr:
		return bad(fmt.Sprintf("%d bytes at %d", n.Len, n.Addr))
	case keyed(n.Verb) && (n.Len < wire.HeaderLen || n.Len > payload):
		return bad(fmt.Sprintf("a payload of %d bytes, want %d to %d", n.Len, wire.HeaderLen, payload))
	}
	return n, nil
}
