package capi

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/internal/realpart"
	"meridian/internal/testbed"
)

// environment is what UCX reads when the library is loaded, so it is there from the
// begin of the process.
var environment = []string{"UCX_DEBUG_SIGNO=0", "UCX_NET_DEVICES=lo", "UCX_PROTO_EMULATION_ENABLE=y", "UCX_WARN_UNUSED_ENV_VARS=n"}

func TestMain(m *testing.M) {
	if os.Getenv("UCX_DEBUG_SIGNO") != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

func memory(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// real is the library of the wheel.
func real(t *testing.T) *Library {
	t.Helper()
	l, err := Load(realpart.Packages(t, "peers"), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// side is an agent with registered memory.
type side struct {
	*Agent
	backend *Backend
	region  *Region
	mem     []byte
}

func newSide(t *testing.T, l *Library, name string, params map[string]string) *side {
	t.Helper()
	s := &side{mem: memory(t, 1<<20)}
	var err error
	if s.Agent, err = l.NewTarget(name); err != nil {
		t.Fatal(err)
	}
	if s.backend, err = s.NewBackend("UCX", params); err != nil {
		t.Fatal(err)
	}
	if s.region, err = s.Register(s.backend, addr(s.mem), uint64(len(s.mem))); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) span(off, n uint64) Span { return Span{uint64(addr(s.mem)) + off, n} }

// close gives everything back in the order that the library wants.
func (s *side) close(t *testing.T) {
	t.Helper()
	if err := s.region.Deregister(); err != nil {
		t.Error(err)
	}
	s.backend.Release()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// finish waits for a transfer and releases it.
func finish(t *testing.T, r *Request, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	done, err := r.Post()
	testbed.Until(t, "the transfer ends", func() bool {
		if err == nil && !done {
			done, err = r.Poll()
		}
		return done || err != nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := r.Release(); err != nil {
		t.Error(err)
	}
}

func TestTwoAgentsMoveABatchAndTellIt(t *testing.T) {
	l := real(t)
	if missing := l.Missing(); len(missing) > 0 {
		t.Errorf("the wheel's library lacks %q", missing)
	}
	a, b := newSide(t, l, "a", nil), newSide(t, l, "b", map[string]string{"num_workers": "1"})
	plugins, err := a.Plugins()
	if err != nil || !slices.Contains(plugins, "UCX") {
		t.Errorf("plugins %q, %v", plugins, err)
	}
	md, err := b.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if name, err := a.Load(md); err != nil || name != "b" {
		t.Fatal(name, err)
	}
	for i := range a.mem {
		a.mem[i] = byte(i * 7)
	}
	r, err := a.NewRequest(a.backend, Write, []Span{a.span(0, 5000), a.span(9000, 100)}, []Span{b.span(1000, 5000), b.span(0, 100)}, "b", []byte("there"))
	finish(t, r, err)
	if !bytes.Equal(a.mem[:5000], b.mem[1000:6000]) || !bytes.Equal(a.mem[9000:9100], b.mem[:100]) {
		t.Error("other bytes were written")
	}
	box, err := b.NewMailbox()
	if err != nil {
		t.Fatal(err)
	}
	var got []Notif
	take := func() bool {
		if err := box.Take(func(n Notif) { got = append(got, n) }); err != nil {
			t.Fatal(err)
		}
		return len(got) > 0
	}
	testbed.Until(t, "b is told", take)
	if len(got) != 1 || got[0].From != "a" || string(got[0].Text) != "there" {
		t.Errorf("%q", got)
	}
	if got = nil; take() {
		t.Errorf("it is told again: %q", got)
	}
	r, err = a.NewRequest(a.backend, Read, []Span{a.span(100_000, 5000)}, []Span{b.span(1000, 5000)}, "b", nil)
	finish(t, r, err)
	if !bytes.Equal(a.mem[100_000:105_000], b.mem[1000:6000]) {
		t.Error("other bytes were read")
	}
	if _, err := a.NewRequest(a.backend, Read, []Span{a.span(0, 10)}, []Span{b.span(1<<20, 10)}, "b", nil); err == nil {
		t.Error("memory that is not registered was asked for")
	}
	if _, err := a.NewRequest(a.backend, Read, []Span{a.span(0, 10)}, []Span{b.span(0, 10)}, "nobody", nil); err == nil {
		t.Error("an unknown agent was asked")
	}
	if err := a.Forget("b"); err != nil {
		t.Error(err)
	}
	if err := a.Forget("b"); err == nil {
		t.Error("it was forgotten twice")
	}
	box.Release()
	a.close(t)
	b.close(t)
}

// A transfer of prepared lists is posted again and again, and moves what is there then.
func TestPreparedListsServeManyTransfers(t *testing.T) {
	l := real(t)
	if !l.Prepares() {
		t.Fatal("the wheel's library prepares no lists")
	}
	a, b := newSide(t, l, "prep-a", nil), newSide(t, l, "prep-b", nil)
	md, err := b.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load(md); err != nil {
		t.Fatal(err)
	}
	here, err := a.Prepare(a.backend, "", []Span{a.span(0, 5000), a.span(9000, 100)})
	if err != nil {
		t.Fatal(err)
	}
	there, err := a.Prepare(a.backend, "prep-b", []Span{b.span(1000, 5000), b.span(0, 100)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Prepare(a.backend, "nobody", []Span{b.span(0, 1)}); err == nil {
		t.Error("a list of an unknown agent was prepared")
	}
	if _, err := a.Prepare(a.backend, "prep-b", []Span{b.span(1<<20, 1)}); err == nil {
		t.Error("a list of memory that is not registered was prepared")
	}
	r, err := a.NewPreparedRequest(a.backend, Write, here, there)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for i := range a.mem {
			a.mem[i] = byte(i*7 + round)
		}
		done, err := r.Post()
		testbed.Until(t, "the transfer ends", func() bool {
			if err == nil && !done {
				done, err = r.Poll()
			}
			return done || err != nil
		})
		if err != nil || !bytes.Equal(a.mem[:5000], b.mem[1000:6000]) || !bytes.Equal(a.mem[9000:9100], b.mem[:100]) {
			t.Fatalf("round %d: other bytes were written, or %v", round, err)
		}
	}
	for _, release := range []func() error{r.Release, here.Release, there.Release, func() error { return a.Forget("prep-b") }} {
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	a.close(t)
	b.close(t)
}

func TestMetadataThatIsCutIsRefused(t *testing.T) {
	l := real(t)
	a, b := newSide(t, l, "cut-a", nil), newSide(t, l, "cut-b", nil)
	defer a.close(t)
	defer b.close(t)
	md, err := b.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(md); n += 13 {
		if name, err := a.Load(md[:n]); err == nil {
			t.Errorf("cut at %d of %d it was loaded as %q", n, len(md), name)
		}
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	empty := t.TempDir()
	if _, err := Load(empty, os.Getenv); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), empty) {
		t.Errorf("an empty folder: %v", err)
	}
	nowhere := func(name string) string { return map[string]string{"PYTHONPATH": empty}[name] }
	if _, err := Load("", nowhere); err != nil && (!errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), empty) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("nothing installed: %v", err)
	}
	for range 50 { // whatever thread it runs on
		if _, err := Open("libnone.so"); err == nil || !strings.Contains(err.Error(), "libnone.so: cannot open shared object file") {
			t.Fatal(err)
		}
	}
	if _, err := Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "none of its functions") {
		t.Errorf("another library: %v", err)
	}
	text := filepath.Join(empty, "libnixl_capi.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(empty, os.Getenv); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("no library: %v", err)
	}
	l := real(t)
	l.at[genNotif], l.at[makeXferReq] = 0, 0
	if got := l.Missing(); !slices.Equal(got, []string{"nixl_capi_gen_notif"}) {
		t.Errorf("missing are %q", got)
	}
	if l.Prepares() {
		t.Error("it prepares lists without nixl_capi_make_xfer_req")
	}
	if err := l.do(genNotif); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "nixl_capi_gen_notif") {
		t.Error(err)
	}
}

func TestTheLibraryIsFoundWhereWheelsAre(t *testing.T) {
	prefix := t.TempDir()
	site := filepath.Join(prefix, "lib", "python3.11", "site-packages")
	for _, dir := range []string{".nixl_cu12.mesonpy.libs", ".nixl_cu13.mesonpy.libs"} {
		if err := os.MkdirAll(filepath.Join(site, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(site, dir, "libnixl_capi.so"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := func(name string) string { return map[string]string{"VIRTUAL_ENV": prefix}[name] }
	if got := packages(env); len(got) == 0 || got[0] != site {
		t.Errorf("the folders of packages are %q", got)
	}
	want := filepath.Join(site, ".nixl_cu13.mesonpy.libs", "libnixl_capi.so")
	if got := within(site); len(got) != 2 || got[0] != want {
		t.Errorf("in %s there is %q, want %s first", site, got, want)
	}
	if got := within(want); !slices.Equal(got, []string{want}) {
		t.Errorf("the file itself: %q", got)
	}
}
