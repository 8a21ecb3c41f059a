package capi

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"
)

// Times of an agent's own threads, in microseconds. With 0 each takes a core for itself.
const (
	progressDelay = 1000
	listenDelay   = 100_000
)

// agentConfig is nixl_capi_agent_config_t: 40 bytes on x86-64 and arm64.
type agentConfig struct {
	progThread   bool
	listenThread bool
	listenPort   int32
	sync         int32
	workers      uint32
	pthrDelay    uint64
	lthrDelay    uint64
	telemetry    bool
}

// The library's own lock: none, since an agent is for one goroutine; or one for readers and
// writers, beside the agent's own threads.
const (
	syncNone = 0
	syncRW   = 2
)

// Agent is one agent of the library.
type Agent struct {
	lib *Library
	h   uintptr
}

// NewTarget makes an agent with a progress thread, without which it would not answer what
// peers do in software, such as reads over TCP. It has no listener.
func (l *Library) NewTarget(name string) (*Agent, error) {
	return l.newAgent(name, &agentConfig{progThread: true, sync: syncRW, pthrDelay: progressDelay, lthrDelay: listenDelay})
}

// NewInitiator makes an agent that has progress only while its caller polls a transfer or
// takes notifications: a progress thread would be woken by each part that arrives, and
// take part in the work of the thread that polls. It has no listener.
func (l *Library) NewInitiator(name string) (*Agent, error) {
	return l.newAgent(name, &agentConfig{sync: syncNone, pthrDelay: progressDelay, lthrDelay: listenDelay})
}

func (l *Library) newAgent(name string, c *agentConfig) (*Agent, error) {
	n, err := cstring(name)
	if err != nil {
		return nil, err
	}
	a := &Agent{lib: l}
	if err := l.do(createConfiguredAgent, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(c)), uintptr(unsafe.Pointer(&a.h))); err != nil {
		return nil, err
	}
	return a, nil
}

// Close ends the agent, and the engines of its backends. Requests must be released and
// memory deregistered before.
func (a *Agent) Close() error { return a.lib.do(destroyAgent, a.h) }

// Plugins are the names of the backends whose files are there, whether they load or not.
func (a *Agent) Plugins() ([]string, error) {
	var list uintptr
	if err := a.lib.do(getAvailablePlugins, a.h, uintptr(unsafe.Pointer(&list))); err != nil {
		return nil, err
	}
	defer a.lib.call(destroyStringList, list)
	var n uintptr
	if err := a.lib.do(stringListSize, list, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	var out []string
	for i := range n {
		var s *byte
		if err := a.lib.do(stringListGet, list, i, uintptr(unsafe.Pointer(&s))); err != nil {
			return nil, err
		}
		out = append(out, text(s))
	}
	slices.Sort(out)
	return out, nil
}

// Backend is a backend of an agent, and the optional arguments that name it.
type Backend struct {
	lib     *Library
	h, args uintptr
}

// NewBackend makes a backend, with the parameters of its plugin and, over them, params.
func (a *Agent) NewBackend(plugin string, params map[string]string) (*Backend, error) {
	name, err := cstring(plugin)
	if err != nil {
		return nil, err
	}
	var mems, p uintptr
	if err := a.lib.do(getPluginParams, a.h, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&mems)), uintptr(unsafe.Pointer(&p))); err != nil {
		return nil, fmt.Errorf("nixl: plugin %s cannot be loaded: %w", plugin, err)
	}
	defer a.lib.call(destroyMemList, mems)
	defer a.lib.call(destroyParams, p)
	for _, key := range slices.Sorted(maps.Keys(params)) {
		k, errKey := cstring(key)
		v, errValue := cstring(params[key])
		if errKey != nil || errValue != nil {
			return nil, fmt.Errorf("nixl: parameter %q of plugin %s has a NUL in it", key, plugin)
		}
		if err := a.lib.do(paramsAdd, p, uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(v))); err != nil {
			return nil, err
		}
	}
	b := &Backend{lib: a.lib}
	if err := a.lib.do(createBackend, a.h, uintptr(unsafe.Pointer(name)), p, uintptr(unsafe.Pointer(&b.h))); err != nil {
		return nil, fmt.Errorf("nixl: backend %s: %w", plugin, err)
	}
	if b.args, err = b.options(nil); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// options are optional arguments that name the backend, and a notification if there is
// one.
func (b *Backend) options(notif []byte) (h uintptr, err error) {
	if err := b.lib.do(createOptArgs, uintptr(unsafe.Pointer(&h))); err != nil {
		return 0, err
	}
	if err = b.lib.do(optArgsAddBackend, h, b.h); err == nil && len(notif) > 0 {
		err = b.lib.do(optArgsSetNotifMsg, h, uintptr(unsafe.Pointer(&notif[0])), uintptr(len(notif)))
		if err == nil {
			err = b.lib.do(optArgsSetHasNotif, h, 1)
		}
	}
	if err != nil {
		b.lib.call(destroyOptArgs, h)
		return 0, err
	}
	return h, nil
}

// Release frees what names the backend. Its engine lives until the agent ends.
func (b *Backend) Release() {
	if b.args != 0 {
		b.lib.call(destroyOptArgs, b.args)
	}
	b.lib.call(destroyBackend, b.h)
}

// Region is registered memory.
type Region struct {
	agent *Agent
	args  uintptr
	list  uintptr
}

// Register makes n bytes of host memory at addr known to a backend. They must stay
// where they are until Deregister.
func (a *Agent) Register(b *Backend, addr uintptr, n uint64) (*Region, error) {
	r := &Region{agent: a, args: b.args}
	if err := a.lib.do(createRegDlist, dram, uintptr(unsafe.Pointer(&r.list))); err != nil {
		return nil, err
	}
	err := a.lib.do(regDlistAddDesc, r.list, addr, uintptr(n), 0, 0, 0)
	if err == nil {
		err = a.lib.do(registerMem, a.h, r.list, r.args)
	}
	if err != nil {
		a.lib.call(destroyRegDlist, r.list)
		return nil, err
	}
	return r, nil
}

// dram is host memory; its device is 0.
const dram = 0

// Deregister makes the memory unknown. No transfer of it may be under way.
func (r *Region) Deregister() error {
	err := r.agent.lib.do(deregisterMem, r.agent.h, r.list, r.args)
	r.agent.lib.call(destroyRegDlist, r.list)
	return err
}

// Metadata is what another agent loads to reach this one, with the memory that is
// registered now. Who has it can read and write that memory.
func (a *Agent) Metadata() ([]byte, error) {
	var data *byte
	var n uintptr
	if err := a.lib.do(getLocalMD, a.h, uintptr(unsafe.Pointer(&data)), uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	defer a.lib.release(data)
	return append([]byte(nil), unsafe.Slice(data, n)...), nil
}

// Load makes another agent known by its metadata, and returns its name.
func (a *Agent) Load(metadata []byte) (name string, err error) {
	if len(metadata) == 0 {
		return "", &Error{Call: loadRemoteMD.String(), Status: StatusInvalid}
	}
	var n *byte
	if err := a.lib.do(loadRemoteMD, a.h, uintptr(unsafe.Pointer(&metadata[0])), uintptr(len(metadata)), uintptr(unsafe.Pointer(&n))); err != nil {
		return "", err
	}
	defer a.lib.release(n)
	return text(n), nil
}

// Forget makes another agent unknown.
func (a *Agent) Forget(name string) error {
	n, err := cstring(name)
	if err != nil {
		return err
	}
	return a.lib.do(invalidateRemoteMD, a.h, uintptr(unsafe.Pointer(n)))
}
