package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/bench/think"
)

func TestBenchThinkNamesTheFlagThatCannotBe(t *testing.T) {
	s := newShell(t, nil)
	for name, text := range map[string]string{
		"empty.json": "", "half.jsonl": "{\"problem\": \"a\", \"solution\": \"b\"}\n{\"problem\": \"a\"}\n",
		"long.jsonl": `{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [0]}` + "\n" + `{"timestamp": 9, "input_length": 390000, "output_length": 1, "hash_ids": [` + strings.Repeat("1, ", 761) + "1]}\n",
		"huge.jsonl": `{"timestamp": 0, "input_length": 1e15, "output_length": 2, "hash_ids": [0]}` + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, s.run(t, "bench", "cache", "--trace", "pipe"), exitUsage, "", "--trace: pipe is a pipe, and no regular file")
	for _, bench := range []string{"cache", "force", "peers"} {
		expect(t, s.run(t, "bench", bench, "--out", "empty.json"), exitUsage, "", "--out: mkdir empty.json: not a directory")
	}
	for args, want := range map[string]string{
		"--workload fast25 --dataset pipe":         "--dataset: pipe is a pipe, and no regular file",
		"--workload alpaca":                        `--workload: "alpaca" is none of reference, answer-heavy, sharegpt, math500, fast25`,
		"--workload sharegpt":                      "--workload sharegpt needs --dataset: nothing is downloaded",
		"--dataset empty.json":                     "--dataset: the reference workload is drawn from distributions",
		"--workload sharegpt --dataset empty.json": "--dataset: empty.json: it is empty",
		"--workload sharegpt --dataset none.json":  "none.json",
		"--workload math500 --dataset half.jsonl":  "--dataset: half.jsonl: line 2: solution is missing",
		"--workload fast25 --dataset huge.jsonl":   "--dataset: huge.jsonl: line 1: input_length: 1e15: a whole number from 0 to 1048576",
		"--workload fast25 --dataset long.jsonl":   "long.jsonl: line 2: input_length has 390000 tokens, output_length 1, and up to 6000 of thinking: the cache holds 389888",
		"--kv-tokens 5000":                         "a request may have 6900 tokens, the cache has 4992",
		"--seed 3,5,3":                             "seed 3 is there twice",
		"--seed x":                                 `--seed: "x" is no whole number`,
		"--seed 3,5 --seeds 7":                     "--seeds: 7, and --seed names 2",
		"--seeds 0":                                "--seeds: 0: from 1 to 1000",
		"--slo-first-answer 0s":                    "an SLO to the first answer of 0s: above 0",
		"--slo-think-token 0s":                     "an SLO of a thinking token of 0s: above 0",
		"--slo-output-token 0s":                    "an SLO of an output token of 0s: above 0",
		"--step-tokens 100":                        "a budget of 100 tokens for a step of 256 slots: at least one for each",
		"--slots 0":                                "0 slots: at least 1",
		"--requests 0":                             "0 requests",
		"--duration 0s":                            "--duration: 0s: above 0",
		"--duration 5m --requests 10":              "--duration and --requests: one of them",
		"--rate 2 --loads 0.9":                     "--rate and --loads: one of them",
		"--rate 0":                                 "--rate: 0 requests a second: above 0",
		"--out half.jsonl":                         "--out: mkdir half.jsonl: not a directory",
		"--mode real-llamacpp --out half.jsonl":    "--out: mkdir half.jsonl: not a directory",
		"--rate -1":                                "a rate of -1 requests a second",
		"--loads 0.9,0.9":                          "a load of 0.9 is there twice",
		"--reasoning-ratio 2":                      "a reasoning ratio of 2",
		"--cost abacus":                            `--cost: "abacus" is none of h100-8b, seed`,
		"--warm 6000":                              "6000 requests, of which 6000 are not counted",
		"--late 50ms":                              "a token is late after 50ms, and a reader reads one every 50ms",
	} {
		expect(t, s.run(t, append([]string{"bench", "think"}, strings.Fields(args)...)...), exitUsage, "", want)
	}
}

