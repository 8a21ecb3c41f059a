package core

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"meridian/wire"
	proto "meridian/wire/link"
)

// tableOf is the table of a page whose first column has that head: the other heads,
// and the rows.
func tableOf(t *testing.T, path, head string) (heads []string, rows [][]string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		var cells []string
		for _, c := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		switch {
		case cells[0] == head:
			heads = cells[1:]
		case heads == nil || strings.HasPrefix(cells[0], "---"):
		case !strings.HasPrefix(line, "|"):
			return heads, rows
		default:
			rows = append(rows, cells)
		}
	}
	t.Fatalf("%s has no table of %q", path, head)
	return nil, nil
}

// stateName is the page's name of a request's state.
func (r *request) stateName() string {
	name := r.typ.String() + " "
	whole := r.in.active && r.in.left == 0
	if r.ask != nil {
		if whole {
			return name + "whole"
		}
		return name + [...]string{"sent", "tabled", "granted", "committed", "committed", "confirmed"}[r.ask.state]
	}
	switch {
	case r.endSent:
		return name + "given up"
	case whole && r.serve.state == serveMoving:
		return name + "whole"
	}
	return name + [...]string{"begun", "moving", "committed"}[r.serve.state]
}

// endedCall is a call of b that is over.
func endedCall(r *rig, _, back uint16) {
	hasCall(r, back)
	r.run()
}

// stateOf are the scenes that bring side b into each state of the page.
var stateOf = map[string]string{
	"OPEN sent": "OPEN is out", "HAS sent": "HAS is out", "HAS tabled": "HAS has its TABLE",
	"PULL sent": "PULL is out", "PULL tabled": "PULL has its TABLE", "PULL whole": "PULL has its bytes",
	"PUSH sent": "PUSH is out", "PUSH granted": "PUSH granted", "PUSH committed": "PUSH committed", "PUSH confirmed": "PUSH has its TABLE",
	"RENEW sent": "RENEW is out", "never used": "idle",
	"none": "idle", "PULL moving": "serves a PULL", "PUSH begun": "serves a PUSH, making room", "PUSH moving": "serves a PUSH",
	"PUSH whole": "serves a PUSH with all its bytes", "PUSH given up": "serves a PUSH that ran out of time",
}

// deliverOf are the scenes that bring side b into a state by DELIVER.
var deliverOf = map[string]string{
	"PUSH granted": "DELIVER is out", "PUSH committed": "DELIVER committed", "PUSH confirmed": "DELIVER has its TABLE",
	"PUSH moving": "serves a DELIVER", "PUSH whole": "serves a DELIVER with all its bytes",
	"PUSH given up": "serves a DELIVER that was turned away",
}

// scenesOf are the scenes of a state of the page.
func scenesOf(state string, serving bool) []string {
	name, other := stateOf[state], deliverOf[state]
	if serving && state == "PUSH committed" {
		name, other = "serves a PUSH committed, being hashed", "serves a DELIVER committed, being hashed"
	}
	if other == "" {
		return []string{name}
	}
	return []string{name, other}
}

// enter brings b into a state by a scene, and gives the id and the lane of the
// request.
func enter(t *testing.T, state, name string, serving bool) (r *rig, id uint64, idx uint8) {
	t.Helper()
	if state == "ended" {
		r, _, _ = inScene(t, endedCall)
		return r, r.end[1].nextReq - 2, 0
	}
	scenes := slices.Concat(scenes, likePush)
	at := slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })
	if at < 0 {
		t.Fatalf("no scene of %q", state)
	}
	r, _, _ = inScene(t, scenes[at].set)
	s := r.end[1]
	list := inOrder(s.calls)
	if serving {
		list = inOrder(s.served)
	}
	switch {
	case state == "never used":
		return r, s.nextReq + 100, 1
	case state == "none":
		return r, 901, 1
	case len(list) != 1 || list[0].stateName() != state:
		t.Fatalf("the scene %q is not in state %q", name, state)
	}
	return r, list[0].id, list[0].lane.idx
}

// The tables of the page are what the core does: each message in each state.
func TestThePagesStatesAreTheCores(t *testing.T) {
	const page = "../../../../docs/spec/link-v1.md"
	for _, serving := range []bool{false, true} {
		head := "asker's state"
		if serving {
			head = "server's state"
		}
		heads, rows := tableOf(t, page, head)
		if len(rows) < 7 {
			t.Fatalf("%d rows of %s", len(rows), head)
		}
		for _, row := range rows {
			for col, what := range heads {
				for _, typ := range strings.Split(what, ", ") {
					for _, name := range scenesOf(row[0], serving) {
						r, id, idx := enter(t, row[0], name, serving)
						got := r.meet(typ, id, idx, row[0])
						if want := strings.Split(row[col+1], ", "); !slices.Contains(want, got) {
							t.Errorf("%s (%s), %s: %s, the page says %s", row[0], name, typ, got, row[col+1])
						}
					}
				}
			}
		}
	}
}

// meet gives b one message for a request, and says in the page's words what came of it.
func (r *rig) meet(what string, id uint64, idx uint8, state string) string {
	s := r.end[1]
	l := s.Lane(idx)
	x := r.store[0].blocks[r.key("x")].have()
	var err error
	message := func(typ proto.Type, m proto.Message) {
		err = l.message(r.now, proto.Frame{Type: typ, Req: id}, m.Append(nil))
	}
	switch what {
	case "OPENED":
		message(proto.TypeOpened, proto.Opened{NS: 1})
	case "TABLE":
		if state == "PUSH committed" {
			it := &s.calls[id].call.Items[0]
			x.Head, x.Len = it.Head, uint32(len(it.Room))
		}
		message(proto.TypeTable, proto.Table{Items: []proto.Have{x}})
	case "GRANT":
		message(proto.TypeGrant, proto.Grant{Status: []wire.Code{0}})
	case "END OK":
		message(proto.TypeEnd, proto.End{})
	case "END of another code":
		message(proto.TypeEnd, proto.End{Code: wire.CodeDeadline})
	case "COMMIT":
		message(proto.TypeCommit, proto.Empty{})
	case "CANCEL":
		message(proto.TypeCancel, proto.Empty{})
	case "ABORT":
		message(proto.TypeAbort, proto.Empty{})
	case "a request with that id":
		message(proto.TypePull, proto.Pull{DeadlineMS: 5000, Items: []proto.Want{{NS: 1, Key: r.key("v"), Max: sceneBody}}})
	case "DATA":
		off := uint64(0)
		if q := s.find(id); q != nil && len(q.in.items) > 0 {
			off = uint64(q.in.items[0].got)
		}
		err = l.beginData(proto.Event{Frame: proto.Frame{Type: proto.TypeData, Req: id, Len: 104}, Offset: off, Left: 100})
	default:
		return "no message " + what
	}
	if re, ok := errors.AsType[*refusal](err); ok {
		return re.code.String()
	}
	if err != nil {
		return err.Error()
	}
	q := s.find(id)
	switch {
	case q != nil && q.ask == nil && state == "none":
		return "begins"
	case q != nil && q.serve != nil && q.endSent && q.quit: // its memory is in use for a moment still
		return "ends"
	case q != nil:
		return q.stateName()
	case state == "none":
		return "answered"
	case state == "ended":
		return "ignored"
	}
	return "ends"
}
