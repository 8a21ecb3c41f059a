package plane

import (
	"errors"
	"slices"
	"testing"

	"meridian/internal/etcd"
	"meridian/internal/realpart/etcdnode"
	"meridian/internal/testbed"
	"meridian/wire"
)

// openEtcd is a real etcd of one member, our side of it, and a bare client.
func openEtcd(t *testing.T) (*Etcd, *etcd.Client, *etcdnode.Node) {
	t.Helper()
	n := etcdnode.Start(t)
	e, err := NewEtcd([]string{n.Endpoint}, DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	c, err := etcd.Open(etcd.Config{Endpoints: []string{n.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return e, c, n
}

// keys are those of the namespace.
func keys(t *testing.T, c *etcd.Client) (out []string) {
	t.Helper()
	all, _, err := c.List(t.Context(), "/nixl/", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		out = append(out, v.Key)
	}
	return out
}

func TestOursInEtcdEndWithUs(t *testing.T) {
	e, c, n := openEtcd(t)
	for range 2 {
		if err := e.Publish(t.Context(), "us", written("us", "1")); err != nil {
			t.Fatal(err)
		}
	}
	if got := keys(t, c); !slices.Equal(got, []string{"/nixl/agents//us/", "/nixl/agents//us/metadata"}) {
		t.Error(got)
	}
	if b, err := e.Get(t.Context(), "us"); err != nil || string(b) != string(written("us", "1")) {
		t.Errorf("%q, %v", b, err)
	}
	v, err := c.Get(t.Context(), "/nixl/agents//us/metadata")
	if err == nil {
		err = c.Delete(t.Context(), v)
	}
	if err == nil {
		err = e.Publish(t.Context(), "us", written("us", "1"))
	}
	if got := keys(t, c); err != nil || len(got) != 2 {
		t.Error("what somebody deleted is not back:", got, err)
	}
	if err := e.Withdraw(t.Context(), "us"); err != nil || len(keys(t, c)) != 0 {
		t.Error(keys(t, c), err)
	}
	if err := e.Publish(t.Context(), "us2", written("us2", "1")); err != nil {
		t.Fatal("the next helper's:", err)
	}
	// A process that dies says nothing: its lease lapses.
	_ = e.Close()
	testbed.Until(t, "the lease lapses", func() bool { return len(keys(t, c)) == 0 })
	n.Stop()
}

func TestTheDeadAreReapedFromEtcd(t *testing.T) {
	e, c, _ := openEtcd(t)
	put := func(key string, b []byte) {
		t.Helper()
		was, err := c.Get(t.Context(), key)
		if err == nil {
			_, err = c.Put(t.Context(), was, b, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, agent := range []string{"app", "app2", "app/0"} { // as the wheel does
		put("/nixl/agents//"+agent+"/", nil)
		put("/nixl/agents//"+agent+"/metadata", written(agent, "1"))
		put("/nixl/agents//"+agent+"/half", written(agent, "1"))
	}
	if err := e.Reap(t.Context(), "app", written("app", "another life")); !errors.Is(err, wire.CodeIncarnation) || len(keys(t, c)) != 9 {
		t.Error("another life of it:", err, keys(t, c))
	}
	if err := e.Reap(t.Context(), "app", written("app", "1")); err != nil {
		t.Error(err)
	}
	if got := keys(t, c); !slices.Equal(got, []string{"/nixl/agents//app/0/", "/nixl/agents//app/0/half", "/nixl/agents//app/0/metadata", "/nixl/agents//app2/", "/nixl/agents//app2/half", "/nixl/agents//app2/metadata"}) {
		t.Error(got)
	}
	if _, err := e.Get(t.Context(), "app"); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
}

func TestWhatIsInEtcdHasItsBound(t *testing.T) {
	e, c, n := openEtcd(t)
	if _, err := c.Put(t.Context(), etcd.Value{Key: "/nixl/agents//big/metadata"}, make([]byte, MaxBlob+1), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), "big"); !errors.Is(err, wire.CodeTooLarge) {
		t.Error(err)
	}
	n.Stop()
	if _, err := e.Get(t.Context(), "big"); !errors.Is(err, wire.CodeUnreachable) || errors.Is(err, ErrAbsent) {
		t.Error("an etcd that is gone:", err)
	}
}
