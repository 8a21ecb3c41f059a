package peers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"

	"meridian/adapters/nixl"
)

// Files of the run's folder: the helper, and where NIXL's package is.
const (
	helperFile  = "meridian-ffi"
	packageLink = "packages"
)

// nixlTransports is UCX_TLS of each pair.
var nixlTransports = map[string]string{
	"nixl-tcp": "tcp,self", helperTCP: "tcp,self",
	"nixl-cma": "tcp,cma,self", helperCMA: "tcp,cma,self",
}

// nixlPeer is what an initiator of NIXL gets. drivers/nixl_ucx.py has the same.
type nixlPeer struct {
	Metadata string `json:"metadata"`
	Addr     uint64 `json:"addr"`
}

// nixlInitiator moves bytes between the memory of our helper and an agent's, as the fabric
// does below its blocks.
type nixlInitiator struct {
	dir, pair string
	order     order
	near      []byte
	peer      nixlPeer
	agent     string
	from      *nixl.Initiator
	list      [][]nixl.Access // of each stream
}

func (n *nixlInitiator) prepare(ctx context.Context, c Cell, peer json.RawMessage) (err error) {
	if n.from == nil {
		n.from, err = nixl.NewInitiator(ctx, nixl.HelperConfig{
			Path: filepath.Join(n.dir, helperFile), Library: filepath.Join(n.dir, packageLink), Backend: "UCX", Devices: "lo",
			Environment: []string{"UCX_TLS=" + nixlTransports[n.pair]}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			return err
		}
	}
	var p nixlPeer
	if err := json.Unmarshal(peer, &p); err != nil {
		return err
	}
	if p != n.peer {
		blob, err := base64.StdEncoding.DecodeString(p.Metadata)
		if err != nil {
			return err
		}
		if n.agent, err = n.from.Load(ctx, blob); err != nil {
			return err
		}
		n.peer = p
	}
	n.order = orderOf(c)
	if n.near, err = n.from.Memory(ctx, c.near()); err != nil {
		return err
	}
	fill(n.near, seedLocal, 0)
	n.list = make([][]nixl.Access, c.Streams)
	for w := range n.list {
		n.list[w] = make([]nixl.Access, c.Batch)
	}
	return nil
}

func (n *nixlInitiator) move(ctx context.Context, stream, k int, seen *seen) error {
	o, list := n.order, n.list[stream]
	for j := range list {
		list[j] = nixl.Access{Addr: n.peer.Addr + uint64(o.item(stream, k, j))*o.Size, Off: o.local(stream, j), Len: o.Size}
		if seen != nil && o.Op == Read {
			clear(n.near[list[j].Off:][:o.Size])
		}
	}
	if err := n.from.Move(ctx, n.agent, o.Op == Write, list); err != nil || seen == nil {
		return err
	}
	for j := range list {
		if o.Op == Write {
			seen.put(j, uint64(o.item(stream, k, j)))
		} else if err := seen.read(j, n.near[list[j].Off:][:o.Size]); err != nil {
			return err
		}
	}
	return nil
}

// helper is the process that does the work.
func (n *nixlInitiator) helper() int { return n.from.Pid() }

// via is the transport that UCX has chosen for the cell.
func (n *nixlInitiator) via() string { return n.from.Via(n.agent, n.order.Op == Write) }

func (n *nixlInitiator) close() error {
	if n.from != nil {
		n.from.Close()
	}
	n.from = nil
	return nil
}
