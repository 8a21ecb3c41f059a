package mooncake

import (
	"fmt"

	"meridian/fabric/lent/notice"
	"meridian/wire"
)

// The verbs of notifies: docs/mooncake.md has the table.
const (
	verbPut    = notice.Put
	verbGet    = notice.Get
	verbStored = notice.Stored
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
	return notice.Notice{Verb: m.verb, NS: m.ns, Key: m.key, Addr: m.addr, Len: m.n}.String()
}

// parseMessage reads what a peer may send.
func parseMessage(text string) (message, error) {
	n, err := notice.Parse(text, maxItem, verbPut, verbGet)
	if err != nil {
		return message{}, fmt.Errorf("mooncake: a notify: %w", err)
	}
	return message{n.Verb, n.NS, n.Key, n.Addr, n.Len}, nil
}
