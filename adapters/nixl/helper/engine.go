package helper

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"meridian/adapters/nixl/capi"
	"meridian/adapters/nixl/control"
)

// engine is what the server needs of the library. A test has another.
type engine interface {
	// Register makes memory known: staging to our transfers, other memory to peers.
	Register(b []byte, staging bool) (addr uint64, err error)
	Metadata() ([]byte, error)
	Load(blob []byte) (peer string, err error)
	Forget(peer string) error
	Notify(peer string, text []byte) error
	Take(f func(capi.Notif)) error
	// Begin begins a transfer. quiet says of an error that no memory is touched.
	Begin(op capi.Op, local, remote []capi.Span, peer string, notif []byte) (t transfer, quiet bool, err error)
}

// transfer is one under way.
type transfer interface {
	Poll() (done bool, err error)
	Release() error
}

// nixl is the library's engine: two agents of one name. Peers know the target, by its
// metadata. The initiator knows peers, moves and notifies.
type nixl struct {
	target, initiator side
	prepares          bool // the library has prepared lists
	kept              kept
}

// side is an agent, its backend, and what it is told.
type side struct {
	agent   *capi.Agent
	backend *capi.Backend
	box     *capi.Mailbox
}

// UserHome is the variable with the home of the daemon's user. HOME is another folder,
// so that UCX and NIXL find no configuration of their own there.
const UserHome = "MERIDIAN_USER_HOME"

func environment(name string) string {
	if name == "HOME" {
		name = UserHome
	}
	return os.Getenv(name)
}

// open is what Start asks for. stays says of an error that it will come again.
func open(m *control.Start) (e engine, answer *control.Started, stays bool, err error) {
	if err := capi.LineBuffered(); err != nil {
		return nil, nil, true, err
	}
	lib, err := capi.Load(m.Library, environment)
	if err != nil {
		return nil, nil, true, err
	}
	if missing := lib.Missing(); len(missing) > 0 {
		return nil, nil, true, fmt.Errorf("%s lacks %s: it is of a NIXL that this build does not know", lib.Path(), strings.Join(missing, ", "))
	}
	n := &nixl{prepares: lib.Prepares()}
	// The initiator comes first: no other thread must tell UCX's way to this process.
	if n.initiator.agent, err = lib.NewInitiator(m.Agent); err != nil {
		return nil, nil, false, err
	}
	if n.target.agent, err = lib.NewTarget(m.Agent); err != nil {
		return nil, nil, false, err
	}
	plugins, err := n.target.agent.Plugins()
	if err != nil {
		return nil, nil, false, err
	}
	for _, s := range []*side{&n.initiator, &n.target} {
		if err := s.open(m); err != nil {
			return nil, nil, false, fmt.Errorf("%w (plugins of %s: %s)", err, lib.Path(), strings.Join(plugins, ", "))
		}
	}
	return n, &control.Started{Req: m.Req, Library: lib.Path(), Plugins: plugins[:min(len(plugins), control.MaxList)]}, false, nil
}

// open gives an agent its backend.
func (s *side) open(m *control.Start) (err error) {
	params := map[string]string{}
	for _, p := range m.Params {
		params[p.Key] = p.Value
	}
	if s.backend, err = s.agent.NewBackend(m.Backend, params); err != nil {
		return err
	}
	s.box, err = s.agent.NewMailbox()
	return err
}

func (n *nixl) Register(b []byte, staging bool) (uint64, error) {
	s := &n.target
	if staging {
		s = &n.initiator
	}
	addr := uintptr(unsafe.Pointer(&b[0]))
	_, err := s.agent.Register(s.backend, addr, uint64(len(b)))
	return uint64(addr), err
}

func (n *nixl) Metadata() ([]byte, error)        { return n.target.agent.Metadata() }
func (n *nixl) Load(blob []byte) (string, error) { return n.initiator.agent.Load(blob) }

func (n *nixl) Notify(peer string, b []byte) error {
	return n.initiator.agent.Notify(n.initiator.backend, peer, b)
}

// Take asks both agents: it is the initiator's only progress while no transfer is polled.
func (n *nixl) Take(f func(capi.Notif)) error {
	return errors.Join(n.initiator.box.Take(f), n.target.box.Take(f))
}

func (n *nixl) Forget(peer string) error {
	n.kept.forget(peer)
	return n.initiator.agent.Forget(peer)
}

// prepare has the library look ranges up, for as many transfers as there will be.
func (n *nixl) prepare(op capi.Op, local, remote []capi.Span, peer string) (request, []releaser, error) {
	here, err := n.initiator.agent.Prepare(n.initiator.backend, "", local)
	if err != nil {
		return nil, nil, err
	}
	there, err := n.initiator.agent.Prepare(n.initiator.backend, peer, remote)
	if err != nil {
		err = unregistered(err)
		return nil, nil, errors.Join(err, here.Release())
	}
	r, err := n.initiator.agent.NewPreparedRequest(n.initiator.backend, op, here, there)
	if err != nil {
		return nil, nil, errors.Join(err, here.Release(), there.Release())
	}
	return r, []releaser{here, there}, nil
}

// unregistered says what the library means where it does not find a range of a peer.
func unregistered(err error) error {
	if e := (*capi.Error)(nil); errors.As(err, &e) && e.Status == capi.StatusNotFound {
		return fmt.Errorf("the peer's metadata have no memory there: its agent must register it before it lends it: %w", err)
	}
	return err
}

func (n *nixl) Begin(op capi.Op, local, remote []capi.Span, peer string, notif []byte) (transfer, bool, error) {
	if n.prepares && len(notif) == 0 {
		return n.kept.begin(keyOf(op, peer, local, remote), peer, len(local), func() (request, []releaser, error) { return n.prepare(op, local, remote, peer) })
	}
	r, err := n.initiator.agent.NewRequest(n.initiator.backend, op, local, remote, peer, notif)
	if err != nil {
		return nil, true, unregistered(err)
	}
	if _, err := r.Post(); err != nil { // Poll tells whether it is done already
		_ = r.Release() // the error is Post's
		return nil, false, err
	}
	return r, false, nil
}
