package capi

import (
	"fmt"
	"unsafe"
)

// Notif is a notification. From is the name that its sender says it has.
type Notif struct {
	From string
	Text []byte
}

// Mailbox takes the notifications of an agent.
type Mailbox struct {
	agent *Agent
	h     uintptr
}

// NewMailbox makes one. It is released before its agent is closed.
func (a *Agent) NewMailbox() (*Mailbox, error) {
	m := &Mailbox{agent: a}
	if err := a.lib.do(createNotifMap, uintptr(unsafe.Pointer(&m.h))); err != nil {
		return nil, err
	}
	return m, nil
}

// Release frees it.
func (m *Mailbox) Release() { m.agent.lib.call(destroyNotifMap, m.h) }

// Take calls f for each notification that has come since. Text is a copy.
func (m *Mailbox) Take(f func(Notif)) error {
	l := m.agent.lib
	if err := l.do(getNotifs, m.agent.h, m.h, 0); err != nil {
		return err
	}
	var agents uintptr
	if err := l.do(notifMapSize, m.h, uintptr(unsafe.Pointer(&agents))); err != nil || agents == 0 {
		return err
	}
	defer l.call(notifMapClear, m.h) // get_notifs appends
	for i := range agents {          // an index beyond is undefined behaviour
		if err := m.of(i, f); err != nil {
			return err
		}
	}
	return nil
}

// of takes those of the agent with a number.
func (m *Mailbox) of(i uintptr, f func(Notif)) error {
	l := m.agent.lib
	var from *byte
	var n uintptr
	if err := l.do(notifMapGetAgentAt, m.h, i, uintptr(unsafe.Pointer(&from))); err != nil {
		return err
	}
	if err := l.do(notifMapGetNotifsSize, m.h, uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(&n))); err != nil {
		return err
	}
	for k := range n {
		var b *byte
		var size uintptr
		if err := l.do(notifMapGetNotif, m.h, uintptr(unsafe.Pointer(from)), k, uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&size))); err != nil {
			return err
		}
		f(Notif{From: text(from), Text: append([]byte(nil), unsafe.Slice(b, size)...)})
	}
	return nil
}

// Notify sends a notification to a peer that was loaded. Success does not mean that it
// arrives.
func (a *Agent) Notify(b *Backend, peer string, msg []byte) error {
	name, err := cstring(peer)
	if err != nil {
		return err
	}
	if len(msg) == 0 {
		return fmt.Errorf("nixl: an empty notification to %q", peer)
	}
	return a.lib.do(genNotif, a.h, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&msg[0])), uintptr(len(msg)), b.args)
}