// quickThink are options of a run of a moment.
func quickThink() think.Options {
	o := think.Defaults()
	o.Slots, o.StepTokens, o.KVTokens = 16, 512, 16_000
	o.Workload.Think, o.Workload.Answer = think.Span{Least: 100, Most: 900}, think.Span{Least: 20, Most: 90}
	o.Requests, o.Seeds, o.Loads, o.Rate, o.Sanity = 60, think.Seeds(1, 4), nil, 2, 1000
	o.Arms = think.Arms(&o)
	return o
}

// ^C leaves a report of what is done, which says so, and an error.
func TestBenchThinkThatIsInterruptedLeavesAPartialReport(t *testing.T) {
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := quickThink()
	o.Progress = func(p think.Progress) {
		if p.Done == 2*len(o.Arms) {
			cancel()
		}
	}
	res, err := playThink(ctx, a, o, "out")
	if !errors.Is(err, context.Canceled) || asCommandFailure(err) == nil {
		t.Fatalf("error %v", err)
	}
	if res == nil || !strings.Contains(res.grid(false).note, "NOT THE WHOLE REPORT") {
		t.Fatalf("result %+v", res)
	}
	b, err := os.ReadFile("out/report.json")
	if err != nil {
		t.Fatal(err)
	}
	var rep think.Report
	if err := json.Unmarshal(b, &rep); err != nil || rep.Interrupted == "" || len(rep.Loads) != 1 {
		t.Errorf("%v: interrupted %q, %d loads", err, rep.Interrupted, len(rep.Loads))
	}
	if errs.Len() > 0 {
		t.Errorf("%q is no terminal's", errs.String())
	}
}

// The same flags write the same bytes; what depends on the machine stands in a file of its own.
func TestBenchThinkWritesTheSameBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	files := map[string]string{}
	for i, dir := range []string{"a", "b", "c"} {
		o := quickThink()
		if i == 2 {
			o.Seeds = think.Seeds(9, 4)
		}
		if _, err := playThink(t.Context(), &app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}, o, dir); err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		plots := 0
		for _, f := range all {
			b, err := os.ReadFile(dir + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f.Name(), ".svg") {
				plots++
			}
			switch {
			case f.Name() == "machine.json":
				if !strings.Contains(string(b), "processor_s") || !strings.Contains(string(b), "cpus") {
					t.Errorf("%s", b)
				}
			case i == 0:
				files[f.Name()] = string(b)
			case (i == 1) != (files[f.Name()] == string(b)):
				t.Errorf("%s: run %d has equal bytes: %v", f.Name(), i, i == 2)
			}
		}
		if plots < 6+6 || files["report.md"] == "" || files["report.json"] == "" {
			t.Errorf("%d plots, %d files", plots, len(files))
		}
	}
}

func TestBarStaysOnItsLine(t *testing.T) {
	var w bytes.Buffer
	b := bar{w: &w}
	began := time.Unix(1000, 0)
	b.draw(began, 0, 40, "the comparison with queueing theory")
	b.draw(began.Add(barEvery/2), 1, 40, "too soon")
	b.draw(began.Add(10*time.Second), 10, 40, "load 0.95")
	b.draw(began.Add(20*time.Second), 20, 40, strings.Repeat("long ", 40))
	b.draw(began.Add(20*time.Second), 40, 40, "done")
	b.end()
	text := w.String()
	if strings.Contains(text, "\n") || strings.Contains(text, "too soon") {
		t.Errorf("%q", text)
	}
	lines := strings.Split(text, "\r")
	for _, l := range lines {
		if len(l) >= columns {
			t.Errorf("%d columns: %q", len(l), l)
		}
	}
	if !strings.HasPrefix(lines[2], "[======                  ]  25 %  load 0.95, about 30s left") || !strings.HasPrefix(lines[4], "[========================] 100 %  done") {
		t.Errorf("%q", lines)
	}
	if last := lines[len(lines)-2]; lines[len(lines)-1] != "" || strings.TrimSpace(last) != "" {
		t.Errorf("something is left: %q", lines)
	}
	w.Reset()
	if (&bar{w: &w}).end(); w.Len() > 0 {
		t.Errorf("%q of a bar that was never drawn", w.String())
	}
}
