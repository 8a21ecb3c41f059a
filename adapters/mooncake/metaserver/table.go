package metaserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"meridian/adapters/mooncake/metadata"
	"meridian/blocks/quota"
	"meridian/internal/stranger"
	"meridian/wire"
)

// When an owner is asked whether it lives, and how many answers in a row end its
// entry. A refused connection is a host that lives and a process that does not; the
// other two may be the network's fault or a busy process's, and take longer.
const (
	AskEvery       = 10 * time.Second
	maxRefused     = 3
	maxUnreachable = 6
	maxSilent      = 30
)

// limits of outcomes in a row; 0: none.
var limits = [metadata.Outcomes]int{metadata.Silent: maxSilent, metadata.Refused: maxRefused, metadata.Unreachable: maxUnreachable}

// Question is an owner that must be asked before anything changes, or from time to
// time.
type Question struct {
	Addr string // where it answers handshakes
	node node
	life uint64 // of the owner; an answer for an earlier one counts for nothing
	from string // whose entry it is
}

// Refusal is why a request is not done.
type Refusal struct {
	Status int    // of HTTP
	Reason string // for counts
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

var codes = map[int]wire.Code{
	http.StatusBadRequest: wire.CodeInvalid, http.StatusForbidden: wire.CodeDenied, http.StatusNotFound: wire.CodeAbsent,
	http.StatusMethodNotAllowed: wire.CodeUnsupported, http.StatusConflict: wire.CodeExists, http.StatusRequestEntityTooLarge: wire.CodeTooLarge,
	http.StatusServiceUnavailable: wire.CodeBusy, http.StatusInsufficientStorage: wire.CodeFull,
}

// Unwrap returns the code that fits its status.
func (r *Refusal) Unwrap() error {
	if c, ok := codes[r.Status]; ok {
		return c
	}
	return wire.CodeInternal
}

// node is whose entries they are.
type node struct{ cluster, name string }

func (n node) String() string {
	if n.cluster == "" {
		return stranger.Quote(n.name)
	}
	return stranger.Quote(n.name) + " of cluster " + stranger.Quote(n.cluster)
}

// owner is a node and what it said. One without an endpoint cannot be asked: it stays,
// and anybody may take its name.
type owner struct {
	node   node
	source string // whose share its entries take
	life   uint64
	at     metadata.Endpoint
	epoch  uint64
	values [2]*value // by kind
	next   time.Duration
	last   metadata.Outcome
	row    int // outcomes like the last, one after the other
}

type value struct {
	body  []byte
	holds [2]*quota.Hold
}

func (v *value) free() {
	if v != nil {
		v.holds[0].Give()
		v.holds[1].Give()
	}
}

func (o *owner) canBeAsked() bool { return o.values[metadata.KindEndpoint] != nil }

// table is what the server knows. It has no sockets and no clock, and is not safe for
// use by several goroutines.
type table struct {
	book   *quota.Book
	owners map[node]*owner
	lives  uint64
	met    time.Duration     // when an owner was last reached
	ended  map[string]uint64 // by why
}

func newTable(book *quota.Book) *table {
	return &table{book: book, owners: map[node]*owner{}, met: -2 * AskEvery, ended: map[string]uint64{}}
}

// change is a PUT or DELETE.
type change struct {
	source string // who asks
	key    metadata.Key
	epoch  uint64            // what it says of itself; 0: nothing
	body   []byte            // of a PUT; see says
	at     metadata.Endpoint // that body says, where it is of that kind
	gone   *Question         // an owner that was asked, and is gone
}

// says makes the change one that puts a body, or says why the body cannot be the key's.
func (c *change) says(body []byte) (err error) {
	c.body = body
	if c.key.Kind == metadata.KindEndpoint {
		if c.at, err = metadata.ParseEndpoint(body); err == nil {
			c.epoch = max(c.epoch, c.at.Epoch)
		}
	} else {
		err = checkSegment(c.key, body)
	}
	if err != nil {
		return &Refusal{http.StatusBadRequest, "invalid", err.Error()}
	}
	return nil
}

func (c change) node() node { return node{c.key.Cluster, c.key.Name} }

func (t *table) get(k metadata.Key) ([]byte, bool) {
	o := t.owners[node{k.Cluster, k.Name}]
	if o == nil || o.values[k.Kind] == nil {
		return nil, false
	}
	return o.values[k.Kind].body, true
}

// put stores a value that was checked. With a Question nothing has changed: the caller
// asks, and puts again with what is gone.
func (t *table) put(now time.Duration, c change) (*Question, error) {
	o := t.owners[c.node()]
	if o != nil {
		if v := o.values[c.key.Kind]; v != nil && bytes.Equal(v.body, c.body) {
			return nil, nil // said already
		}
		if q, err := t.mayChange(o, c); q != nil || err != nil {
			return q, err
		}
	}
	v, err := t.hold(c)
	if err != nil {
		return nil, err
	}
	if o != nil && t.another(o, c) {
		t.end(o, "replaced")
		o = nil
	}
	if o == nil {
		t.lives++
		o = &owner{node: c.node(), source: c.source, life: t.lives}
		t.owners[o.node] = o
	}
	o.values[c.key.Kind].free()
	o.values[c.key.Kind] = v
	o.epoch = max(o.epoch, c.epoch)
	if c.key.Kind == metadata.KindEndpoint {
		o.at, o.next, o.row = c.at, now+AskEvery, 0
		t.displace(o)
	}
	return nil, nil
}

// mayChange says whether c may change what o owns, or who must be asked first.
func (t *table) mayChange(o *owner, c change) (*Question, error) {
	another := t.another(o, c)
	if another && !o.canBeAsked() { // whatever epoch it says: nobody could ever disprove it
		return nil, nil
	}
	if c.epoch > 0 && c.epoch < o.epoch {
		return nil, &Refusal{http.StatusConflict, "stale", fmt.Sprintf("%s is owned by epoch %d, and this is epoch %d", o.node, o.epoch, c.epoch)}
	}
	if !another {
		return nil, nil
	}
	if c.gone != nil && c.gone.node == o.node && c.gone.life == o.life {
		return nil, nil
	}
	return &Question{Addr: o.at.Addr(), node: o.node, life: o.life, from: o.source}, nil
}

// another says whether c comes from another owner than o: from elsewhere, or with
// another address for handshakes. Two processes of one host that give the same
// address are one owner, since one of them has the port.
func (t *table) another(o *owner, c change) bool {
	if c.source != o.source {
		return true
	}
	return c.at != (metadata.Endpoint{}) && o.canBeAsked() && !c.at.At(o.at)
}

// displace ends the other owners of the same source that gave the same address: a
// port has one listener, and it is now o.
func (t *table) displace(o *owner) {
	for _, other := range t.owners {
		if other != o && other.source == o.source && other.canBeAsked() && other.at.At(o.at) {
			t.end(other, "displaced")
		}
	}
}

// remove deletes a value.
func (t *table) remove(c change) (*Question, error) {
	o := t.owners[c.node()]
	if o == nil || o.values[c.key.Kind] == nil {
		return nil, &Refusal{http.StatusNotFound, "absent", "no such key: " + stranger.Quote(c.key.String())}
	}
	if q, err := t.mayChange(o, c); q != nil || err != nil {
		return q, err
	}
	o.values[c.key.Kind].free()
	o.values[c.key.Kind] = nil
	if o.values == ([2]*value{}) {
		t.end(o, "removed")
	}
	return nil, nil
}

// taken is the refusal for a change of what another owner has, which answered.
func taken(q *Question, is metadata.Outcome) error {
	return &Refusal{http.StatusConflict, "owned", fmt.Sprintf("%s is owned by the node at %s, which %s", q.node, stranger.Quote(q.Addr), is)}
}

func (t *table) end(o *owner, why string) {
	for _, v := range o.values {
		v.free()
	}
	delete(t.owners, o.node)
	t.ended[why]++
}

// hold takes the value's share of the source and of all.
func (t *table) hold(c change) (*value, error) {
	v := &value{body: c.body}
	for i, what := range []struct {
		r quota.Resource
		n int
	}{{quota.MetadataEntries, 1}, {quota.MetadataBytes, len(c.body) + len(c.key.String())}} {
		h, err := t.book.Take(what.r, uint64(what.n), quota.Holder{Kind: quota.Source, Name: c.source}, quota.Total)
		if err != nil {
			v.free()
			return nil, &Refusal{http.StatusInsufficientStorage, "full", err.Error()}
		}
		v.holds[i] = h
	}
	return v, nil
}

// due are the owners to ask, those that waited longest first.
func (t *table) due(now time.Duration) []Question {
	var found []*owner
	for _, o := range t.owners {
		if o.canBeAsked() && o.next <= now {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *owner) int { return cmp.Or(cmp.Compare(a.next, b.next), cmp.Compare(a.life, b.life)) })
	out := make([]Question, len(found))
	for i, o := range found {
		out[i] = Question{Addr: o.at.Addr(), node: o.node, life: o.life, from: o.source}
	}
	return out
}

// alone says whether no owner could be reached by the questions of a round, nor by those
// of the rounds before it in which each had its turn.
func (t *table) alone(now time.Duration, answers []metadata.Outcome) bool {
	if slices.ContainsFunc(answers, func(o metadata.Outcome) bool { return o != metadata.Unreachable }) {
		t.met = now
	}
	return now-t.met >= 2*AskEvery
}

// heard takes what became of a question, and reports the owner's end. Where alone is
// set no host at all was reached: then an owner that could not be reached does not
// count as failed, since it is rather this host that has no network.
func (t *table) heard(now time.Duration, q Question, is metadata.Outcome, alone bool) bool {
	o := t.owners[q.node]
	if o == nil || o.life != q.life {
		return false
	}
	o.next = now + AskEvery
	if is == metadata.Unreachable && alone {
		return false
	}
	if o.row++; o.last != is {
		o.last, o.row = is, 1
	}
	if limit := limits[is]; limit == 0 || o.row < limit {
		return false
	}
	t.end(o, "expired")
	return true
}

// checkSegment says why a body cannot be the segment of a key. What is in it is for
// those who read it: a server keeps descriptors of every transport.
func checkSegment(k metadata.Key, body []byte) error {
	var d struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(body, &d); err != nil || !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return &metadata.ValueError{What: k.String(), Have: stranger.Quote(string(body)), Want: "a JSON object whose name is text"}
	}
	if d.Name != nil && *d.Name != k.Name {
		return &metadata.ValueError{What: "the name in the descriptor", Have: stranger.Quote(*d.Name), Want: "the key's, " + stranger.Quote(k.Name)}
	}
	return nil
}
