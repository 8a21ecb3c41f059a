package scheduler_test

import (
	"slices"

	"meridian/scheduler"
)

// reference is the router written for reading: it keeps every token and every
// request, compares whole sequences, and searches instead of remembering. It
// shares no code with the core.
type reference struct {
	models    map[string]scheduler.Model
	threshold uint32
	after     scheduler.Time
	reapAfter scheduler.Time
	limit     int
	rules     scheduler.SignalConfig
	now       scheduler.Time
	reqs      map[scheduler.ID]*refRequest
	events    []scheduler.Event

	signals, idle, bad uint64
}

type refRequest struct {
	samples map[scheduler.SignalName][]refSample
	model   scheduler.Model
	phase   scheduler.Phase
	stream  []int32 // prompt and decoded tokens since the last marker
	all     []int32 // the whole sequence
	think   []bool  // which of all are of the thinking
	open    bool
	decoded int // in Prefill
	used    uint32
	advised bool
	exited  bool
	blocks  uint32
	waiting bool
	due     scheduler.Time
	seen    scheduler.Time
}

type refSample struct {
	at uint32
	x  float64
}

func endsWith(stream, tail []int32) bool {
	return len(tail) > 0 && len(stream) >= len(tail) && slices.Equal(stream[len(stream)-len(tail):], tail)
}

func (f *reference) emit(e scheduler.Event) { f.events = append(f.events, e) }

func (f *reference) step(now scheduler.Time, x scheduler.Input) {
	f.now = max(f.now, now)
	r := f.reqs[x.ID]
	switch {
	case x.Kind == scheduler.Arrive && r != nil:
		f.emit(scheduler.Event{Kind: scheduler.Refused, ID: x.ID, Reason: scheduler.Duplicate})
	case x.Kind == scheduler.Arrive && len(f.reqs) >= f.limit:
		f.emit(scheduler.Event{Kind: scheduler.Refused, ID: x.ID, Reason: scheduler.Full})
	case x.Kind == scheduler.Arrive:
		f.arrive(x)
	case r == nil:
	case x.Kind == scheduler.Tokens:
		r.seen = f.now
		for _, t := range x.Tokens {
			f.token(x.ID, r, t)
		}
		f.look(x.ID, r)
	case x.Kind == scheduler.KV:
		r.seen = f.now
		if x.Think || r.phase == scheduler.ThinkDecode {
			r.blocks += x.Blocks
			f.cold(x.ID, r, r.phase == scheduler.Complete)
		}
	case x.Kind == scheduler.Probed:
		r.seen = f.now
		f.probed(x.ID, r, x.Signal)
	case x.Kind == scheduler.Abort:
		delete(f.reqs, x.ID)
	case x.Kind == scheduler.Done:
		f.complete(x.ID, r, scheduler.Finished)
		delete(f.reqs, x.ID)
	}
}

func (f *reference) arrive(x scheduler.Input) {
	r := &refRequest{model: f.models[x.Model], seen: f.now, samples: map[scheduler.SignalName][]refSample{}}
	r.arrive(x.Tokens)
	r.all = append(make([]int32, x.First), x.Tokens...)
	r.think = make([]bool, len(r.all))
	f.reqs[x.ID] = r
	seen := len(f.events)
	for _, t := range x.Decoded {
		f.token(x.ID, r, t)
	}
	if len(x.Decoded) > 0 {
		f.look(x.ID, r)
	}
	if r.phase != scheduler.ThinkDecode {
		f.events = append(f.events[:seen], slices.DeleteFunc(slices.Clone(f.events[seen:]), func(e scheduler.Event) bool { return e.Kind == scheduler.EnterThink })...)
	}
}

// arrive tries every way in which a prompt may end open: a start marker, up to
// four ids of white space, the beginning of an end marker. If none fits, the prompt is
// only the stream that a start marker may go on from.
func (r *refRequest) arrive(prompt []int32) {
	m := r.model
	for n := 0; len(m.Start) > 0 && n <= max(len(m.End)-1, 0); n++ {
		for spaces := range 5 {
			rest := len(prompt) - n - spaces
			if rest < 0 || !endsWith(prompt, m.End[:n]) && n > 0 {
				continue
			}
			if slices.ContainsFunc(prompt[rest:rest+spaces], func(t int32) bool { return !r.space(t) }) {
				continue
			}
			if endsWith(prompt[:rest], m.Start) && !(len(m.End) > len(m.Start) && endsWith(prompt[:rest], m.End)) {
				r.open, r.stream = true, slices.Clone(m.End[:n])
				return
			}
		}
	}
	for _, t := range prompt[max(0, len(prompt)-scheduler.MaxMarker):] {
		if r.stream = append(r.stream, t); endsWith(r.stream, m.Start) {
			r.stream = nil
		}
	}
}

