package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"

	"meridian/bench/harness"
)

// spawn starts this program again in a role. Its stderr goes to a log in dir.
// With line its output is a conversation.
func (r *runner) spawn(name string, line func([]byte) error, role string, args ...string) (*harness.Process, error) {
	cmd := harness.Again(r.opt.Self, append([]string{role}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := harness.Start(name, cmd, harness.Options{
		Log: harness.LogIn(r.dir, name), Talk: true, Line: line, Term: role == RoleDaemon || role == RoleJudge,
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.procs = append(r.procs, p)
	r.mu.Unlock()
	return p, nil
}

// daemons starts one process with a daemon for each configuration, and waits
// until all of them listen.
func (r *runner) daemons(ctx context.Context, name string, configs ...string) ([]map[string][]string, error) {
	args := []string{}
	ports := make([]string, len(configs))
	for i, c := range configs {
		ports[i] = c + ".ports"
		args = append(args, c, ports[i])
	}
	p, err := r.spawn(name, nil, RoleDaemon, args...)
	if err != nil {
		return nil, err
	}
	r.world = p
	out := make([]map[string][]string, len(configs))
	for i := range configs {
		if out[i], err = p.Ports(ctx, ports[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// engineProc is an engine stand-in and its conversation.
type engineProc struct {
	*harness.Process
	results chan result // closed at the end of its output
	summary chan summary

	once sync.Once
}

func (r *runner) startEngine(role string, s start) (*engineProc, error) {
	e := &engineProc{results: make(chan result, s.Requests+1), summary: make(chan summary, 1)}
	var err error
	e.Process, err = r.spawn(role, func(line []byte) error {
		var res result
		if err := json.Unmarshal(line, &res); err != nil {
			return fmt.Errorf("%.200q: %w", line, err)
		}
		if res.Summary != nil {
			e.summary <- *res.Summary
			return nil
		}
		e.results <- res
		return nil
	}, role)
	if err != nil {
		return nil, err
	}
	go func() {
		<-e.Done()
		close(e.results)
	}()
	return e, e.Put(s)
}

// finish closes the engine's orders and returns what it counted.
func (e *engineProc) finish(ctx context.Context) (summary, error) {
	e.once.Do(e.EndInput)
	select {
	case s := <-e.summary:
		<-e.Done() // it has nothing left to do
		return s, nil
	case <-ctx.Done():
		return summary{}, fmt.Errorf("%s gives no summary: %w%s", e.Name, ctx.Err(), e.Tail())
	case <-e.Done():
		select {
		case s := <-e.summary:
			return s, nil
		default:
			return summary{}, fmt.Errorf("%s ended without a summary: %s", e.Name, e.Ending())
		}
	}
}
