package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// kv is a key-value store.
type kv map[string]string

func (s kv) Get(_ context.Context, key string) (string, bool, error) {
	v, ok := s[key]
	if v == "broken" {
		return "", false, errors.New("no quorum")
	}
	return v, ok, nil
}

func TestAddressesOfMasters(t *testing.T) {
	for text, want := range map[string][]string{
		"10.0.0.1:50051": {"10.0.0.1:50051"},
		"master":         {"master:50051"},
		"a:1,b:2":        {"a:1", "b:2"},
		"a:1; [::1]:2":   {"a:1", "[::1]:2"},
		"http://a:1":     nil,
		"redis://a:1":    nil,
		"k8s://ns/name":  nil,
		"":               nil,
		",":              nil,
		"etcd://":        nil,
		"::1":            nil,
		":1":             nil,
		"a:":             nil,
	} {
		m, err := ParseMasters(text, "", nil)
		if (err == nil) != (want != nil) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := m.Where(t.Context()); want != nil && (!slices.Equal(got, want) || err != nil) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := ParseMasters("redis://a:1", "", nil); err == nil || !strings.Contains(err.Error(), `"redis" is not supported`) {
		t.Error(err)
	}
}

// The leader is where the election's key says, each time that a connection is made.
func TestTheLeaderIsReadFromTheElectionsKey(t *testing.T) {
	s := kv{}
	var endpoints []string
	m, err := ParseMasters("etcd://e1:2379;e2:2379", "prod", func(e []string) (KV, error) {
		endpoints = e
		return s, nil
	})
	if err != nil || !slices.Equal(endpoints, []string{"e1:2379", "e2:2379"}) {
		t.Fatal(err, endpoints)
	}
	if _, err := m.Where(t.Context()); err == nil || !strings.Contains(err.Error(), "no master leads") {
		t.Error(err)
	}
	const key = "mooncake-store/prod/master_view"
	for _, leader := range []string{"a:1", "b:2"} {
		s[key] = leader
		if got, err := m.Where(t.Context()); err != nil || !slices.Equal(got, []string{leader}) {
			t.Error(got, err)
		}
	}
	for _, bad := range []string{"broken", "no port:", ""} {
		s[key] = bad
		if got, err := m.Where(t.Context()); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
	if _, err := ParseMasters("etcd://e1:2379", "", func([]string) (KV, error) { return nil, errors.New("no") }); err == nil {
		t.Error("a client of etcd that cannot be made is not told")
	}
}
