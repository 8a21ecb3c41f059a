package fakeserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// vocabulary bounds the ids that the fake hands out.
const vocabulary = 1 << 20

type server struct {
	script         Script
	context, slots int
	model, dir     string // the model file, the folder of slot states
	stalls         bool

	mu     sync.Mutex
	ids    map[string]int32
	words  []string
	cached map[int][]int32
	saves  int
}

// Main is the program: it reads llama-server's own arguments and serves on a Unix
// socket until it is killed.
func Main(args []string) error {
	flag := map[string]string{}
	for i, a := range args {
		if strings.HasPrefix(a, "--") && i+1 < len(args) {
			flag[a] = args[i+1]
		}
	}
	b, err := os.ReadFile(flag["--model"])
	if err != nil {
		return err
	}
	s := &server{model: flag["--model"], dir: flag["--slot-save-path"], stalls: flag["--alias"] == Stalls, ids: map[string]int32{}, cached: map[int][]int32{}}
	if err := errors.Join(json.Unmarshal(b, &s.script), s.script.read()); err != nil {
		return err
	}
	total, err1 := strconv.Atoi(flag["--ctx-size"])
	s.slots, err = strconv.Atoi(flag["--parallel"])
	if err := errors.Join(err, err1); err != nil {
		return err
	}
	s.context = total / s.slots
	ln, err := net.Listen("unix", flag["--host"])
	if err != nil {
		return err
	}
	return http.Serve(ln, s.handler())
}

