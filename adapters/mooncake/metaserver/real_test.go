package metaserver

import (
	"testing"
	"time"

	"meridian/adapters/mooncake/internal/wheel"
	"meridian/adapters/mooncake/metadata"
)

func TestTwoRealEnginesFindEachOtherAndMoveBytes(t *testing.T) {
	s := newServer(t)
	const n = 1 << 20
	a, b := wheel.StartAt(t, n, "node-a", s.url()), wheel.StartAt(t, n, "node-b:12345", s.url())
	b.Fill(0, n, 1)
	if !a.Move(wheel.Move{Peer: b.Name, Here: []int{0}, There: []uint64{b.Addr}, Sizes: []int{n}}) || a.Digest(0, n) != b.Digest(0, n) {
		t.Error("a read")
	}
	b.Fill(0, 4096, 2)
	if !b.Move(wheel.Move{Peer: a.Name, Write: true, Here: []int{0}, There: []uint64{a.Addr + 8192}, Sizes: []int{4096}}) || a.Digest(8192, 4096) != b.Digest(0, 4096) {
		t.Error("a write")
	}
	if st := s.Stats(); st.Nodes != 2 {
		t.Errorf("%d nodes, want 2", st.Nodes)
	}
	a.End()
	if st := s.Stats(); st.Nodes != 1 || st.Ended["removed"] != 1 {
		t.Errorf("after one engine said goodbye: %+v", st)
	}
}

func TestTheEntryOfARealEngineLivesAsLongAsTheEngine(t *testing.T) {
	s := newServer(t)
	e := wheel.StartAt(t, 4096, "node", s.url())
	for range 60 * 24 { // a day in which it says nothing, asked once a minute
		s.clock.pass(time.Minute)
		s.round(t.Context())
	}
	if st := s.Stats(); st.Nodes != 1 || st.Silent != 0 || st.Ended["expired"] != 0 {
		t.Fatalf("after a day of silence: %+v", st)
	}
	e.Kill()
	rounds := 0
	for ; s.Stats().Nodes > 0; rounds++ {
		if rounds == 100 {
			t.Fatalf("a dead engine has its entry still: %+v", s.Stats())
		}
		s.clock.pass(AskEvery)
		s.round(t.Context())
	}
	if rounds != maxRefused {
		t.Errorf("it ended after %d questions, want %d", rounds, maxRefused)
	}
}

func TestARealEngineThatComesBackGetsItsNameAndASecondOneDoesNot(t *testing.T) {
	s := newServer(t)
	const n = 4096
	first := wheel.StartAt(t, n, "node", s.url())
	if wheel.Joins(t, "node", s.url()) {
		t.Error("a second engine has the name of one that answers")
	}
	reader := wheel.StartAt(t, n, "reader", s.url())
	first.Kill()
	again := wheel.StartAt(t, n, "node", s.url())
	again.Fill(0, n, 3)
	if !reader.Move(wheel.Move{Peer: "node", Here: []int{0}, There: []uint64{again.Addr}, Sizes: []int{n}}) || reader.Digest(0, n) != again.Digest(0, n) {
		t.Error("the engine that came back cannot be read")
	}
	key := metadata.Key{Kind: metadata.KindEndpoint, Name: "node"}.String()
	if status, text := s.do("DELETE", key, ""); status != 200 {
		t.Errorf("its own host deletes its entry: %d %s", status, text)
	}
}
