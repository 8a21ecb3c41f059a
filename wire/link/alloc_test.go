package link

import (
	"testing"

	"meridian/wire"
)

// hot is a message of the data path, written and read without memory.
type hot struct {
	name string
	run  func()
}

// hotPath gives write-then-read of each hot message, in memory that is reused.
func hotPath() []hot {
	wants, places, haves, puts := make([]Want, 16), make([]Place, 16), make([]Have, 16), make([]PutItem, 16)
	codes := make([]wire.Code, 16)
	tokens := Tokens{Req: make([]uint32, 64), N: make([]uint8, 64), Tok: make([]int32, 64)}
	for i := range tokens.N {
		tokens.N[i] = 1
	}
	buf := make([]byte, 0, 64<<10)
	var (
		acquire  Acquire
		acquired Acquired
		put      Put
		end      End
		table    Table
		pull     Pull
		has      Has
		tok      Tokens
		release  Release
		finish   Finish
		phase    Phase
	)
	leases := make([][16]byte, 4)
	inject := make([]int32, 2)
	return []hot{
		{"Acquire", func() {
			must(acquire.Parse(open(AppendMessage(buf, Frame{Type: TypeAcquire, Req: 1}, Acquire{Items: wants}))))
		}},
		{"Acquired", func() {
			must(acquired.Parse(open(AppendMessage(buf, Frame{Type: TypeAcquired, Req: 1}, Acquired{Items: places}))))
		}},
		{"Put", func() { must(put.Parse(open(AppendMessage(buf, Frame{Type: TypePut, Req: 1}, Put{Items: puts})))) }},
		{"End", func() { must(end.Parse(open(AppendMessage(buf, Frame{Type: TypeEnd, Req: 1}, End{Status: codes})))) }},
		{"Table", func() {
			must(table.Parse(open(AppendMessage(buf, Frame{Type: TypeTable, Req: 1}, Table{Items: haves}))))
		}},
		{"Pull", func() { must(pull.Parse(open(AppendMessage(buf, Frame{Type: TypePull, Req: 1}, Pull{Items: wants})))) }},
		{"Has", func() { must(has.Parse(open(AppendMessage(buf, Frame{Type: TypeHas, Req: 1}, Has{Items: wants})))) }},
		{"Tokens", func() { must(tok.Parse(open(AppendMessage(buf, Frame{Type: TypeTokens}, tokens)))) }},
		{"Release", func() {
			must(release.Parse(open(AppendMessage(buf, Frame{Type: TypeRelease, Req: 1}, Release{Leases: leases}))))
		}},
		{"Finish", func() { must(finish.Parse(open(AppendMessage(buf, Frame{Type: TypeFinish}, Finish{Req: 1})))) }},
		{"Phase", func() { must(phase.Parse(open(AppendMessage(buf, Frame{Type: TypePhase}, Phase{Inject: inject})))) }},
	}
}

// open takes a frame apart.
func open(b []byte) []byte {
	f, err := ParseFrame(b)
	must(err)
	p, err := payloadOf(f, b[FrameLen:])
	must(err)
	return p
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestHotMessagesDoNotAllocate(t *testing.T) {
	for _, h := range hotPath() {
		h.run() // the slices grow to their size once
		if n := testing.AllocsPerRun(100, h.run); n != 0 {
			t.Errorf("%s: %v allocations", h.name, n)
		}
	}
}

func TestSplitterDoesNotAllocateOnceItsBufferHasGrown(t *testing.T) {
	b := AppendMessage(nil, Frame{Type: TypeAcquired, Req: 1}, Acquired{Items: make([]Place, 16)})
	b = append(AppendData(b, Frame{Req: 3}, 0, 64), make([]byte, 64)...)
	s := Splitter{Begun: true}
	run := func() {
		for rest := b; len(rest) > 0; {
			n, _, err := s.Next(rest[:min(100, len(rest))])
			must(err)
			rest = rest[n:]
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