// Runs says whether arguments are those of a llama-server.
func Runs(args []string) bool {
	for _, a := range args {
		if a == "--slot-save-path" {
			return true
		}
	}
	return false
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { say(w, map[string]string{"status": "ok"}) })
	mux.HandleFunc("/props", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"default_generation_settings": map[string]int{"n_ctx": s.context}, "total_slots": s.slots,
			"build_info": "fake-1", "model_path": s.model, "chat_template": templates[s.script.Template]})
	})
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"data": []any{map[string]any{"meta": map[string]int{"n_vocab": vocabulary}}}})
	})
	mux.HandleFunc("/tokenize", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Content string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		say(w, map[string]any{"tokens": s.intern(s.script.tokenize(in.Content))})
	})
	mux.HandleFunc("/detokenize", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Tokens []int32 }
		_ = json.NewDecoder(r.Body).Decode(&in)
		say(w, map[string]any{"content": strings.Join(s.said(in.Tokens), "")})
	})
	mux.HandleFunc("/apply-template", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Messages []message
			Kwargs   map[string]any `json:"chat_template_kwargs"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		say(w, map[string]any{"prompt": s.script.render(in.Messages, in.Kwargs)})
	})
	mux.HandleFunc("/lora-adapters", func(w http.ResponseWriter, _ *http.Request) { say(w, []int{}) })
	mux.HandleFunc("/completion", s.completion)
	mux.HandleFunc("/slots/{id}", s.slot)
	return mux
}

// intern gives each piece of text an id.
func (s *server) intern(pieces []string) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]int32, 0, len(pieces))
	for _, p := range pieces {
		id, ok := s.ids[p]
		if !ok {
			id = int32(len(s.words))
			s.ids[p], s.words = id, append(s.words, p)
		}
		out = append(out, id)
	}
	return out
}

func (s *server) said(ids []int32) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, len(ids))
	for i, id := range ids {
		if int(id) < len(s.words) {
			out[i] = s.words[id]
		}
	}
	return out
}

func (s *server) completion(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt  []int32
		Slot    int `json:"id_slot"`
		Predict int `json:"n_predict"`
		Stream  bool
		Tells   bool `json:"return_progress"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	have := 0
	for old := s.cached[in.Slot]; have < min(len(old), len(in.Prompt)-1) && old[have] == in.Prompt[have]; {
		have++
	}
	s.mu.Unlock()
	if have < len(in.Prompt)-1 {
		s.prefill(w, r, in.Stream && in.Tells, have, len(in.Prompt))
	}
	all, why := append([]int32(nil), in.Prompt...), "limit"
	var events []map[string]any
	sent := 0
	send := func(e map[string]any) {
		b, _ := json.Marshal(e)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", b)
		_ = http.NewResponseController(w).Flush()
	}
	for range in.Predict {
		if s.script.StepMS > 0 {
			select {
			case <-time.After(time.Duration(s.script.StepMS) * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		word := s.script.next(s.said(all))
		id := s.intern([]string{word})[0]
		all = append(all, id)
		if word == endOfText || s.script.Special && (word == start || word == end) { // control tokens have no text
			why, word = map[bool]string{true: "eos", false: why}[word == endOfText], ""
		}
		text := make([]int, 0, len(word))
		for _, c := range []byte(word) {
			text = append(text, int(c))
		}
		events = append(events, map[string]any{"tokens": []int32{id}, "stop": false, "id_slot": -1, "tokens_predicted": len(events) + 1,
			"completion_probabilities": []any{map[string]any{"id": id, "bytes": text, "logprob": -0.5, "top_logprobs": []any{}}}})
		if in.Stream && s.script.StepMS > 0 {
			send(events[sent])
			sent++
		}
		if why == "eos" {
			break
		}
	}
	s.mu.Lock()
	s.cached[in.Slot] = all[:max(len(in.Prompt), len(all)-1)]
	s.mu.Unlock()
	last := map[string]any{"stop": true, "stop_type": why, "id_slot": in.Slot, "tokens_predicted": len(events), "tokens": []int32{},
		"timings": map[string]int{"cache_n": have, "prompt_n": len(in.Prompt) - have}}
	if !in.Stream {
		_ = json.NewEncoder(w).Encode(last)
		return
	}
	for _, e := range append(events, last)[sent:] {
		send(e)
	}
}

// prefill takes the script's time for a prompt.
func (s *server) prefill(w http.ResponseWriter, r *http.Request, tells bool, have, total int) {
	const steps = 10
	for i := range steps + 1 {
		if i > 0 {
			time.Sleep(time.Duration(s.script.PrefillMS) * time.Millisecond / steps)
		}
		if tells {
			_, _ = fmt.Fprintf(w, `data: {"tokens":[0],"stop":false,"id_slot":-1,"tokens_predicted":0,"prompt_progress":{"total":%d,"cache":%d,"processed":%d}}`+"\n\n", total, have, have+(total-have)*i/steps)
			_ = http.NewResponseController(w).Flush()
		}
		if s.stalls {
			<-r.Context().Done()
		}
	}
}

// slot saves and restores states of version 2: one layer of four bytes a token.
func (s *server) slot(w http.ResponseWriter, r *http.Request) {
	var in struct{ Filename string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	id, _ := strconv.Atoi(r.PathValue("id"))
	path := filepath.Join(s.dir, filepath.Base(in.Filename))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Query().Get("action") {
	case "save":
		if s.saves++; s.script.Saves > 0 && s.saves > s.script.Saves {
			http.Error(w, "no space left", http.StatusInternalServerError)
			return
		}
		if err := os.WriteFile(path, s.state(id), 0o600); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id_slot": id, "n_saved": len(s.cached[id])})
	case "restore":
		b, err := os.ReadFile(path)
		if err != nil || len(b) < 24 {
			http.Error(w, "no state", http.StatusBadRequest)
			return
		}
		tokens := make([]int32, binary.LittleEndian.Uint32(b[20:]))
		_ = binary.Read(bytes.NewReader(b[24:]), binary.LittleEndian, tokens)
		s.cached[id] = tokens
		_ = json.NewEncoder(w).Encode(map[string]any{"id_slot": id, "n_restored": len(tokens)})
	default:
		s.cached[id] = nil
		_ = json.NewEncoder(w).Encode(map[string]any{"id_slot": id, "n_erased": 0})
	}
}

// state is the file of a slot: adapters/llamacpp/state.go reads it.
func (s *server) state(id int) []byte {
	tokens := s.cached[id]
	n := uint32(len(tokens))
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes all
		}
	}
	put(uint32(0x67677371), uint32(2), n+4, int32(-1), int32(1), int32(n), tokens, int32(0), uint32(s.slots))
	for slot := range s.slots {
		if slot != id {
			put(uint32(0))
			continue
		}
		put(n)
		for i := range n {
			put(int32(i), uint32(1), int32(0))
		}
		put(uint32(0), uint32(1))
		for range 2 { // K, V
			put(int32(1), uint64(4), make([]byte, 4*n))
		}
	}
	return b.Bytes()
}
