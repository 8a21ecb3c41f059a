package dirfabric

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/wire"
)

// The limits of a directory.
const (
	maxItem  = 64<<20 + wire.HeaderLen // bytes
	maxBatch = 1024
	lanes    = 4
)

const (
	via             = "file"
	fileSuffix      = ".block"
	temporarySuffix = ".part"
	lockName        = "lock"
	handleDigits    = 2 * len(fabric.Handle{})
)

func fileName(h fabric.Handle) string { return hex.EncodeToString(h[:]) + fileSuffix }

type ident struct {
	ns  wire.Namespace
	key wire.Key
}

// Dir is the fabric.
type Dir struct {
	label string
	quota uint64 // bytes of files
	path  string
	root  *os.Root
	lock  *os.File // while it is open nobody else has the directory

	calls sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	byKey   map[ident]*entry
	byH     map[fabric.Handle]*entry
	used    uint64 // bytes of files, those that are being written included
	ignored int    // files that were found and are none of ours, or damaged
	damaged uint64 // pulls of a file that did not hold what was written
	failed  error  // what the file system last said, nil once a call went well
}

var (
	_ fabric.Fabric      = (*Dir)(nil)
	_ fabric.Finder      = (*Dir)(nil)
	_ fabric.Dropper     = (*Dir)(nil)
	_ fabric.Lister      = (*Dir)(nil)
	_ fabric.Prober      = (*Dir)(nil)
	_ fabric.Transporter = (*Dir)(nil)
	_ fabric.Advisor     = (*Dir)(nil)
)

// Open makes the directory where there is none, refuses one that another daemon has
// open, removes what an interrupted write left, and indexes the blocks that lie there.
func Open(ctx context.Context, label, path string, quota uint64) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{label: label, quota: quota, path: path, root: root, byKey: map[ident]*entry{}, byH: map[fabric.Handle]*entry{}}
	if d.lock, err = takeLock(root); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), root.Close())
	}
	if err := d.index(ctx); err != nil {
		return nil, errors.Join(err, d.lock.Close(), root.Close())
	}
	return d, nil
}

func (d *Dir) index(ctx context.Context) error {
	list, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Name() == lockName {
			continue
		}
		if err := fabric.ContextError(ctx, d.label); err != nil {
			return err
		}
		if strings.HasSuffix(f.Name(), fileSuffix+temporarySuffix) && len(f.Name()) == handleDigits+len(fileSuffix+temporarySuffix) {
			if err := d.root.Remove(f.Name()); err != nil {
				return err
			}
			continue
		}
		e, err := scan(d.root, f.Name())
		if err != nil || d.byKey[ident{e.ns, e.key}] != nil {
			d.ignored++
			continue
		}
		d.add(e)
		d.used += e.size()
	}
	return nil
}

func (d *Dir) add(e *entry) { d.byKey[ident{e.ns, e.key}], d.byH[e.h] = e, e }

// Label is the name of the fabric's table.
func (d *Dir) Label() string { return d.label }

// Caps says that blocks are verified, and survive a restart.
func (d *Dir) Caps() fabric.Caps {
	return fabric.Caps{Verified: true, Persistent: true, MaxItem: maxItem, MaxBatch: maxBatch, Lanes: lanes}
}

// Transports implements fabric.Transporter.
func (d *Dir) Transports() []string { return []string{via} }

// each runs do for each item, and keeps the rules of Item for what it says.
func (d *Dir) each(ctx context.Context, it []fabric.Item, do func(it *fabric.Item) error) {
	entered := d.enter()
	if entered == nil {
		defer d.calls.Done()
	}
	for i := range it {
		err := entered
		if err == nil && i >= maxBatch {
			err = &fabric.Error{Code: wire.CodeTooMany, Fabric: d.label, Have: maxBatch, Need: uint64(len(it))}
		}
		if err == nil {
			err = fabric.ContextError(ctx, d.label)
		}
		if err == nil {
			err = do(&it[i])
		}
		it[i].Via, it[i].Loose, it[i].Err = via, false, err
		if err != nil {
			it[i].Head = wire.Header{}
		}
	}
}

func (d *Dir) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return &fabric.Error{Code: wire.CodeUnreachable, Fabric: d.label, Text: "the fabric is closed"}
	}
	d.calls.Add(1)
	return nil
}

