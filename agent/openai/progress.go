package openai

import (
	"bytes"
	"encoding/json"
	"time"
)

// Progress is what a node tells of its work while another one waits for it: signs
// of life alone do not tell slow from stuck.
type Progress struct {
	// Done counts the steps that the node and its engine have ended, for whatever
	// request. It changes while they work.
	Done uint64 `json:"done"`
	// WaitMS is how long the longest step under way may take, in milliseconds; 0:
	// none is under way.
	WaitMS uint32 `json:"wait_ms"`
}

// MaxWait bounds what a waiting node believes of Progress.WaitMS.
const MaxWait = 8 * time.Second

func (p Progress) wait() time.Duration {
	return min(time.Duration(p.WaitMS)*time.Millisecond, MaxWait)
}

// aliveComment begins a sign of life within a stream; a Progress may follow.
const aliveComment = ": alive"

// aliveLine is a sign of life within the stream of another node.
func aliveLine(p Progress) []byte {
	b, _ := json.Marshal(p) // numbers marshal
	return append(append([]byte(aliveComment+" "), b...), "\n\n"...)
}

// waitingLine is a sign of life for a client, whom the numbers do not concern. Source of
// comments: HTML Living Standard, 9.2.6.
var waitingLine = []byte(": waiting\n\n")

// aliveIn reads a line of a stream; false: it is no sign of life. One without
// numbers tells of no progress.
func aliveIn(line []byte) (p Progress, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(aliveComment))
	if !ok || json.Unmarshal(rest, &p) != nil {
		return Progress{}, ok
	}
	return p, true
}

// Watchdog ends a wait for a node that gives signs of life and makes no progress for
// as long as a bound, beyond what it says that its step may take. One that gives no
// sign of life is for another to notice. It is for one goroutine.
type Watchdog struct {
	bound time.Duration // 0: none
	end   func()

	timer *time.Timer
	since time.Time // when the last progress was seen
	seen  Progress
	knows bool // seen is what the node has told
}

// NewWatchdog makes one that calls end, and begins. A bound of 0 is none.
func NewWatchdog(bound time.Duration, end func()) *Watchdog {
	return &Watchdog{bound: bound, end: end, since: time.Now()}
}

// Begin starts the wait anew: something that was waited for has come, or nothing
// was waited for until now.
func (w *Watchdog) Begin() {
	w.Stop()
	w.since = time.Now()
}

// Saw takes a sign of life in. The first one tells nothing of how the work goes on.
func (w *Watchdog) Saw(p Progress) {
	if w.knows && p.Done != w.seen.Done {
		w.since = time.Now()
	}
	w.seen, w.knows = p, true
	if w.bound == 0 {
		return
	}
	left := time.Until(w.since.Add(w.bound + w.seen.wait()))
	if w.timer == nil {
		w.timer = time.AfterFunc(left, w.end)
		return
	}
	w.timer.Reset(left)
}

// Stop ends the wait.
func (w *Watchdog) Stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
