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

	suffixDone    = notice.Done
	suffixRefused = notice.Refused
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
	return notice.Notice{Verb: m.verb, NS: m.ns, Key: m.key, Addr: m.addr, Len: m.n}.String()
}

// parseMessage reads what a peer may send.
func parseMessage(text string) (message, error) {
	n, err := notice.Parse(text, maxItem, verbLend, verbPut, verbGet)
	if err != nil {
		return message{}, fmt.Errorf("nixl: a notification: %w", err)
	}
	return message{n.Verb, n.NS, n.Key, n.Addr, n.Len}, nil
}
