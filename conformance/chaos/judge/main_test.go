package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"meridian/conformance/chaos"
	"meridian/wire"
)

func TestStandardInputAndOutput(t *testing.T) {
	key := `"ns":"` + strings.Repeat("00", 32) + `","key":"` + strings.Repeat("11", 32) + `"`
	honest := []string{
		`{"op":"offer","who":"e",` + key + `,"len":4}`,
		`{"op":"ack","who":"e","at":"n",` + key + `}`,
		`{"op":"serve","who":"e",` + key + `,"len":4}`,
	}
	for _, c := range []struct {
		name  string
		lines []string
		code  int
		says  string
	}{
		{"clean", honest, exitClean, ""},
		{"wrong length", append(honest[:2:2], `{"op":"serve",`+key+`,"len":3}`), exitIntegrity, "3 bytes were served"},
		{"idle", honest[:2], exitIntegrity, "no byte was served"},
		{"junk", append(honest[:3:3], `{"op":"?"}`), exitIntegrity, "could not take every event"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), nil, strings.NewReader(strings.Join(c.lines, "\n")), &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: exit %d, %s", c.name, code, errs.String())
		}
		if n := strings.Count(out.String(), "\n"); n != len(c.lines) {
			t.Errorf("%s: %d answers for %d lines", c.name, n, len(c.lines))
		}
		var r chaos.Report
		if err := json.NewDecoder(&errs).Decode(&r); err != nil || r.Offered != 1 {
			t.Errorf("%s: report %+v, %v", c.name, r, err)
		}
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judge")
	ctx, stop := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-listen", path}, nil, &out, &errs) }()
	var r *chaos.Remote
	for r == nil {
		select {
		case c := <-code:
			t.Fatalf("ended with %d: %s", c, errs.String())
		default:
			r, _ = chaos.Dial(t.Context(), "unix", path) // refused until it listens
		}
	}
	w := chaos.Witness{Judge: r, Who: "e", At: "n"}
	b := chaos.Block{Key: wire.Key{1}}
	for _, err := range []error{w.Offer(b, chaos.ContentOf([]byte("x"))), w.Put(b, nil), w.Served(b, []byte("x")), r.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	stop()
	if c := <-code; c != exitClean || !strings.Contains(out.String(), `"served": 1`) {
		t.Errorf("exit %d, %s%s", c, out.String(), errs.String())
	}
	if c := run(t.Context(), []string{"-listen", filepath.Join(path, "no", "such")}, nil, &out, &errs); c != exitUsage {
		t.Errorf("a path that cannot be: exit %d", c)
	}
	if c := run(t.Context(), []string{"-nonsense"}, nil, &out, &errs); c != exitUsage {
		t.Errorf("an unknown flag: exit %d", c)
	}
}