func (r *refRequest) space(t int32) bool {
	m := r.model
	return slices.Contains(m.Space, t) && !slices.Contains(m.Start, t) && !slices.Contains(m.End, t)
}

func (f *reference) token(id scheduler.ID, r *refRequest, t int32) {
	if r.phase == scheduler.Prefill && r.open {
		r.phase = scheduler.ThinkDecode
		f.emit(scheduler.Event{Kind: scheduler.EnterThink, ID: id, Pos: uint32(len(r.all))})
	}
	r.stream = append(r.stream, t)
	r.all = append(r.all, t)
	r.think = append(r.think, r.phase == scheduler.ThinkDecode)
	eos := slices.Contains(r.model.EOS, t)
	switch r.phase {
	case scheduler.Prefill:
		if !eos && r.decoded == 0 && r.space(t) && !r.begun() {
			r.stream = r.stream[:len(r.stream)-1]
			return
		}
		r.decoded++
		switch {
		case eos:
			f.complete(id, r, scheduler.EOS)
		case endsWith(r.stream, r.model.Start):
			r.phase, r.stream = scheduler.ThinkDecode, nil
			f.emit(scheduler.Event{Kind: scheduler.EnterThink, ID: id, Pos: uint32(len(r.all))})
		case !r.mayStart():
			r.phase = scheduler.OutputDecode
		}
	case scheduler.ThinkDecode:
		r.used++
		switch {
		case endsWith(r.stream, r.model.End):
			r.phase, r.exited = scheduler.OutputDecode, true
			f.emit(scheduler.Event{Kind: scheduler.ExitThink, ID: id, Pos: uint32(len(r.all)), Used: r.used})
			f.cold(id, r, false)
		case eos:
			f.complete(id, r, scheduler.EOS)
		}
	case scheduler.OutputDecode:
		if eos {
			f.complete(id, r, scheduler.EOS)
		}
	}
}

// mayStart says whether all decoded tokens can belong to a start marker that is
// not whole yet.
func (r *refRequest) mayStart() bool {
	for n := r.decoded; n < len(r.model.Start); n++ {
		if endsWith(r.stream, r.model.Start[:n]) {
			return true
		}
	}
	return false
}

// begun says whether the prompt's tail is the beginning of a start marker. The
// last of the stream was decoded.
func (r *refRequest) begun() bool {
	tail := r.stream[:len(r.stream)-1]
	for n := 1; n < len(r.model.Start); n++ {
		if endsWith(tail, r.model.Start[:n]) {
			return true
		}
	}
	return false
}

// part looks at each token; what is not there yet is of a thinking that goes on.
func (f *reference) part(id scheduler.ID, pos, n uint32) (scheduler.Part, bool) {
	r := f.reqs[id]
	if r == nil {
		return scheduler.Rest, false
	}
	on := r.phase == scheduler.ThinkDecode || r.phase == scheduler.Prefill && r.open
	if on {
		n = max(n, uint32(len(r.all)))
	}
	for i := pos; i < pos+n; i++ {
		if there := int(i) < len(r.all); there && !r.think[i] || !there && !on {
			return scheduler.Rest, true
		}
	}
	if on {
		return scheduler.Thinking, true
	}
	return scheduler.Thought, true
}

// look is the cap, once the tokens of an input are through.
func (f *reference) look(id scheduler.ID, r *refRequest) {
	if r.phase != scheduler.ThinkDecode || r.advised || r.used < r.model.MaxThink {
		return
	}
	f.force(id, r, scheduler.HardCap)
}

func (f *reference) force(id scheduler.ID, r *refRequest, why scheduler.Reason) {
	r.advised = true
	if len(r.model.End) == 0 {
		f.emit(scheduler.Event{Kind: scheduler.CannotForce, ID: id, Pos: uint32(len(r.all)), Used: r.used, Reason: scheduler.NoEnd})
		return
	}
	f.emit(scheduler.Event{Kind: scheduler.ForceBudget, ID: id, Pos: uint32(len(r.all)), Used: r.used, Reason: why, Inject: r.model.End})
}

