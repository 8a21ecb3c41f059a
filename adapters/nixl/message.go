package nixl

import (
	"fmt"

	"meridian/fabric/lent/notice"
	"meridian/wire"
)

// The verbs of notifications: docs/nixl.md has the table.
const (
	verbWindow = notice.Window
	verbLend   = notice.Lend
	verbPut    = notice.Put
	verbGet    = notice.Get
	verbStored = notice.Stored

	suffixDone = notice.Done
)

// message is a line of a notification's text, taken apart. Lend and window have no key.
type message struct {
	verb string
	ns   wire.Namespace
	key  wire.Key
	addr uint64
	n    uint64 // bytes
}

func (m message) notice() notice.Notice {
	return notice.Notice{Verb: m.verb, NS: m.ns, Key: m.key, Addr: m.addr, Len: m.n}
}

func (m message) String() string { return m.notice().String() }

// parseMessages reads what a peer may send.
func parseMessages(text string) ([]message, error) {
	lines, err := notice.ParseAll(text, maxItem, verbLend, verbPut, verbGet)
	if err != nil {
		return nil, fmt.Errorf("nixl: a notification: %w", err)
	}
	list := make([]message, len(lines))
	for i, n := range lines {
		list[i] = message{n.Verb, n.NS, n.Key, n.Addr, n.Len}
	}
	return list, nil
}