// find is the entry that an item names.
func (d *Dir) find(it *fabric.Item) (*entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byKey[ident{it.NS, it.Key}]
	if it.H != (fabric.Handle{}) {
		e = d.byH[it.H]
	}
	if e == nil {
		return nil, &fabric.Error{Code: wire.CodeAbsent, Fabric: d.label}
	}
	return e, nil
}

// Push writes each payload that passes the strict reader.
func (d *Dir) Push(ctx context.Context, it []fabric.Item) {
	for i := range it {
		it[i].H = fabric.Handle{}
	}
	d.each(ctx, it, d.push)
}

func (d *Dir) push(it *fabric.Item) error {
	if len(it.M.B) > maxItem {
		return &fabric.Error{Code: wire.CodeTooLarge, Fabric: d.label, Have: maxItem, Need: uint64(len(it.M.B))}
	}
	head, _, err := wire.Decode(it.M.B, wire.Strict, wire.MaxBody)
	if err != nil {
		return err
	}
	e := &entry{ns: it.NS, key: it.Key, tier: it.Tier, att: it.Att, head: head}
	if _, err := rand.Read(e.h[:]); err != nil {
		return err
	}
	if err := d.reserve(it, e.size()); err != nil {
		return err
	}
	temporary, err := write(d.root, e, it.M.B)
	if err == nil {
		err = d.publish(it, e, temporary)
	}
	if err != nil {
		d.giveBack(e.size())
		return d.failure("write", err)
	}
	it.Head = head
	return nil
}

// reserve takes room for a file, unless the block is there.
func (d *Dir) reserve(it *fabric.Item, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.there(it); err != nil {
		return err
	}
	if free := d.quota - min(d.quota, d.used); n > free {
		return &fabric.Error{Code: wire.CodeFull, Fabric: d.label, Have: free, Need: n, Text: "above quota_bytes of the directory"}
	}
	d.used += n
	return nil
}

// there is EXISTS, and names the block, if the item's key is in the index.
func (d *Dir) there(it *fabric.Item) error {
	e := d.byKey[ident{it.NS, it.Key}]
	if e == nil {
		return nil
	}
	it.H = e.h
	return &fabric.Error{Code: wire.CodeExists, Fabric: d.label}
}

func (d *Dir) giveBack(n uint64) {
	d.mu.Lock()
	d.used -= n
	d.mu.Unlock()
}

// publish gives a file its name, unless another push of the key was faster.
func (d *Dir) publish(it *fabric.Item, e *entry, temporary string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.there(it)
	if err == nil {
		err = d.root.Rename(temporary, fileName(e.h))
	}
	if err != nil {
		return errors.Join(err, d.root.Remove(temporary))
	}
	d.add(e)
	d.failed = nil
	it.H = e.h
	return nil
}

