package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"meridian/adapters/mooncake/internal/realstore"
	"meridian/bench/harness"
	"meridian/internal/realpart"
)

// gateway reads keys of etcd by its JSON gateway.
type gateway string

func (g gateway) Get(ctx context.Context, key string) (string, bool, error) {
	ask := fmt.Sprintf(`{"key":%q}`, base64.StdEncoding.EncodeToString([]byte(key)))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+string(g)+"/v3/kv/range", bytes.NewBufferString(ask))
	if err != nil {
		return "", false, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", false, err
	}
	defer a.Body.Close()
	var kvs struct {
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.NewDecoder(a.Body).Decode(&kvs); err != nil || len(kvs.KVs) == 0 {
		return "", false, err
	}
	return string(kvs.KVs[0].Value), true, nil
}

// startEtcd starts a real etcd and returns its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("etcd")
	realpart.Need(t, err, exec.ErrNotFound, "make setup installs Debian's etcd-server")
	at, peers := realstore.FreeAddress(t), realstore.FreeAddress(t)
	dir := t.TempDir()
	p, err := harness.Start("etcd", exec.Command(path, "--data-dir", dir, "--listen-client-urls", "http://"+at, "--advertise-client-urls", "http://"+at,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers),
		harness.Options{Log: harness.LogIn(t.TempDir(), "etcd"), Term: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	err = harness.Poll(realstore.Bounded(t), p, func() error {
		_, _, err := gateway(at).Get(t.Context(), "any")
		return err
	})
	if err != nil {
		t.Fatal(err, p.Tail())
	}
	return at
}

// Two masters and an election: client and node follow the leader, by the election's
// key and by the list of both. The new leader knows nothing of what was: the node
// offers its memory anew, and an object of before is missing.
func TestClientAndNodeFollowTheLeaderOfTwoMasters(t *testing.T) {
	t.Parallel() // it mostly waits for what others forget
	etcd := startEtcd(t)
	ha := []string{"--enable_ha=true", "--ha_backend_type=etcd", "--ha_backend_connstring=" + etcd}
	first := realstore.StartMaster(t, ha...)
	second := realstore.StartStandby(t, ha...)

	byKey, err := ParseMasters("etcd://"+etcd, "", func(endpoints []string) (KV, error) { return gateway(endpoints[0]), nil })
	if err != nil {
		t.Fatal(err)
	}
	byList, err := ParseMasters(second.Address+","+first.Address, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	node := newHost(t, 64<<20).nodeOf(t, byKey)
	ours := ourClientOf(t, byList)
	body := randomBody(1, 10_000)
	if _, err := ours.Put(realstore.Bounded(t), "before", body); err != nil {
		t.Fatal(err)
	}
	first.Stop()
	if err := node.Wait(realstore.Bounded(t), func(s Status) bool { return s.State == NodeServing && s.Offers == 2 }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ours.Get(realstore.Bounded(t), "before", 1<<20); !errors.Is(err, CodeNotFound) {
		t.Errorf("an object of before: %v, want %v", err, CodeNotFound)
	}
	if _, err := ours.Put(realstore.Bounded(t), "after", body); err != nil {
		t.Fatal(err)
	}
	if got, _, err := ours.Get(realstore.Bounded(t), "after", 1<<20); err != nil || !bytes.Equal(got, body) {
		t.Error(err)
	}
}