// probed keeps every sample and judges from all of them.
func (f *reference) probed(id scheduler.ID, r *refRequest, s scheduler.Signal) {
	if s.Check() != nil {
		f.bad++
		return
	}
	x := r.samples[s.Name]
	soon := s.Name != scheduler.SigRPDI && len(x) > 0 && r.used-x[len(x)-1].at < f.rules.ProbeInterval
	if r.phase != scheduler.ThinkDecode || r.advised || soon {
		f.idle++
		return
	}
	f.signals++
	x = append(x, refSample{r.used, float64(s.Value)})
	r.samples[s.Name] = x
	least := r.model.MinThink
	if least == 0 {
		least = f.rules.MinThink
	}
	if why := f.judge(s.Name, x); why != scheduler.NoReason && r.used >= least {
		f.force(id, r, why)
	}
}

func (f *reference) judge(name scheduler.SignalName, x []refSample) scheduler.Reason {
	c := f.rules
	warm := float64(len(x)-1) >= 4/c.Alpha
	switch name {
	case scheduler.SigPEnd:
		if m, v := averages(c.Alpha, x); warm && v < c.VarianceThreshold && m >= c.PEndLevel {
			return scheduler.Converged
		}
	case scheduler.SigEAT:
		if m, v := averages(c.Alpha, x); warm && v < c.VarianceThreshold && m <= c.EATLevel {
			return scheduler.Converged
		}
	case scheduler.SigEntropy:
		var turns []refSample
		sum := 0.0
		for _, s := range x {
			turn := 0.0
			if s.x > c.TransitionEntropy {
				turn = 1
			}
			turns = append(turns, refSample{x: turn})
			sum += turn
		}
		m, _ := averages(c.Alpha, turns)
		if warm && m >= c.TransitionLevel && m/(sum/float64(len(x))) > c.RPDIThreshold {
			return scheduler.Overthinking
		}
	case scheduler.SigRPDI:
		if x[len(x)-1].x > c.RPDILambda {
			return scheduler.Overthinking
		}
	}
	return scheduler.NoReason
}

// averages are the moving mean and variance of all samples.
func averages(a float64, x []refSample) (m, v float64) {
	m = x[0].x
	for _, s := range x[1:] {
		m = a*s.x + (1-a)*m
		v = a*(s.x-m)*(s.x-m) + (1-a)*v
	}
	return m, v
}

// cold emits whole batches, and the remainder too if all is set.
func (f *reference) cold(id scheduler.ID, r *refRequest, all bool) {
	if !r.exited || f.threshold == 0 {
		return
	}
	for r.blocks > 0 && (all || r.blocks >= f.threshold) {
		n := min(r.blocks, f.threshold)
		r.blocks -= n
		r.waiting = false
		f.emit(scheduler.Event{Kind: scheduler.Offload, ID: id, Used: r.used, Blocks: n})
	}
	if r.blocks > 0 && !r.waiting {
		r.waiting, r.due = true, f.now+f.after
	}
}

func (f *reference) complete(id scheduler.ID, r *refRequest, why scheduler.Reason) {
	if r.phase == scheduler.Complete {
		return
	}
	f.cold(id, r, true)
	r.phase = scheduler.Complete
	f.emit(scheduler.Event{Kind: scheduler.Completed, ID: id, Pos: uint32(len(r.all)), Used: r.used, Reason: why})
}

func (f *reference) tick(now scheduler.Time) {
	f.now = max(f.now, now)
	for id, r := range f.reqs {
		if r.waiting && r.due <= f.now {
			f.cold(id, r, true)
		}
		if r.seen+f.reapAfter <= f.now {
			f.emit(scheduler.Event{Kind: scheduler.Reaped, ID: id, Pos: uint32(len(r.all)), Used: r.used, Reason: scheduler.Stale})
			delete(f.reqs, id)
		}
	}
}

// next is the first instant at which a tick changes anything.
func (f *reference) next() scheduler.Time {
	next := scheduler.Never
	for _, r := range f.reqs {
		if r.waiting {
			next = min(next, r.due)
		}
		next = min(next, r.seen+f.reapAfter)
	}
	return next
}