// failure is what the file system said as an error of the contract. What only this
// block has is no failure of the directory.
func (d *Dir) failure(what string, err error) error {
	var known *fabric.Error
	if errors.As(err, &known) {
		return known
	}
	code := codeOf(err)
	if what == "write" && code == wire.CodeAbsent {
		code = wire.CodeUnreachable // there is no directory to write into
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch code {
	case wire.CodeChecksum:
		d.damaged++
	case wire.CodeUnreachable, wire.CodeFull:
		d.failed = err
	}
	return &fabric.Error{Code: code, Fabric: d.label, Text: what, Cause: err}
}

// Pull reads each payload into the item's memory and hashes it there.
func (d *Dir) Pull(ctx context.Context, it []fabric.Item) {
	d.each(ctx, it, func(it *fabric.Item) error {
		it.Proof = wire.Verified{}
		e, err := d.find(it)
		if err != nil {
			return err
		}
		if need := wire.HeaderLen + int(e.head.BodyLen); len(it.M.B) < need {
			return &fabric.Error{Code: wire.CodeTooLarge, Fabric: d.label, Have: uint64(len(it.M.B)), Need: uint64(need)}
		}
		proof, err := load(d.root, e, it.M.B)
		if err != nil {
			return d.failure("read", err)
		}
		it.H, it.Head, it.Att, it.Proof = e.h, e.head, e.att, proof
		return nil
	})
}

// Find looks into the index.
func (d *Dir) Find(ctx context.Context, it []fabric.Item) {
	d.each(ctx, it, func(it *fabric.Item) error {
		e, err := d.find(it)
		if err == nil {
			it.H, it.Head, it.Att = e.h, e.head, e.att
		}
		return err
	})
}

// Drop removes files.
func (d *Dir) Drop(ctx context.Context, it []fabric.Item) {
	d.each(ctx, it, func(it *fabric.Item) error {
		e, err := d.find(it)
		if err != nil {
			return err
		}
		if err := d.root.Remove(fileName(e.h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.failure("remove", err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.byH[e.h] == e {
			delete(d.byH, e.h)
			delete(d.byKey, ident{e.ns, e.key})
			d.used -= e.size()
		}
		return nil
	})
}

// List calls f for each block of the index.
func (d *Dir) List(ctx context.Context, f func(fabric.Item) bool) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.calls.Done()
	d.mu.Lock()
	all := make([]*entry, 0, len(d.byH))
	for _, e := range d.byH {
		all = append(all, e)
	}
	d.mu.Unlock()
	for _, e := range all {
		if err := fabric.ContextError(ctx, d.label); err != nil {
			return err
		}
		if !f(fabric.Item{NS: e.ns, Key: e.key, Tier: e.tier, H: e.h, Head: e.head, Att: e.att, Via: via}) {
			return nil
		}
	}
	return nil
}

// Probe writes a block of random bytes that is no index's, reads it back and removes it.
func (d *Dir) Probe(ctx context.Context, peer string) (string, float64, error) {
	if peer != "" {
		return "", 0, &fabric.Error{Code: wire.CodeUnreachable, Fabric: d.label, Text: "a directory has no peer " + peer}
	}
	if err := d.enter(); err != nil {
		return "", 0, err
	}
	defer d.calls.Done()
	if err := fabric.ContextError(ctx, d.label); err != nil {
		return "", 0, err
	}
	const size = 64 << 10
	body := make([]byte, size)
	e := &entry{tier: wire.ThinkComplete}
	for _, b := range [][]byte{body, e.h[:]} {
		if _, err := rand.Read(b); err != nil {
			return "", 0, err
		}
	}
	payload, err := wire.AppendPayload(nil, e.tier, body)
	if err != nil {
		return "", 0, err
	}
	e.head = wire.Header{BodyLen: size, Tier: e.tier, Sum: wire.SumOf(body)}
	began := time.Now()
	name, err := write(d.root, e, payload)
	if err == nil {
		err = d.root.Rename(name, fileName(e.h))
	}
	if err != nil {
		return "", 0, d.failure("write", err)
	}
	_, err = load(d.root, e, payload)
	took := time.Since(began)
	if err = errors.Join(err, d.root.Remove(fileName(e.h))); err != nil {
		return "", 0, d.failure("read", err)
	}
	d.mu.Lock()
	d.failed = nil
	d.mu.Unlock()
	if took <= 0 {
		return via, 0, nil
	}
	return via, size / took.Seconds() / 1e9, nil
}

// Findings implements fabric.Advisor.
func (d *Dir) Findings() []fabric.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []fabric.Finding{
		{
			ID: "damaged", Severe: true, Bad: d.damaged > 0, Subject: fmt.Sprintf("pulls of damaged files in %s: %d", d.path, d.damaged),
			Reason: "a file does not hold what was written; it was not served", Fix: "check the disk, and remove the files that the log names",
		},
		{
			ID: "ignored", Bad: d.ignored > 0, Subject: fmt.Sprintf("files in %s that are not used: %d", d.path, d.ignored),
			Reason: "they are no whole blocks of this fabric", Fix: "give the fabric a directory of its own, or remove them",
		},
		{ID: "directory", Severe: true, Bad: d.failed != nil, Subject: d.path},
	}
	if last := &list[len(list)-1]; last.Bad {
		last.Reason, last.Fix = d.failed.Error(), "make the directory usable for the daemon, with room for quota_bytes"
	}
	return slices.Clip(list)
}

// Quiesce has nothing to wait for: memory is touched only while a call runs.
func (d *Dir) Quiesce(ctx context.Context) error { return fabric.ContextError(ctx, d.label) }

// Close waits for the calls under way. The files stay.
func (d *Dir) Close() error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	d.calls.Wait()
	if again {
		return nil
	}
	return errors.Join(d.lock.Close(), d.root.Close())
}
