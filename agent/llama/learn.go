package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"meridian/adapters/llamacpp"
	"meridian/agent/client"
	"meridian/agent/llama/identity"
	"meridian/internal/child"
	"meridian/wire"
)

// Bounds of llama-server's answers while it starts.
const (
	healthEvery   = 50 * time.Millisecond
	healthTimeout = 2 * time.Second
)

// meet waits until llama-server has loaded its model, and learns of it what keys,
// states and the scheduler need.
func (n *Node) meet(ctx context.Context, p *process, files *identity.Files) (*server, error) {
	s := &server{proc: p, api: llamacpp.NewServer(p.socket), slots: newSlots(n.cfg.Slots), content: files, changed: make(chan error, 1)}
	turns, err := newTurns(s.slots, &n.cfg, n.work.paceNow, &n.stats.turns)
	if err != nil { // Start has checked it
		return nil, err
	}
	s.turns = turns
	if err := n.awaitHealth(ctx, p, s.api); err != nil {
		return nil, err
	}
	n.wait("llama-server (pid %d) has loaded the model and has not computed its first token", p.Pid())
	props, err := s.api.Props(ctx)
	if err != nil {
		return nil, err
	}
	s.context, s.vocabulary = props.Context, props.Vocabulary
	if s.geometry, err = n.probeState(ctx, s.api); err != nil {
		return nil, unreadState(err)
	}
	n.wait("the model's files are being hashed")
	id, err := n.identify(ctx, s, props)
	if err != nil {
		return nil, err
	}
	s.manifest = llamacpp.Manifest(n.cfg.Tenant, llamacpp.Model{Name: n.cfg.Name, Hash: id.Model, Build: id.Build}, s.geometry, n.cfg.BlockTokens)
	if err := s.manifest.Check(); err != nil {
		return nil, child.Permanent("", err)
	}
	if err := n.learnMarks(ctx, s); err != nil {
		return nil, err
	}
	s.learnTemplate(ctx, props.Template)
	n.wait("the daemon's engine socket has not answered")
	if s.engine, err = n.cfg.Engine(ctx, client.Options{}); err != nil {
		return nil, &child.Ours{Err: fmt.Errorf("the daemon's engine socket: %w", err)}
	}
	if s.ns, err = s.engine.Open(ctx, s.manifest); err != nil {
		_ = s.engine.Close()
		return nil, &child.Ours{Err: fmt.Errorf("the daemon does not take the manifest: %w", err)}
	}
	return s, nil
}

// awaitHealth waits until the model is loaded. A server that is not there yet, one
// that says that it loads, and one that takes a connection and says nothing are told
// apart for a reader of the log.
func (n *Node) awaitHealth(ctx context.Context, p *process, api *llamacpp.Server) error {
	loads := fmt.Sprintf("llama-server (pid %d) has not answered: it loads %s, or hangs", p.Pid(), n.cfg.Model)
	n.wait("%s", loads)
	for said := loads; ; {
		try, cancel := context.WithTimeout(ctx, healthTimeout)
		err := api.Health(try)
		cancel()
		if err == nil {
			return nil
		}
		if !p.Alive() {
			return p.Death
		}
		if ctx.Err() != nil {
			return fmt.Errorf("llama-server did not become healthy within %v: %w", loadTimeout, errors.Join(ctx.Err(), err))
		}
		now := loads
		var status *llamacpp.Error
		switch {
		case errors.As(err, &status):
			now = fmt.Sprintf("llama-server (pid %d) loads %s: %s", p.Pid(), n.cfg.Model, status.Message)
		case errors.Is(err, context.DeadlineExceeded):
			now = fmt.Sprintf("llama-server (pid %d) takes connections and does not answer them", p.Pid())
		}
		if now != said {
			n.wait("%s", now)
			said = now
		}
		sleep(ctx, healthEvery, p.Gone)
	}
}

// unreadState: a server whose states cannot be read writes the next one the same.
func unreadState(err error) error {
	err = fmt.Errorf("llama-server's slot state: %w", err)
	var state *llamacpp.StateError
	if errors.As(err, &state) && state.Err == nil { // the file was read, and is not understood
		return child.Permanent("use a llama-server whose states this build reads, such as the one that mrdn llama up --fetch installs", err)
	}
	return err
}

// identify says by content what computes the blocks of this server.
func (n *Node) identify(ctx context.Context, s *server, props llamacpp.Props) (identity.Identity, error) {
	adapters, err := s.api.Adapters(ctx)
	if err != nil {
		return identity.Identity{}, err
	}
	said := identity.Server{Build: props.Build, Model: props.Model, Context: props.Context}
	for _, a := range adapters {
		said.Adapters = append(said.Adapters, identity.Adapter{Path: a.Path, Scale: a.Scale})
	}
	id, err := s.content.Of(ctx, &n.sums, said)
	if err == nil {
		err = s.content.Changed()
	}
	if err != nil {
		return id, fmt.Errorf("what llama-server computes with: %w", err)
	}
	if len(id.Settings) > 0 {
		n.log.Info("settings that may change KV are part of the keys", "settings", id.Settings)
	}
	return id, nil
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
