package engine_test

import (
	"testing"

	"meridian/agent/client"
	"meridian/wire/link"
)

// grouped is what a session of a new engine says.
func grouped() *client.Group { return &client.Group{Agent: [16]byte{1}, Inc: 1} }

// advised collects advice until a request has ended.
func advised(t *testing.T, n *node) (e *client.Engine, ends func(req uint32) []client.Phase) {
	t.Helper()
	got := make(chan client.Phase, 100)
	e = n.dial(t, client.Options{Group: grouped(), OnPhase: func(p client.Phase) { got <- p }})
	return e, func(req uint32) (all []client.Phase) {
		t.Helper()
		if err := e.Finish(ctx, req, false); err != nil {
			t.Fatal(err)
		}
		for p := range got {
			if all = append(all, p); p.Kind == client.Completed {
				return all
			}
		}
		return nil
	}
}

const thinkBegins, thinkEnds = 151667, 151668 // of qwen3

// A daemon that is told what was decoded already stands where it would have stood.
func TestAResumedRequestGoesOnWhereItStood(t *testing.T) {
	prompt, decoded := []int32{1, 2, 3}, []int32{thinkBegins, 9, 9}
	n := startNode(t, nil)
	e, ends := advised(t, n)
	for name, begin := range map[string]func() (uint32, error){
		"from the start": func() (uint32, error) {
			req, err := e.Begin(ctx, client.Begin{Model: "qwen3", Prompt: prompt})
			if err != nil {
				return 0, err
			}
			return req, e.Tokens([]uint32{req}, []uint8{uint8(len(decoded))}, decoded)
		},
		"resumed": func() (uint32, error) {
			return e.Resume(ctx, client.Resume{Begin: client.Begin{Model: "qwen3", Prompt: prompt}, Decoded: decoded})
		},
		"resumed, and nobody waits": func() (uint32, error) {
			req, ended, err := e.ResumeAsync(client.Resume{Begin: client.Begin{Model: "qwen3", Prompt: prompt}, Decoded: decoded})
			if err != nil {
				return 0, err
			}
			return req, <-ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Tokens([]uint32{req}, []uint8{3}, []int32{9, thinkEnds, 8}); err != nil {
				t.Fatal(err)
			}
			got := ends(req)
			want := []client.Phase{{Kind: client.EnterThink, Pos: 4}, {Kind: client.ExitThink, Pos: 8, Used: 4}, {Kind: client.Completed, Pos: 9, Used: 4}}
			if len(got) != len(want) {
				t.Fatalf("%+v, want %+v", got, want)
			}
			for i, p := range got {
				if p.Req != req || p.Kind != want[i].Kind || p.Pos != want[i].Pos || p.Used != want[i].Used {
					t.Errorf("advice %d: %+v, want %+v", i, p, want[i])
				}
			}
		})
	}
}

// A prompt that is too long is cut, and its positions stay what they are.
func TestALongPromptKeepsItsPositions(t *testing.T) {
	n := startNode(t, nil)
	e, ends := advised(t, n)
	long := make([]int32, link.MaxPrompt+1000)
	long[len(long)-1] = thinkBegins
	req, err := e.Begin(ctx, client.Begin{Model: "qwen3", Prompt: long})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Tokens([]uint32{req}, []uint8{1}, []int32{9}); err != nil {
		t.Fatal(err)
	}
	got := ends(req)
	if at := uint32(len(long)); len(got) != 2 || got[0].Kind != client.EnterThink || got[0].Pos != at || got[1].Pos != at+1 {
		t.Errorf("%+v, want thinking from %d on", got, at)
	}
}
