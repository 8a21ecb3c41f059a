package mooncake

import "context"

type told struct{ e *entry }

func toldOf(e *entry) told { return told{e} }

func (n *Node) tell(ctx context.Context, p *peer, list []told) {}

type ServeConfig struct{}

type server struct{}

func (s *server) close() {}

func (n *Node) serve(ctx context.Context, c ServeConfig) (*server, error) { return &server{}, nil }
