package hub

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"meridian/adapters/nixl/plane"
	"meridian/blocks/quota"
	"meridian/fabric"
	"meridian/internal/stranger"
	"meridian/wire"
)

// Grace is how long entries stay whose owner's connection has ended: a client that had an
// error connects again with its next request.
const Grace = 30 * time.Second

// client is a connection, and who it says that it is: a process of a source.
type client struct {
	source quota.Holder
	from   string // HOST:PORT
	known  bool   // it has sent a PING
	pid    uint32 // as its PING has it; two hosts, or two containers of one, may have the same
}

// owner is an agent that has something here.
type owner struct {
	agent  string
	by     *client // whose connection stands
	was    client
	ends   time.Duration // with by nil: when its entries end
	values map[string]*value
}

// value is what is under a label.
type value struct {
	b     []byte
	since time.Time
	holds [2]*quota.Hold
}

func (v *value) free() {
	if v != nil {
		v.holds[0].Give()
		v.holds[1].Give()
	}
}

// table is what the hub knows. It has no sockets and no clock, and is not safe for use by
// several goroutines.
type table struct {
	book   *quota.Book
	owners map[string]*owner
}

func newTable(book *quota.Book) *table { return &table{book: book, owners: map[string]*owner{}} }

// get is what is under a key; nil: nothing.
func (t *table) get(k plane.Key) []byte {
	if o := t.owners[k.Agent]; o != nil && o.values[k.Label] != nil {
		return o.values[k.Label].b
	}
	return nil
}

// taken is the error for a name whose owner's connection stands.
func (o *owner) taken() error {
	return fmt.Errorf("nixl hub: agent %s is at %s, and its connection stands: %w", stranger.Quote(o.agent), o.by.from, wire.CodeExists)
}

// check says why a value cannot be under a key. It may take a millisecond.
func check(k plane.Key, b []byte) error {
	m, err := plane.ParseMetadata(b)
	if err == nil && m.Agent != k.Agent {
		err = fmt.Errorf("nixl hub: metadata of agent %s under the name %s: %w", stranger.Quote(m.Agent), stranger.Quote(k.Agent), wire.CodeInvalid)
	}
	return err
}

// put stores a value that was checked; false: it is there already. A name whose owner has no
// connection any more is for who comes next, and what the owner had ends.
func (t *table) put(now time.Time, c *client, k plane.Key, b []byte) (changed bool, err error) {
	o := t.owners[k.Agent]
	var was *value
	switch {
	case o == nil || o.by == nil:
	case o.by != c:
		return false, o.taken()
	default:
		was = o.values[k.Label]
	}
	if was != nil && bytes.Equal(was.b, b) {
		return false, nil
	}
	v := &value{b: b, since: now}
	if was != nil {
		v.holds = was.holds
	} else if v.holds[0], err = t.book.Take(quota.MetadataEntries, 1, c.source, quota.Total); err != nil {
		return false, err
	}
	size, err := t.book.Exchange([]*quota.Hold{v.holds[1]}, quota.MetadataBytes, uint64(len(b)+len(k.String())), c.source, quota.Total)
	if err != nil {
		if was == nil {
			v.free()
		}
		return false, err
	}
	v.holds[1] = size
	if o != nil && o.by == nil {
		t.end(o)
		o = nil
	}
	if o == nil {
		o = &owner{agent: k.Agent, by: c, values: map[string]*value{}}
		t.owners[k.Agent] = o
	}
	o.values[k.Label] = v
	return true, nil
}

// remove deletes a value; false: there was none.
func (t *table) remove(c *client, k plane.Key) (bool, error) {
	o := t.owners[k.Agent]
	if o == nil || o.values[k.Label] == nil {
		return false, nil
	}
	switch {
	case o.by == c, o.by == nil && o.was.source == c.source:
	case o.by == nil:
		return false, fmt.Errorf("nixl hub: agent %s was at %s: %w", stranger.Quote(o.agent), o.was.from, wire.CodeDenied)
	default:
		return false, o.taken()
	}
	o.values[k.Label].free()
	if delete(o.values, k.Label); len(o.values) == 0 {
		delete(t.owners, k.Agent)
	}
	return true, nil
}

// came gives a client back what its process had by a connection that has ended; false: that
// was nothing.
func (t *table) came(c *client) (again bool) {
	for _, o := range t.owners {
		if o.by == nil && o.was.source == c.source && o.was.pid == c.pid {
			o.by, again = c, true
		}
	}
	return again
}

// went is the end of a client's connection: its entries end after Grace.
func (t *table) went(now time.Duration, c *client) {
	for _, o := range t.owners {
		if o.by == c {
			o.by, o.was, o.ends = nil, *c, now+Grace
		}
	}
}

// expire ends what is due, and returns it.
func (t *table) expire(now time.Duration) (gone []*owner) {
	for _, o := range t.owners {
		if o.by == nil && o.ends <= now {
			t.end(o)
			gone = append(gone, o)
		}
	}
	slices.SortFunc(gone, func(a, b *owner) int { return cmp.Compare(a.agent, b.agent) })
	return gone
}

func (t *table) end(o *owner) {
	for _, v := range o.values {
		v.free()
	}
	delete(t.owners, o.agent)
}

// entries are all of them, in order.
func (t *table) entries() (out []fabric.Entry) {
	for _, name := range slices.Sorted(maps.Keys(t.owners)) {
		o := t.owners[name]
		who := o.was
		if o.by != nil {
			who = *o.by
		}
		for _, label := range slices.Sorted(maps.Keys(o.values)) {
			v := o.values[label]
			out = append(out, fabric.Entry{Name: stranger.Text(name), Label: stranger.Text(label), From: who.from, PID: who.pid, Since: v.since, Bytes: len(v.b), Alive: o.by != nil})
		}
	}
	return out
}
