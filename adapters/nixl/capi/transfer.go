package capi

import (
	"unsafe"
)

// Op is what a transfer does.
type Op uintptr

// The operations.
const (
	Read  Op = 0 // from the peer into our memory
	Write Op = 1
)

// Span is a range of host memory.
type Span struct {
	Addr, Len uint64
}

// Request is a transfer of one batch.
type Request struct {
	agent *Agent
	args  uintptr
	h     uintptr
}

func (a *Agent) spans(list []Span) (h uintptr, err error) {
	if err := a.lib.do(createXferDlist, dram, uintptr(unsafe.Pointer(&h))); err != nil {
		return 0, err
	}
	for _, s := range list {
		if err := a.lib.do(xferDlistAddDesc, h, uintptr(s.Addr), uintptr(s.Len), 0); err != nil {
			a.lib.call(destroyXferDlist, h)
			return 0, err
		}
	}
	return h, nil
}

// NewRequest prepares a transfer between pairs of ranges of equal length: local in
// registered memory of this agent, remote in that of the peer. The peer gets notif,
// where there is one, once all bytes are in place and Poll has seen that.
func (a *Agent) NewRequest(b *Backend, op Op, local, remote []Span, peer string, notif []byte) (*Request, error) {
	name, err := cstring(peer)
	if err != nil {
		return nil, err
	}
	here, err := a.spans(local)
	if err != nil {
		return nil, err
	}
	defer a.lib.call(destroyXferDlist, here)
	there, err := a.spans(remote)
	if err != nil {
		return nil, err
	}
	defer a.lib.call(destroyXferDlist, there)
	r := &Request{agent: a}
	if r.args, err = b.options(notif); err != nil {
		return nil, err
	}
	if err := a.lib.do(createXferReq, a.h, uintptr(op), here, there, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&r.h)), r.args); err != nil {
		a.lib.call(destroyOptArgs, r.args)
		return nil, err
	}
	return r, nil
}

// Post begins the transfer.
func (r *Request) Post() (done bool, err error) {
	st := r.agent.lib.call(postXferReq, r.agent.h, r.h, 0) // with other options the notification would be lost
	return st == StatusSuccess, failed(postXferReq, st)
}

// Poll says whether the transfer has ended, and makes progress with it.
func (r *Request) Poll() (done bool, err error) {
	st := r.agent.lib.call(getXferStatus, r.agent.h, r.h)
	return st == StatusSuccess, failed(getXferStatus, st)
}

// Release frees the request. One under way is told to stop, and may go on for a while:
// its memory must not be used again, nor deregistered, before the process has ended.
func (r *Request) Release() error {
	err := r.agent.lib.do(releaseXferReq, r.agent.h, r.h) // destroy needs it before
	if err == nil {
		err = r.agent.lib.do(destroyXferReq, r.h)
	}
	r.agent.lib.call(destroyOptArgs, r.args)
	return err
}
