package agent

import (
	"errors"
	"testing"

	"meridian/wire"
)

// A script that adds routes for ever leaves the table as small as it may be.
func TestRoutesThatAreAddedHaveABound(t *testing.T) {
	n := startNode(t, shortDir(t), "alone", "[fabric.near]\nkind = \"nixl-synth\"\n")
	before := len(n.routes.Rules())
	for range maxAdded {
		if err := n.addRoute(t.Context(), map[string]any{"fabric": "near"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.addRoute(t.Context(), map[string]any{"fabric": "near"}); !errors.Is(err, wire.CodeTooMany) {
		t.Error("one more:", err)
	}
	if got := len(n.routes.Rules()) - before; got != maxAdded {
		t.Errorf("%d routes were added, want %d", got, maxAdded)
	}
	if err := n.replaceRoutes(n.now()); err != nil {
		t.Fatal(err)
	}
	if err := n.addRoute(t.Context(), map[string]any{"fabric": "near"}); err != nil || len(n.routes.Rules()) != before+1 {
		t.Error("after a reload:", err)
	}
}
