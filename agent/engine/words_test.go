package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/agent/client"
	"meridian/agent/engine"
	"meridian/blocks"
	"meridian/scheduler"
	"meridian/wire"
	"meridian/wire/link"
)

// Every refusal of a PUT names the item, the value and the limit.
func TestARefusedItemIsToldWhatIsAgainstWhichLimit(t *testing.T) {
	n := startNode(t, nil)
	r, _ := n.opened(t, "acme")
	good := link.PutItem{Len: 10, Key: keyOf("good")}
	for i, c := range []struct {
		item  link.PutItem
		code  wire.Code
		words []string
	}{
		{link.PutItem{NS: 7, Key: keyOf("a")}, wire.CodeNSUnknown, []string{"item 1: ", "namespace 7", "1 are open"}},
		{link.PutItem{Len: 2, Off: 1<<20 - 1, Key: keyOf("a")}, wire.CodeInvalid, []string{"item 1: ", "2 bytes at 1048575", "a staging ring of 1048576"}},
		{link.PutItem{Len: 1<<20 + 1, Key: keyOf("a")}, wire.CodeInvalid, []string{"item 1: ", "1048577 bytes at 0", "a staging ring of 1048576"}},
		{link.PutItem{Len: 1}, wire.CodeInvalid, []string{"item 1: ", "key is zero"}},
	} {
		req := uint64(11 + 2*i)
		r.write(message(link.TypePut, req, link.Put{DeadlineMS: 1000, Items: []link.PutItem{good, c.item}}))
		e := r.end(r.next(), req)
		if len(e.Status) != 2 || e.Status[1] != c.code {
			t.Errorf("%+v: %+v, want %s", c.item, e, c.code)
		}
		says(t, e.Text, c.words...)
	}
	r.write(message(link.TypePut, 101, link.Put{Items: []link.PutItem{good}}))
	if e := r.end(r.next(), 101); e.Code != wire.CodeDeadline {
		t.Errorf("a PUT without time: %+v", e)
	} else {
		says(t, e.Text, "deadline_ms is 0")
	}
}

