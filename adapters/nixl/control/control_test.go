package control

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// samples is one of each message, with every field set.
func samples() []Message {
	return []Message{
		&Start{1, "/lib/x", "agent", "UCX", []Pair{{"k", "v"}, {"", ""}}},
		&Map{2, 3, 1 << 40, true}, &Metadata{3}, &Load{4, []byte("blob")}, &Forget{5, "p"},
		&Move{6, true, 7, "p", []byte("told"), []Part{{1, 2, 3}, {4, 5, 6}}},
		&Notify{7, "p", []byte("t")}, &Ping{8}, &Started{9, "/x", []string{"UCX", "POSIX"}},
		&Mapped{10, 1 << 46}, &Blob{11, []byte{0, 1}}, &Loaded{12, "p"}, &Done{13},
		&Failed{14, true, true, "why"}, &Notified{"p", []byte("t")},
		&GPUs{15}, &GPUList{16, "570.1", []GPU{{"0000:01:00.0", "H200", "GPU-1", 1 << 37}, {}}}, &Uses{"p", "r", "w"},
	}
}

func frame(t testing.TB, m Message) []byte {
	t.Helper()
	b, err := Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEachMessageComesBackAsItWasSent(t *testing.T) {
	for i, m := range samples() {
		b := frame(t, m)
		got, err := Parse(b[4:])
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%#v: %#v, %v", m, got, err)
		}
		if kind := b[4]; int(kind) != i+1 {
			t.Errorf("%T has kind %d, want %d", m, kind, i+1)
		}
	}
	if len(samples()) != kindUses || made(kindUses+1) != nil || made(0) != nil {
		t.Error("a kind has no sample")
	}
}

func TestACutOrLongerFrameIsRefused(t *testing.T) {
	for _, m := range samples() {
		b := frame(t, m)[4:]
		for n := range b {
			if got, err := Parse(b[:n]); !errors.Is(err, ErrFrame) {
				t.Errorf("%T cut at %d of %d: %#v, %v", m, n, len(b), got, err)
			}
		}
		if _, err := Parse(append(bytes.Clone(b), 0)); !errors.Is(err, ErrFrame) {
			t.Errorf("%T with a byte too many: %v", m, err)
		}
	}
}

func TestWhatIsBeyondALimitIsRefusedByBothSides(t *testing.T) {
	for _, m := range []Message{
		&Start{Agent: "", Backend: "UCX"}, &Start{Agent: "a\x00b", Backend: "UCX"}, &Start{Agent: strings.Repeat("x", MaxName+1), Backend: "UCX"},
		&Start{Agent: "a", Backend: "UCX", Params: make([]Pair, MaxParams+1)}, &Load{Blob: make([]byte, MaxMetadata+1)},
		&Move{Peer: "p", Parts: make([]Part, MaxParts+1)}, &Notify{Peer: "p", Text: make([]byte, MaxNotif+1)},
		&Failed{Text: strings.Repeat("x", MaxText+1)}, &Started{Plugins: make([]string, MaxList+1)},
		&GPUList{GPUs: make([]GPU, MaxList+1)}, &GPUList{Driver: strings.Repeat("x", MaxName+1)},
	} {
		if _, err := Append(nil, m); !errors.Is(err, ErrFrame) {
			t.Errorf("%T was written: %v", m, err)
		}
	}
	for name, b := range map[string][]byte{
		"a flag of 2":       {kindFailed, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0},
		"a length of 2^32":  append([]byte{kindLoad, 1, 0, 0, 0, 0, 0, 0, 0}, 0xff, 0xff, 0xff, 0xff),
		"an empty name":     {kindForget, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"a NUL in a name":   {kindForget, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		"an unknown kind":   {200},
		"nothing":           {},
		"the kind 0":        {0},
		"elements too many": append([]byte{kindStarted, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1, 1, 0, 0),
	} {
		if m, err := Parse(b); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %#v, %v", name, m, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(frame(f, m)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		if again := frame(t, m); !bytes.Equal(again[4:], b) {
			t.Errorf("%x was read as %#v, which is %x", b, m, again[4:])
		}
	})
}

// pair is both ends.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, f, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if b, err = NewConn(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a, b
}

