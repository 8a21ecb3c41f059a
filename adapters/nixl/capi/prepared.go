package capi

import (
	"errors"
	"unsafe"
)

// Prepared is a list of ranges that the library has looked up: of this agent's memory, or
// of a peer's. It outlives the requests that are made of it.
type Prepared struct {
	agent *Agent
	h     uintptr
	n     int
}

// Prepare looks ranges up once, for any number of requests. "" is this agent itself.
func (a *Agent) Prepare(b *Backend, peer string, list []Span) (*Prepared, error) {
	name, err := cstring(peer)
	if err != nil {
		return nil, err
	}
	spans, err := a.spans(list)
	if err != nil {
		return nil, err
	}
	defer a.lib.call(destroyXferDlist, spans)
	p := &Prepared{agent: a, n: len(list)}
	if err := a.lib.do(prepXferDlist, a.h, uintptr(unsafe.Pointer(name)), spans, uintptr(unsafe.Pointer(&p.h)), b.args); err != nil {
		return nil, err
	}
	return p, nil
}

// Release frees it. Its requests are released before.
func (p *Prepared) Release() error {
	return p.agent.lib.do(releaseXferDlistHandle, p.agent.h, p.h)
}

// NewPreparedRequest prepares a transfer between all ranges of two lists, pair by pair. It
// can be posted again whenever it has ended.
func (a *Agent) NewPreparedRequest(b *Backend, op Op, local, remote *Prepared) (*Request, error) {
	if local.n != remote.n || local.n == 0 {
		return nil, errors.New("nixl: the prepared lists are not of one length, or empty")
	}
	all := make([]int32, local.n)
	for i := range all {
		all[i] = int32(i)
	}
	r := &Request{agent: a}
	var err error
	if r.args, err = b.options(nil); err != nil {
		return nil, err
	}
	err = a.lib.do(makeXferReq, a.h, uintptr(op), local.h, uintptr(unsafe.Pointer(&all[0])), uintptr(len(all)),
		remote.h, uintptr(unsafe.Pointer(&all[0])), uintptr(len(all)), uintptr(unsafe.Pointer(&r.h)), r.args)
	if err != nil {
		a.lib.call(destroyOptArgs, r.args)
		return nil, err
	}
	return r, nil
}
