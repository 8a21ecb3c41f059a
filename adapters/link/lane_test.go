package link

import (
	"syscall"
	"testing"
	"time"

	"meridian/adapters/link/internal/core"
	"meridian/wire"
	proto "meridian/wire/link"
)

// These tests are the goroutines of a lane themselves, so each step is theirs.

// directWrites counts the direct writes to a lane.
type directWrites struct {
	syscall.RawConn
	n int
}

func (d *directWrites) Control(f func(fd uintptr)) error {
	d.n++
	return d.RawConn.Control(f)
}

// still adds a lane without goroutines.
func still(t *testing.T, s *session, idx uint8) (l *lane, writes *directWrites) {
	t.Helper()
	c, there := tcpPair(t, 0)
	t.Cleanup(func() { _, _ = c.Close(), there.Close() })
	s.mu.Lock()
	defer s.mu.Unlock()
	cl, err := s.core.AddLane(s.now(), idx, proto.Splitter{Begun: true})
	if err != nil {
		t.Fatal(err)
	}
	l = s.newLane(cl, c, c)
	writes = &directWrites{RawConn: l.out.raw}
	l.out.raw = writes
	return l, writes
}

// hear gives a lane what came in, in reads of at most so many bytes, without its reader.
func (l *lane) hear(b []byte, most int) {
	for len(b) > 0 {
		n := 0
		for _, p := range l.rxWant(nil) {
			n += copy(p, b[n:min(len(b), most)])
		}
		l.rxGot(n)
		b = b[n:]
	}
}

// Who has the right to write writes as many frames as it may, and leaves the rest to the
// writer.
func TestADirectWriterWritesAsManyFramesAsItMay(t *testing.T) {
	const frames = 5
	small := core.DefaultLimits
	small.Frame = proto.MinFrame
	body := randomBody(frames * (proto.MinFrame - proto.DataPrefixLen))
	for may, want := range map[int]struct {
		writes int
		then   writing
	}{
		1:            {1, writingWriter},
		2:            {2, writingWriter},
		frames - 1:   {frames - 1, writingWriter},
		frames:       {frames, writingNone},
		100 * frames: {frames, writingNone},
	} {
		s := limited(start(t, 1, 10, "", nil), true, small)
		l, writes := still(t, s, 1)
		c := pushCall(1, wire.Namespace{}, 0, body)
		c.Timeout, c.Done = proto.MaxDeadline, make(chan struct{})
		s.mu.Lock()
		s.core.Start(s.now(), c)
		s.unlock()
		l.hear(frame(proto.TypeGrant, 1, proto.Grant{Status: make([]wire.Code, 1)}), proto.MaxControl)
		writes.n, l.mine = 0, false // the reader has the right, and gives it away
		s.flush([]*lane{l}, may)
		if writes.n != want.writes || l.writing != want.then {
			t.Errorf("of %d frames that it may write it wrote %d, and the right is at %d; want %d and %d", may, writes.n, l.writing, want.writes, want.then)
		}
	}
}

// A reader has something to do from the first byte that it reads until there is nothing
// to read.
func TestAReaderIsCountedWhileThereIsSomethingToRead(t *testing.T) {
	n := start(t, 1, 10, "", nil)
	s := bare(n, true)
	l, _ := still(t, s, 1)
	ping := frame(proto.TypePing, 2, proto.Empty{})
	for i, c := range []struct {
		then func()
		want int32
	}{
		{func() { l.rxWant(nil); l.rxGot(0) }, 0},
		{func() { l.hear(ping[:1], 1) }, 1},
		{func() { l.hear(ping[1:3], 1) }, 1},
		{l.cool, 0},
		{l.cool, 0},
	} {
		if c.then(); n.hot.Load() != c.want {
			t.Errorf("step %d: %d readers, want %d", i, n.hot.Load(), c.want)
		}
	}
}

// What a reader does with the right to write to its lane: the answer to a request it
// keeps back until there is nothing more to read, but not twice, not behind bodies, and
// not while it has bodies to hash.
func TestAReaderKeepsAnAnswerBackWhileThereIsMoreToRead(t *testing.T) {
	for name, c := range map[string]struct {
		mine bool // it has the right from the read before
		n    int
		busy bool
		keep bool
	}{
		"a request":                        {false, 100, false, true},
		"requests":                         {false, maxAsk, false, true},
		"more than requests":               {false, maxAsk + 1, false, false},
		"bodies to hash":                   {false, 100, true, false},
		"one more read":                    {true, 1, false, false},
		"nothing, behind a request":        {true, 0, false, true},
		"nothing, with bodies in the work": {true, 0, true, true},
	} {
		s := bare(start(t, 1, 10, "", nil), true)
		l, writes := still(t, s, 1)
		s.mu.Lock()
		s.core.StartOn(s.now(), 1, &core.Call{Type: proto.TypePing, Timeout: time.Second, Done: make(chan struct{})})
		todo := s.endVisit(nil)
		if l.mine = c.mine; c.mine {
			todo = nil
		}
		l.answer(c.n, c.busy, todo)
		if l.mine != c.keep || writes.n == 0 != c.keep {
			t.Errorf("%s: it keeps the right %v, and wrote %d times; want it kept: %v", name, l.mine, writes.n, c.keep)
		}
		if l.mine {
			l.idle()
		}
	}
	s := bare(start(t, 1, 10, "", nil), true)
	l, writes := still(t, s, 1)
	if l.hear(frame(proto.TypePing, 2, proto.Empty{}), proto.MaxControl); !l.mine || writes.n != 0 {
		t.Errorf("PING: it keeps the right %v, and wrote %d times", l.mine, writes.n)
	}
	if l.idle(); l.mine || writes.n != 1 {
		t.Errorf("nothing to read: it keeps the right %v, and wrote %d times", l.mine, writes.n)
	}
}

// Bodies are hashed by the reader where they are short, the last of a read, or no other
// processor is free; else by the lane's worker while the reader reads on.
func TestWhoHashesABody(t *testing.T) {
	for name, c := range map[string]struct {
		size, procs int
		last        bool // no body is due behind it
		drained     bool
		worker      bool
	}{
		"a long one of two":                 {quickHash + 1, 2, false, false, true},
		"a short one of two":                {quickHash, 2, false, false, false},
		"a long one, the last":              {quickHash + 1, 2, true, false, false},
		"a long one, no processor is free":  {quickHash + 1, 1, false, false, false},
		"a long one, the socket is drained": {quickHash + 1, 2, false, true, false},
	} {
		n := start(t, 1, 10, "", nil)
		n.procs = c.procs
		s := bare(n, true)
		l, _ := still(t, s, 1)
		body := randomBody(c.size)
		items := []proto.Have{haveOf(body)}
		call := pullCall(1, wire.Namespace{}, c.size)
		if !c.last {
			items = append(items, haveOf(body))
			call.Items = append(call.Items, pullCall(1, wire.Namespace{}, c.size).Items...)
		}
		call.Timeout, call.Done = proto.MaxDeadline, make(chan struct{})
		s.mu.Lock()
		s.core.Start(s.now(), call)
		s.unlock()
		if c.drained {
			l.in.iov = [][]byte{make([]byte, 1)}
		}
		l.hear(frames(frame(proto.TypeTable, 1, proto.Table{Items: items}), proto.AppendData(nil, proto.Frame{Req: 1}, 0, c.size), body), 1<<20)
		if (l.jobs != nil) != c.worker {
			t.Errorf("%s: hashed by the worker %v, want %v", name, l.jobs != nil, c.worker)
		}
		if l.jobs != nil {
			close(l.jobs)
		}
	}
}