// next is the next message that comes.
func next(c *Conn) (Message, int, error) {
	for {
		if m, fd, err := c.ReceiveWithin(time.Second); m != nil || err != nil {
			return m, fd, err
		}
	}
}

func TestMessagesAndTheirDescriptorsArriveTogether(t *testing.T) {
	a, b := pair(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	window := int(file.Fd())
	go func() {
		for i := range Req(20) {
			m, fd := Message(&Load{i, make([]byte, MaxMetadata/int(i+1))}), -1
			if i%3 == 0 {
				m, fd = &Map{Req: i}, window
			}
			if err := a.Send(m, fd); err != nil {
				t.Error(err)
			}
		}
		a.Close()
	}()
	for i := range Req(20) {
		m, fd, err := next(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.(*Map); ok != (i%3 == 0) || ok != (fd >= 0) {
			t.Fatalf("message %d is a %T with descriptor %d", i, m, fd)
		}
		if fd >= 0 {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, err := next(b); err != io.EOF {
		t.Errorf("after the last one: %v", err)
	}
}

func TestAWindowWithoutItsDescriptorIsRefused(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(&Map{}, -1); err != nil {
		t.Fatal(err)
	}
	if m, _, err := next(b); !errors.Is(err, ErrFrame) {
		t.Errorf("%#v, %v", m, err)
	}
}

func TestAFrameThatSaysTooMuchIsRefusedBeforeItComes(t *testing.T) {
	a, b := pair(t)
	if _, err := a.file.Write([]byte{1, 0, 16, 0}); err != nil {
		t.Fatal(err)
	}
	if m, _, err := next(b); !errors.Is(err, ErrFrame) {
		t.Errorf("%#v, %v", m, err)
	}
}

// An end that is asked now and then gets the same messages, and waits no longer than it was told.
func TestAnEndThatIsAskedNowAndThenWaitsNoLonger(t *testing.T) {
	a, f, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, wait := range []time.Duration{0, time.Millisecond} {
		if m, _, err := b.ReceiveWithin(wait); m != nil || err != nil {
			t.Fatalf("nothing was sent, and %#v, %v came", m, err)
		}
	}
	go func() { // more than the socket holds
		for i := range Req(20) {
			m, fd := Message(&Load{i, make([]byte, MaxMetadata/int(i+1))}), -1
			if i%3 == 0 {
				m, fd = &Map{Req: i}, int(os.Stdin.Fd())
			}
			if err := a.Send(m, fd); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range Req(20) {
		m, fd, err := next(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.(*Map); ok != (i%3 == 0) || ok != (fd >= 0) || *m.(Numbered).Number() != i {
			t.Fatalf("message %d is %T with descriptor %d", i, m, fd)
		}
		if fd >= 0 {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
	}
	go func() {
		for i := range Req(20) {
			if err := b.Send(&Blob{i, make([]byte, MaxMetadata/int(i+1))}, -1); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range Req(20) {
		if m, _, err := next(a); err != nil || *m.(Numbered).Number() != i {
			t.Fatalf("answer %d is %#v, %v", i, m, err)
		}
	}
	if _, err := a.file.Write([]byte{1, 0, 0, 0, 200}); err != nil {
		t.Fatal(err)
	}
	if m, _, err := next(b); !errors.Is(err, ErrFrame) {
		t.Errorf("a wrong frame: %#v, %v", m, err)
	}
	_ = a.Close()
	if _, _, err := next(b); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Await wakes for what comes while Hear is on, for what came before too, and for the end.
func TestAwaitHearsWhatComesWhileItIsOn(t *testing.T) {
	a, b := pair(t)
	woken := make(chan error)
	await := func() { go func() { woken <- a.Await() }() }
	send := func() {
		if err := b.Send(&Done{1}, -1); err != nil {
			t.Fatal(err)
		}
	}
	take := func() {
		if m, _, err := next(a); err != nil {
			t.Fatal(m, err)
		}
	}
	for range 3 {
		await()
		send()
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		take()
		a.Hear(false)
		await()
		send()
		take() // by another one than who awaits
		send()
		select {
		case err := <-woken:
			t.Fatalf("it was woken while it is off: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		a.Hear(true) // what is there wakes it
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		take()
	}
	await()
	_ = a.Close()
	if err := <-woken; err == nil {
		t.Error("a connection that is closed has something to receive")
	}
	a.Hear(true)
}
