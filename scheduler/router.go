package scheduler

// tokens advances a request by what was decoded. Each phase takes what is its
// own and hands on the rest, so the order of these lines is the order of the
// phases.
func (c *Core) tokens(k int32, s *slot, toks []int32) {
	s.grow(len(toks))
	if s.phase == Prefill {
		toks = c.prefill(k, s, toks)
	}
	if s.phase == ThinkDecode {
		toks = c.think(k, s, toks)
	}
	if s.phase == OutputDecode {
		toks = c.output(k, s, toks)
	}
	if len(toks) > 0 {
		c.counts.add(atAfterEnd, uint64(len(toks)))
	}
}

// maxBlank bounds the white space before a start marker, in tokens.
const maxBlank = 64

// prefill looks for a start marker that begins with the first decoded token that
// is not white space, or with the prompt's tail.
func (c *Core) prefill(k int32, s *slot, toks []int32) []int32 {
	if len(toks) == 0 {
		return nil
	}
	m := s.model
	if s.open {
		c.enterThink(s, toks)
		return toks
	}
	for i, t := range toks {
		if m.isEOS(t) {
			c.complete(k, s, EOS, toks[i+1:])
			return toks[i+1:]
		}
		if s.match == 0 && s.decoded == 0 && s.blank < maxBlank && m.isSpace(t) {
			s.blank++
			continue
		}
		s.match = m.start.step(s.match, t)
		if m.start.whole(s.match) {
			s.match = 0
			c.enterThink(s, toks[i+1:])
			return toks[i+1:]
		}
		// A state below the number of decoded tokens leaves the first of them
		// outside of any marker to come: it was output.
		if s.decoded++; s.match < s.decoded {
			c.move(s, OutputDecode)
			c.counts.hot[hotOutput] += uint64(s.blank) + uint64(s.decoded-1)
			return toks[i:]
		}
	}
	return nil
}

// enterThink begins thinking with the tokens of rest, or with what comes next.
func (c *Core) enterThink(s *slot, rest []int32) {
	c.move(s, ThinkDecode)
	c.emit(Event{Kind: EnterThink, ID: s.id, Pos: s.before(rest)})
}

// think counts a token, then looks at it.
func (c *Core) think(k int32, s *slot, toks []int32) []int32 {
	m, match := s.model, s.match
	for i, t := range toks {
		match = m.end.step(match, t)
		if m.end.whole(match) {
			c.thought(s, i+1)
			c.exitThink(k, s, toks[i+1:])
			return toks[i+1:]
		}
		if m.isEOS(t) {
			c.thought(s, i+1)
			c.complete(k, s, EOS, toks[i+1:])
			return toks[i+1:]
		}
	}
	s.match = match
	c.thought(s, len(toks))
	if !s.advised && s.used >= c.limit(m) {
		c.force(s, HardCap)
	}
	return nil
}

// limit is the most thinking tokens of a model.
func (c *Core) limit(m *compiled) uint32 {
	if m.maxThink > 0 {
		return m.maxThink
	}
	return c.cfg.MaxThink
}

// thought counts n thinking tokens.
func (c *Core) thought(s *slot, n int) {
	s.used += uint32(n)
	c.counts.hot[hotThink] += uint64(n)
}

// force advises the engine to end the thinking, or says that it cannot.
func (c *Core) force(s *slot, why Reason) {
	s.advised = true
	if len(s.model.end.seq) == 0 {
		c.emit(Event{Kind: CannotForce, ID: s.id, Pos: s.total, Used: s.used, Reason: NoEnd})
		return
	}
	c.counts.add(atReason+int(why), 1)
	c.emit(Event{Kind: ForceBudget, ID: s.id, Pos: s.total, Used: s.used, Reason: why, Inject: s.model.end.seq})
}

// probed gives a signal to the request's monitor. One that no decision can
// follow from is counted as idle.
func (c *Core) probed(k int32, s *slot, x Signal) {
	if !x.valid() {
		c.counts.add(atSignalsBad, 1)
		return
	}
	if c.monitors == nil || s.phase != ThinkDecode || s.advised {
		c.counts.add(atSignalsIdle, 1)
		return
	}
	why, used := c.monitors[k].sample(s.used, x)
	if !used {
		c.counts.add(atSignalsIdle, 1)
		return
	}
	c.counts.add(atSignals, 1)
	if why != NoReason {
		c.force(s, why)
	}
}

// exitThink ends thinking; the answer begins with the tokens of rest.
func (c *Core) exitThink(k int32, s *slot, rest []int32) {
	s.exited = true
	at := s.before(rest)
	c.answerAt[k] = at
	c.counts.observe(s.used)
	c.move(s, OutputDecode)
	c.emit(Event{Kind: ExitThink, ID: s.id, Pos: at, Used: s.used})
	c.offload(k, s)
}

// output looks for the end of the sequence only: a start marker here is text.
func (c *Core) output(k int32, s *slot, toks []int32) []int32 {
	for i, t := range toks {
		if s.model.isEOS(t) {
			c.counts.hot[hotOutput] += uint64(i + 1)
			c.complete(k, s, EOS, toks[i+1:])
			return toks[i+1:]
		}
	}
	c.counts.hot[hotOutput] += uint64(len(toks))
	return nil
}

// complete ends a request, once, before the tokens of rest. The remainder leaves
// first, so that after Completed nothing but late blocks follows.
func (c *Core) complete(k int32, s *slot, why Reason, rest []int32) {
	if s.phase == Complete {
		return
	}
	if s.phase == ThinkDecode {
		c.counts.observe(s.used)
		c.answerAt[k] = s.before(rest)
	}
	c.flush(s)
	c.move(s, Complete)
	c.counts.add(atReason+int(why), 1)
	c.emit(Event{Kind: Completed, ID: s.id, Pos: s.before(rest), Used: s.used, Reason: why})
	c.settle(s, s.offloaded)
}

func (c *Core) move(s *slot, to Phase) {
	c.counts.sub(atPhase+int(s.phase), 1)
	c.counts.add(atPhase+int(to), 1)
	s.phase = to
}
