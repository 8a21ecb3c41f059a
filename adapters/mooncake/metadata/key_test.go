package metadata

import (
	"errors"
	"strings"
	"testing"

	"meridian/wire"
)

func TestKeysAreThoseOfTheEngines(t *testing.T) {
	for text, want := range map[string]Key{
		"mooncake/ram/node:1":        {Name: "node:1"},
		"mooncake/rpc_meta/node:1":   {Kind: KindEndpoint, Name: "node:1"},
		"mooncake/c1/ram/node":       {Cluster: "c1", Name: "node"},
		"mooncake/c1/rpc_meta/node":  {Kind: KindEndpoint, Cluster: "c1", Name: "node"},
		"mooncake/a/b":               {Name: "a/b"},
		"mooncake/rpc_meta/a/b":      {Kind: KindEndpoint, Name: "a/b"},
		"mooncake/ram/[fe80::1]:9":   {Name: "[fe80::1]:9"},
		"mooncake/rpc_meta/ram/node": {Kind: KindEndpoint, Name: "ram/node"},
	} {
		k, err := ParseKey(text)
		if err != nil || k != want || k.String() != text {
			t.Errorf("%s: %+v %s, %v", text, k, k, err)
		}
	}
	for _, text := range []string{"", "mooncake", "mooncake/", "mooncake/ram/", "ram/x", "mooncake/c1/ram/", "mooncake/ram/a\nb", "mooncake/ram/\xff", "mooncake/ram/" + strings.Repeat("x", MaxName+1)} {
		k, err := ParseKey(text)
		if !errors.Is(err, wire.CodeInvalid) {
			t.Errorf("%.40q is %+v, %v", text, k, err)
		} else if len(err.Error()) > 600 {
			t.Errorf("%.40q: an error of %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"mooncake/ram/n", "mooncake/c/rpc_meta/n", "mooncake/a/b", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseKey(s)
		if err != nil {
			return
		}
		again, err := ParseKey(k.String())
		if err != nil || k.Check() != nil || again.Kind != k.Kind {
			t.Fatalf("%q is %+v, which is %q, %+v, %v", s, k, k, again, err)
		}
	})
}

func TestEndpointsAreReadStrictly(t *testing.T) {
	e, err := ParseEndpoint([]byte(`{"ip_or_host_name":"::1","rpc_port":65535,"meridian_epoch":18446744073709551615,"more":[1]}`))
	if want := (Endpoint{Host: "::1", Port: 65535, Epoch: 1<<64 - 1}); err != nil || e != want || e.Addr() != "[::1]:65535" {
		t.Errorf("%+v, %v", e, err)
	}
	if got := string(Endpoint{Host: "127.0.0.1", Port: 16458}.Append(nil)); got != `{"ip_or_host_name":"127.0.0.1","rpc_port":16458}` {
		t.Errorf("not what an engine writes: %s", got)
	}
	for text, field := range map[string]string{
		``:                                     "JSON object",
		`null`:                                 "ip_or_host_name",
		`[]`:                                   "JSON object",
		`{"rpc_port":1}`:                       "ip_or_host_name is missing",
		`{"ip_or_host_name":"h"`:               "JSON object",
		`{"ip_or_host_name":"h"}`:              "rpc_port is missing",
		`{"ip_or_host_name":"h","rpc_port":0}`: "rpc_port",
		`{"ip_or_host_name":"h","rpc_port":65536}`:                      "rpc_port",
		`{"ip_or_host_name":"h","rpc_port":1e3}`:                        "rpc_port",
		`{"ip_or_host_name":"h","rpc_port":-1}`:                         "rpc_port",
		`{"ip_or_host_name":"h","rpc_port":"1"}`:                        "rpc_port",
		`{"ip_or_host_name":"h","rpc_port":1,"meridian_epoch":1.5}`:     "meridian_epoch",
		`{"ip_or_host_name":"a b","rpc_port":1}`:                        "ip_or_host_name",
		`{"ip_or_host_name":"[::1]","rpc_port":1}`:                      "ip_or_host_name",
		`{"ip_or_host_name":"","rpc_port":1}`:                           "ip_or_host_name",
		`{"ip_or_host_name":"` + strings.Repeat("h", 254) + `"}`:        "ip_or_host_name",
		`{"x":"` + strings.Repeat("x", MaxBytes) + `"}`:                 "1 MiB",
		`{"ip_or_host_name":5,"rpc_port":1}`:                            "JSON object",
		`{"ip_or_host_name":"h","rpc_port":1,"rpc_port":{"a":[1,2,3]}}`: "rpc_port",
	} {
		_, err := ParseEndpoint([]byte(text))
		if !errors.Is(err, wire.CodeInvalid) || !strings.Contains(err.Error(), field) || len(err.Error()) > 600 {
			t.Errorf("%.60s: %v, want %s", text, err, field)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add([]byte(`{"ip_or_host_name":"::1","rpc_port":65535,"meridian_epoch":5}`))
	f.Add([]byte(`{"ip_or_host_name":"h","rpc_port":"1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEndpoint(b)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if again, err := ParseEndpoint(e.Append(nil)); err != nil || again != e {
			t.Fatalf("%+v comes back as %+v, %v", e, again, err)
		}
	})
}
