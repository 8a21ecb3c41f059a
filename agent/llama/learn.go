package llama

import (
	"context"
	"errors"
	"fmt"
	"os"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/scheduler"
	"meridian/wire"
)

// meet waits until llama-server has loaded its model, and learns of it what keys,
// states and the scheduler need.
func (n *Node) meet(ctx context.Context, p *process) (*server, error) {
	s := &server{proc: p, api: llamacpp.NewServer(p.socket), slots: newSlots(n.cfg.Slots, waitingPerNode)}
	for {
		err := s.api.Health(ctx)
		if err == nil {
			break
		}
		if !p.alive() {
			return nil, p.err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("llama-server does not become healthy: %w", errors.Join(ctx.Err(), err))
		}
		sleep(ctx, healthEvery, p.gone)
	}
	props, err := s.api.Props(ctx)
	if err != nil {
		return nil, err
	}
	s.context, s.vocabulary = props.Context, props.Vocabulary
	if s.geometry, err = n.probeState(ctx, s.api); err != nil {
		return nil, fmt.Errorf("llama-server's slot state: %w", err)
	}
	if n.modelHash == [32]byte{} { // the file is hashed once: a restarted server maps the same
		if n.modelHash, err = llamacpp.HashModel(n.cfg.Model); err != nil {
			return nil, err
		}
	}
	s.manifest = llamacpp.Manifest(n.cfg.Tenant, llamacpp.Model{Name: n.cfg.Name, Hash: n.modelHash, Build: n.cfg.build(props.Build)}, s.geometry, n.cfg.BlockTokens)
	if err := s.manifest.Check(); err != nil {
		return nil, err
	}
	if err := n.learnMarks(ctx, s); err != nil {
		return nil, err
	}
	if s.engine, err = n.cfg.Engine(ctx, client.Options{}); err != nil {
		return nil, fmt.Errorf("the daemon's engine socket: %w", err)
	}
	if s.ns, err = s.engine.Open(ctx, s.manifest); err != nil {
		_ = s.engine.Close()
		return nil, fmt.Errorf("the daemon does not take the manifest: %w", err)
	}
	return s, nil
}

// probeState lets the server save a state of one token, and reads from it how its
// states are laid out.
func (n *Node) probeState(ctx context.Context, api *llamacpp.Server) (llamacpp.Geometry, error) {
	j := &job{n: n, slot: &slot{}}
	tokens, err := api.Tokenize(ctx, "a", true, true)
	if err != nil {
		return llamacpp.Geometry{}, err
	}
	if _, err := api.Compute(ctx, llamacpp.Completion{Prompt: tokens}); err != nil {
		return llamacpp.Geometry{}, err
	}
	if _, err := api.SaveSlot(ctx, 0, j.file()); err != nil {
		return llamacpp.Geometry{}, err
	}
	defer func() { _ = os.Remove(j.path()) }()
	f, st, err := j.openState()
	if err != nil {
		return llamacpp.Geometry{}, err
	}
	defer func() { _ = f.Close() }()
	return st.Geometry(), nil
}

// learnMarks finds the token ids of the thinking markers, and tells the daemon.
func (n *Node) learnMarks(ctx context.Context, s *server) (err error) {
	t := &n.cfg.Thinking
	s.marks = scheduler.Model{Name: n.cfg.Name, Start: t.StartIDs, End: t.EndIDs, KeepsThinking: t.Keeps}
	for _, m := range []struct {
		text string
		ids  *[]int32
	}{{t.Start, &s.marks.Start}, {t.End, &s.marks.End}} {
		if len(*m.ids) > 0 || m.text == "" {
			continue
		}
		if *m.ids, err = s.api.Tokenize(ctx, m.text, false, true); err != nil {
			return err
		}
	}
	if t.Open {
		s.open = s.marks.Start
	}
	models, err := scheduler.NewModels([]scheduler.Model{s.marks})
	if err != nil {
		return err
	}
	if n.cfg.Learn != nil {
		if err := n.cfg.Learn(s.marks); err != nil {
			return err
		}
	}
	var rules *scheduler.Rules
	if t.Probe > 0 {
		if rules, err = scheduler.NewRules(t.Signals); err != nil {
			return err
		}
	}
	s.phases = newPhases(models, t.Max, rules)
	return nil
}

// agrees says why a partner's prompt cannot be prefilled here.
func (s *server) agrees(name string, q PrefillRequest) error {
	if q.Namespace != s.manifest.Namespace().String() {
		text := fmt.Sprintf("the asker's blocks are of namespace %q, this node's of %s", q.Namespace, s.manifest.Namespace())
		if theirs, err := wire.ParseManifest([]byte(q.Manifest)); err == nil && theirs.Namespace().String() == q.Namespace {
			field, mine, other := s.manifest.Diff(theirs)
			text = fmt.Sprintf("the nodes differ in %s: %q here, %q at the asker", field, mine, other)
		}
		return &conflictError{text}
	}
	if q.Model != name {
		return &conflictError{fmt.Sprintf("this node serves model %q, not %q", name, q.Model)}
	}
	if len(q.Tokens) == 0 || len(q.Tokens) >= s.context {
		return invalid("tokens", fmt.Sprintf("%d tokens; it must be at least 1 and fewer than the context of %d", len(q.Tokens), s.context))
	}
	return s.known("tokens", q.Tokens)
}

// conflictError says that two nodes of a split do not belong together.
type conflictError struct{ text string }

func (e *conflictError) Error() string { return e.text }
