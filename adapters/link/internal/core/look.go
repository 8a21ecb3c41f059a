package core

import (
	"slices"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// lookJob is a HAS some of whose blocks are looked for elsewhere.
type lookJob struct {
	looker Looker
	blocks []Block
	items  []proto.Want
}

// maxLooking is how many HAS of a session are looked for elsewhere at a time; others are
// answered at once.
const maxLooking = 4

// looks reports whether a block is asked for by key that is not here and may be
// elsewhere.
func (s *Session) looks(b []Block) bool {
	return s.cfg.Looker != nil && s.looking < maxLooking &&
		slices.ContainsFunc(b, func(b Block) bool { return b.Code == wire.CodeAbsent && b.Gen == 0 }) && s.cfg.Looker.Looks()
}

// looked answers a HAS with what is here now.
func (l *Lane) looked(now time.Duration, j *Job) {
	r, s := j.r, l.s
	s.looking--
	if !r.dead {
		b := s.wanted(j.look.items)
		s.cfg.Store.Stat(b)
		l.tabled(now, r, j.look.items, b)
	}
	s.unref(now, r)
}