// The client gives the daemon's words to the block that they are about.
func TestTheBlockThatIsRefusedHasTheWords(t *testing.T) {
	n := startNode(t, func(b *blocks.Config, _ *engine.Config) { b.Shares.Engine = 0.02 })
	e := n.dial(t, client.Options{})
	ns, err := e.Open(ctx, sized(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	errs := e.Put(ctx, []client.Block{
		{NS: ns, Key: keyOf("a"), Body: []byte{1}},
		{NS: ns, Key: keyOf("b"), Body: make([]byte, 64<<10+1)},
		{NS: ns, Key: wire.Key{}, Body: []byte{1}},
	})
	if errs[0] != nil {
		t.Error(errs[0])
	}
	is(t, errs[1], wire.CodeTooLarge)
	says(t, errs[1].Error(), "65537 bytes", "block_bytes of the namespace is 65536")
	if is(t, errs[2], wire.CodeInvalid); strings.Contains(errs[2].Error(), "block_bytes") {
		t.Errorf("another block's words: %v", errs[2])
	}
	var many []client.Block
	for i := range 40 {
		many = append(many, client.Block{NS: ns, Key: wire.Key{1, byte(i)}, Body: make([]byte, 64<<10)})
	}
	var re *client.RequestError
	for _, err := range e.Put(ctx, many) {
		if errors.As(err, &re) {
			break
		}
	}
	if re == nil || re.Code != wire.CodeFull {
		t.Fatalf("a share of a fiftieth was not met: %v", re)
	}
	says(t, re.Error(), "engine process", "quota.engine_arena_share")
}

// A request that is refused as a whole is told the limit that it met, and with BUSY
// when to ask again.
func TestARefusedRequestIsToldTheLimit(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) {
		c.Limits.Namespaces, c.Limits.Items, c.Limits.Reqs = 1, 2, 1
		c.Scheduler = scheduler.Config{MaxRequests: 1}
	})
	r, _ := n.opened(t, "acme")
	req := uint64(1)
	ask := func(typ link.Type, m link.Message) link.End {
		t.Helper()
		req += 2
		r.write(message(typ, req, m))
		for {
			if got := r.next(); got.f.Type == link.TypeEnd && got.f.Req == req {
				return r.end(got, req)
			}
		}
	}
	wants := []link.Want{{Key: keyOf("a")}, {Key: keyOf("a")}, {Key: keyOf("a")}}
	for _, c := range []struct {
		name  string
		end   link.End
		code  wire.Code
		words []string
	}{
		{"a namespace more", ask(link.TypeOpen, link.Open{Manifest: sized(1).Append(nil)}), wire.CodeTooMany, []string{"1 namespaces are open", "limit of an engine is 1"}},
		{"a foreign tenant", ask(link.TypeOpen, link.Open{Manifest: manifest("nobody").Append(nil)}), wire.CodeNSUnknown, []string{"tenant is not in security.tenants"}},
		{"HAS of too many", ask(link.TypeHas, link.Has{DeadlineMS: 1, Items: wants}), wire.CodeTooLarge, []string{"3 items", "limit of a request is 2"}},
		{"ACQUIRE of too many", ask(link.TypeAcquire, link.Acquire{DeadlineMS: 1, Items: wants}), wire.CodeTooLarge, []string{"3 items", "limit of a request is 2"}},
		{"BEGIN", ask(link.TypeBegin, link.Begin{Req: 5}), wire.CodeOK, nil},
		{"BEGIN twice", ask(link.TypeBegin, link.Begin{Req: 5}), wire.CodeInvalid, []string{"request number 5 runs already"}},
		{"BEGIN of one more", ask(link.TypeBegin, link.Begin{Req: 6}), wire.CodeBusy, []string{"the scheduler follows 1 requests", "its limit is 1"}},
	} {
		if c.end.Code != c.code || (c.code == wire.CodeBusy) != (c.end.RetryMS > 0) || c.words == nil && c.end.Text != "" {
			t.Errorf("%s: %+v, want %s", c.name, c.end, c.code)
		}
		says(t, c.end.Text, c.words...)
	}
	gate := make(chan struct{})
	defer close(gate)
	n.host.mu.Lock()
	n.host.gate = gate
	n.host.mu.Unlock()
	fetch := link.Acquire{DeadlineMS: uint32(time.Minute.Milliseconds()), Items: []link.Want{{Key: keyOf("far"), Flags: link.WantFetch}}}
	r.write(message(link.TypeAcquire, 1001, fetch))
	<-n.host.fetching
	e := ask(link.TypeAcquire, fetch)
	if e.Code != wire.CodeBusy || e.RetryMS == 0 {
		t.Errorf("one flight more: %+v", e)
	}
	says(t, e.Text, "1 requests of this session run", "limit is 1")
}

// What a foreign tenant asks for is refused in the same bytes, whether it exists
// or not.
func TestAForeignTenantLearnsNothingFromARefusal(t *testing.T) {
	n := startNode(t, func(_ *blocks.Config, c *engine.Config) { c.Tenants = []string{"acme"} })
	n.open(t)
	secret := manifest("secret")
	if err := n.store.AddNamespace(secret.Namespace(), secret.TenantID()); err != nil {
		t.Fatal(err)
	}
	answers := func(tenant string) (out []frame) {
		r := n.greeted(t)
		r.write(message(link.TypeOpen, 1, link.Open{Manifest: manifest(tenant).Append(nil)}))
		return append(out, r.next(), r.next())
	}
	there, none := answers("secret"), answers("nobody")
	for i := range there {
		if there[i].f != none[i].f || string(there[i].p) != string(none[i].p) {
			t.Errorf("%s differs: %x and %x", there[i].f.Type, there[i].p, none[i].p)
		}
	}
}

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

// A text does not say its code again, which whoever shows it says beside it.
func TestATextDoesNotRepeatItsCode(t *testing.T) {
	n := startNode(t, nil)
	e, ns := n.open(t)
	_, err := e.Open(ctx, manifest("nobody"))
	_, late := e.Acquire(ctx, ns, make([]wire.Key, link.MaxItems+1), client.AcquireOptions{})
	for _, err := range []error{err, late, e.Put(ctx, []client.Block{{NS: 99, Key: keyOf("a"), Body: []byte{1}}})[0]} {
		if err == nil {
			t.Fatal("it was not refused")
		}
		if code := wire.CodeOf(err).String(); strings.Count(err.Error(), code) != 1 {
			t.Errorf("%q", err)
		}
	}
}
