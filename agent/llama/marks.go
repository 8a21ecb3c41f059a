package llama

import (
	"context"
	"strings"

	"meridian/scheduler"
)

// learnMarks finds the token ids and the text of the thinking markers, and tells
// the daemon.
func (n *Node) learnMarks(ctx context.Context, s *server) (err error) {
	t := &n.cfg.Thinking
	s.marks = scheduler.Model{Name: n.cfg.Name, Start: t.StartIDs, End: t.EndIDs, StartText: t.Start, EndText: t.End, KeepsThinking: t.Keeps}
	for _, m := range []struct {
		ids  *[]int32
		text *string
	}{{&s.marks.Start, &s.marks.StartText}, {&s.marks.End, &s.marks.EndText}} {
		if err := s.learnMark(ctx, m.ids, m.text); err != nil {
			return err
		}
	}
	if len(s.marks.Start) > 0 {
		if err := s.learnSpace(ctx); err != nil {
			return err
		}
	}
	if s.models, err = scheduler.NewModels([]scheduler.Model{s.marks}); err != nil {
		return err
	}
	if n.cfg.Learn != nil {
		if err := n.cfg.Learn(s.marks); err != nil {
			return err
		}
	}
	if t.Probe > 0 {
		s.rules, err = scheduler.NewRules(t.Signals)
	}
	return err
}

// learnMark completes a marker of which ids or text are configured. Ids come
// first; the text is then what the tokenizer writes for them. White space round
// the text is none of the marker's: the template's, or the model's.
func (s *server) learnMark(ctx context.Context, ids *[]int32, text *string) (err error) {
	*text = strings.TrimSpace(*text)
	switch {
	case len(*ids) > 0:
		if *text, err = s.api.Detokenize(ctx, *ids); err != nil {
			return err
		}
		*text = strings.TrimSpace(*text)
	case *text != "":
		if *ids, err = s.api.Tokenize(ctx, *text, false, true); err != nil {
			return err
		}
	}
	for _, id := range *ids {
		written, err := s.api.Detokenize(ctx, []int32{id})
		if err != nil {
			return err
		}
		if s.marks.Written == nil {
			s.marks.Written = map[int32]string{}
		}
		s.marks.Written[id] = written
	}
	return nil
}

// blanks are white space as templates and models write it round a marker.
var blanks = []string{"\n", "\n\n", "\n\n\n", " ", "  ", "\t", "\r\n", " \n", "\n "}

// learnSpace finds the ids of white space, for the daemon's router, which sees no
// text.
func (s *server) learnSpace(ctx context.Context) error {
	for _, text := range blanks {
		ids, err := s.api.Tokenize(ctx, text, false, true)
		if err != nil {
			return err
		}
		if len(ids) == 1 {
			s.marks.Space = append(s.marks.Space, ids[0])
		}
	}
	return nil
}
