package llama_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// fakeArg is an argument by which this binary is a llama-server. What follows is how
// it misbehaves: "forget", its restores leave the slot empty and say so; "lie", they
// leave it empty and say nothing.
const fakeArg = "fake-llama-server"

// fakeServer is llama-server with a model whose KV of a token is a sum over the
// weights, the adapter, the base of rotation, and the tokens up to it, and whose next
// token follows from all KV that is in the slot: an answer shows by which KV it was
// made.
type fakeServer struct {
	origin  [32]byte // of the weights and settings
	context int
	files   string
	model   string
	how     string

	mu    sync.Mutex
	slots []fakeSlot
}

type fakeSlot struct {
	tokens []int32
	kv     [][32]byte
}

const fakeVocabulary = 300

// playFake serves until it is killed.
func playFake(args []string) error {
	get := func(name string) string {
		if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	s := &fakeServer{files: get("--slot-save-path"), model: get("--model"), how: get(fakeArg)}
	count, err := strconv.Atoi(get("--parallel"))
	if err != nil {
		return err
	}
	s.slots = make([]fakeSlot, count)
	size, err := strconv.Atoi(get("--ctx-size"))
	if err != nil {
		return err
	}
	s.context = size / count
	h := sha256.New()
	shards := []string{s.model}
	if prefix, ok := strings.CutSuffix(s.model, "-00001-of-00002.gguf"); ok {
		shards = append(shards, prefix+"-00002-of-00002.gguf")
	}
	if lora := get("--lora"); lora != "" {
		shards = append(shards, lora)
	}
	for _, path := range shards {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, _ = h.Write(b)
	}
	_, _ = h.Write([]byte(os.Getenv("LLAMA_ARG_ROPE_FREQ_BASE")))
	copy(s.origin[:], h.Sum(nil))
	if err := os.WriteFile("/proc/self/comm", []byte("llama-server"), 0o600); err != nil {
		return err
	}
	l, err := net.Listen("unix", get("--host"))
	if err != nil {
		return err
	}
	return http.Serve(l, s)
}

type fakeCall struct {
	Prompt   []int32
	Slot     int `json:"id_slot"`
	Predict  int `json:"n_predict"`
	Stream   bool
	Probs    int    `json:"n_probs"`
	Filename string `json:"filename"`
	Content  string
	Tokens   []int32
	Messages []struct{ Content string }
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var q fakeCall
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	var out any
	switch r.URL.Path {
	case "/health":
		out = map[string]string{"status": "ok"}
	case "/props":
		out = map[string]any{"default_generation_settings": map[string]int{"n_ctx": s.context}, "total_slots": len(s.slots), "build_info": "b1-fake", "model_path": s.model, "chat_template": ""}
	case "/v1/models":
		out = map[string]any{"data": []any{map[string]any{"meta": map[string]int{"n_vocab": fakeVocabulary}}}}
	case "/lora-adapters":
		out = []any{}
	case "/tokenize":
		tokens := []int32{}
		for _, b := range []byte(q.Content) {
			tokens = append(tokens, int32(b))
		}
		out = map[string]any{"tokens": tokens}
	case "/detokenize":
		text := ""
		for _, t := range q.Tokens {
			text += string(t)
		}
		out = map[string]string{"content": text}
	case "/apply-template":
		text := ""
		for _, m := range q.Messages {
			text += m.Content + "\n"
		}
		out = map[string]string{"prompt": text}
	case "/completion":
		s.complete(w, &q)
		return
	default:
		var err error
		if out, err = s.act(r, &q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// extend computes the KV of tokens behind what the slot has.
func (s *fakeServer) extend(slot *fakeSlot, tokens ...int32) {
	for _, t := range tokens {
		last := s.origin
		if n := len(slot.kv); n > 0 {
			last = slot.kv[n-1]
		}
		slot.kv = append(slot.kv, sha256.Sum256(binary.LittleEndian.AppendUint32(last[:], uint32(t))))
		slot.tokens = append(slot.tokens, t)
	}
}

// next is a token that follows from all KV of the slot: a printable one.
func (slot *fakeSlot) next() int32 {
	h := sha256.New()
	for _, kv := range slot.kv {
		_, _ = h.Write(kv[:])
	}
	return int32('a' + h.Sum(nil)[0]%26)
}

func (s *fakeServer) complete(w http.ResponseWriter, q *fakeCall) {
	slot := &s.slots[q.Slot]
	cached := 0
	for cached < len(slot.tokens) && cached < len(q.Prompt)-1 && slot.tokens[cached] == q.Prompt[cached] {
		cached++
	}
	slot.tokens, slot.kv = slot.tokens[:cached], slot.kv[:cached]
	s.extend(slot, q.Prompt[cached:]...)
	answer := map[string]any{"id_slot": q.Slot, "stop": true, "stop_type": "limit", "timings": map[string]int{"cache_n": cached, "prompt_n": len(q.Prompt) - cached}}
	var ids []int32
	var probs []any
	enc := json.NewEncoder(w)
	for i := range max(1, q.Predict) {
		if i > 0 {
			s.extend(slot, ids[i-1])
		}
		id := slot.next()
		ids = append(ids, id)
		p := map[string]any{"id": id, "bytes": []int{int(id)}, "logprob": -0.5, "top_logprobs": []any{map[string]any{"id": id, "bytes": []int{int(id)}, "logprob": -0.5}}}
		probs = append(probs, p)
		if q.Stream {
			_, _ = fmt.Fprint(w, "data: ")
			_ = enc.Encode(map[string]any{"id_slot": -1, "stop": false, "tokens": []int32{id}, "tokens_predicted": i + 1, "completion_probabilities": []any{p}})
			_, _ = fmt.Fprint(w, "\n")
		}
	}
	answer["tokens"], answer["tokens_predicted"], answer["completion_probabilities"] = ids, len(ids), probs
	if q.Stream {
		_, _ = fmt.Fprint(w, "data: ")
	}
	_ = enc.Encode(answer)
}

// act saves, restores or erases a slot.
func (s *fakeServer) act(r *http.Request, q *fakeCall) (any, error) {
	id, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/slots/"))
	if err != nil || id >= len(s.slots) {
		return nil, fmt.Errorf("no such request: %s", r.URL.Path)
	}
	slot, path := &s.slots[id], filepath.Join(s.files, q.Filename)
	switch r.URL.Query().Get("action") {
	case "save":
		return map[string]int{"n_saved": len(slot.tokens)}, os.WriteFile(path, slot.state(), 0o600)
	case "erase":
		n := len(slot.tokens)
		*slot = fakeSlot{}
		return map[string]int{"n_erased": n}, nil
	case "restore":
		b, err := os.ReadFile(path)
		*slot = fakeSlot{}
		if err != nil {
			return nil, err
		}
		n, err := slot.load(b)
		if err == nil && s.how != "" {
			*slot = fakeSlot{}
		}
		if s.how == "forget" {
			n = 0
		}
		return map[string]int{"n_restored": n}, err
	}
	return nil, errors.New("no such action")
}

// state is a slot of one layer, K and V of 16 f16 numbers a token each.
func (slot *fakeSlot) state() []byte {
	var b []byte
	put := func(vs ...uint32) {
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	n := uint32(len(slot.tokens))
	put(0x67677371, 2, n+4, ^uint32(0), 1, n)
	for _, t := range slot.tokens {
		put(uint32(t))
	}
	put(0, 1, n)
	for i := range n {
		put(i, 1, 0)
	}
	put(0, 1)
	for range 2 {
		put(1, 32, 0)
		for _, kv := range slot.kv {
			b = append(b, kv[:]...)
		}
	}
	return b
}

func (slot *fakeSlot) load(b []byte) (int, error) {
	if len(b) < 24 || binary.LittleEndian.Uint32(b[4:]) != 2 {
		return 0, errors.New("no state")
	}
	n := int(binary.LittleEndian.Uint32(b[20:]))
	for i := range n {
		slot.tokens = append(slot.tokens, int32(binary.LittleEndian.Uint32(b[24+4*i:])))
	}
	at := 24 + 4*n + 12 + 12*n + 8 + 12
	for i := range n {
		slot.kv = append(slot.kv, [32]byte(b[at+32*i:]))
	}
	if !bytes.Equal(slot.state(), b) {
		*slot = fakeSlot{}
		return 0, errors.New("the state is not what this server writes")
	}
	return n, nil
}
