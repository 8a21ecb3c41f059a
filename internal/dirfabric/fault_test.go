package dirfabric

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"meridian/fabric"
	"meridian/wire"
)

var testNS = wire.Namespace{9}

func payload(t *testing.T, name string, n int) fabric.Item {
	t.Helper()
	body := []byte(strings.Repeat(name, n/len(name)+1))[:n]
	p, err := wire.AppendPayload(nil, wire.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	return fabric.Item{NS: testNS, Key: wire.KeyOf(testNS, []byte(name)), Tier: wire.ThinkActive, M: fabric.Mem{B: p}}
}

// pushed stores blocks of n bytes and returns them with their handles.
func pushed(t *testing.T, d *Dir, n int, names ...string) []fabric.Item {
	t.Helper()
	it := make([]fabric.Item, len(names))
	for i, name := range names {
		it[i] = payload(t, name, n)
	}
	d.Push(t.Context(), it)
	for i := range it {
		if it[i].Err != nil {
			t.Fatalf("push of %s: %v", names[i], it[i].Err)
		}
	}
	return it
}

func pull(t *testing.T, d *Dir, of fabric.Item, byKey bool) fabric.Item {
	t.Helper()
	it := []fabric.Item{{NS: of.NS, Key: of.Key, H: of.H, M: fabric.Mem{B: make([]byte, len(of.M.B)+8)}}}
	if byKey {
		it[0].H = fabric.Handle{}
	}
	d.Pull(t.Context(), it)
	return it[0]
}

// spoils are what can become of a file behind the back of the daemon.
var spoils = []struct {
	name  string
	spoil func(path string) error
	code  wire.Code
	found bool // after a restart it is still in the index, and found out when it is read
}{
	{"the last byte flipped", func(p string) error { return flip(p, -1) }, wire.CodeChecksum, true},
	{"the first byte of the body flipped", func(p string) error { return flip(p, recordLen+wire.HeaderLen) }, wire.CodeChecksum, true},
	{"the checksum flipped", func(p string) error { return flip(p, recordLen+16) }, wire.CodeChecksum, true},
	{"the key flipped", func(p string) error { return flip(p, len(recordMagic)+64) }, wire.CodeChecksum, false},
	{"the magic flipped", func(p string) error { return flip(p, 0) }, wire.CodeChecksum, false},
	{"the length flipped", func(p string) error { return flip(p, recordLen+8) }, wire.CodeChecksum, false},
	{"cut by a byte", func(p string) error { return cut(p, -1) }, wire.CodeChecksum, false},
	{"cut within the record", func(p string) error { return cut(p, recordLen/2) }, wire.CodeChecksum, false},
	{"emptied", func(p string) error { return os.Truncate(p, 0) }, wire.CodeChecksum, false},
	{"grown by a byte", func(p string) error { return cut(p, 1) }, wire.CodeChecksum, false},
	{"removed", os.Remove, wire.CodeAbsent, false},
	{"replaced by a pipe", func(p string) error { return replaced(p, func() error { return syscall.Mkfifo(p, 0o600) }) }, wire.CodeUnreachable, false},
	{"replaced by a folder", func(p string) error { return replaced(p, func() error { return os.Mkdir(p, 0o700) }) }, wire.CodeUnreachable, false},
	{"replaced by a link to itself elsewhere", func(p string) error {
		return errors.Join(os.Rename(p, p+".moved"), os.Symlink(filepath.Base(p)+".moved", p))
	}, wire.CodeUnreachable, false},
}

func cut(path string, by int) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	n := info.Size() + int64(by)
	if by > 1 {
		n = int64(by)
	}
	return os.Truncate(path, n)
}

func replaced(path string, by func() error) error { return errors.Join(os.Remove(path), by()) }

// Whatever became of a file, it is refused with a code, its neighbour is served, and
// a restart serves nothing wrong either.
func TestASpoiledFileIsNeverServed(t *testing.T) {
	for _, s := range spoils {
		t.Run(s.name, func(t *testing.T) {
			d, path := openDir(t, 1<<20)
			it := pushed(t, d, 3000, "spoiled", "whole")
			if err := s.spoil(filepath.Join(path, fileName(it[0].H))); err != nil {
				t.Fatal(err)
			}
			for _, byKey := range []bool{false, true} {
				if got := pull(t, d, it[0], byKey); wire.CodeOf(got.Err) != s.code || got.Proof.OK() {
					t.Errorf("pull: %v, want %v", got.Err, s.code)
				}
				if got := pull(t, d, it[1], byKey); got.Err != nil {
					t.Errorf("its neighbour: %v", got.Err)
				}
			}
			again := restarted(t, d, 1<<20)
			find := []fabric.Item{{NS: testNS, Key: it[0].Key}, {NS: testNS, Key: it[1].Key}}
			again.Find(t.Context(), find)
			if (find[0].Err == nil) != s.found || find[1].Err != nil {
				t.Errorf("after a restart it is found %v (%v), want %v; its neighbour: %v", find[0].Err == nil, find[0].Err, s.found, find[1].Err)
			}
			if got := pull(t, again, it[0], true); got.Err == nil || got.Proof.OK() {
				t.Errorf("after a restart it is served: %v", got.Err)
			}
		})
	}
}

// restarted is the directory opened anew.
func restarted(t *testing.T, d *Dir, quota uint64) *Dir {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return reopen(t, d.path, quota)
}

func findingsOf(d *Dir) string {
	var bad []string
	for _, f := range d.Findings() {
		if f.Bad {
			bad = append(bad, f.ID+": "+f.Subject)
		}
	}
	return strings.Join(bad, "\n")
}

func TestDamageAndForeignFilesAreFindings(t *testing.T) {
	d, path := openDir(t, 1<<20)
	it := pushed(t, d, 500, "a")
	if err := flip(filepath.Join(path, fileName(it[0].H)), -1); err != nil {
		t.Fatal(err)
	}
	pull(t, d, it[0], true)
	if got := findingsOf(d); got != "damaged: pulls of damaged files in "+path+": 1" {
		t.Errorf("findings %q", got)
	}
	foreign := filepath.Join(path, "README")
	left := filepath.Join(path, fileName(fabric.Handle{1})+temporarySuffix)
	for _, p := range []string{foreign, left} {
		if err := os.WriteFile(p, []byte("not a block"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := findingsOf(restarted(t, d, 1<<20)); got != "ignored: files in "+path+" that are not used: 1" {
		t.Errorf("findings %q", got)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file that is not ours: %v", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest of an interrupted write is still there: %v", err)
	}
}

// What does not fit is refused with the amounts, takes no room, and leaves no file;
// room that is given back can be used.
func TestAFullDirectoryRefusesAndRecovers(t *testing.T) {
	one := uint64(recordLen + wire.HeaderLen + 1000)
	d, path := openDir(t, 2*one)
	it := pushed(t, d, 1000, "a", "b")
	full := []fabric.Item{payload(t, "c", 1000)}
	d.Push(t.Context(), full)
	var e *fabric.Error
	if !errors.As(full[0].Err, &e) || e.Code != wire.CodeFull || e.Have != 0 || e.Need != one || e.Fabric != "attic" {
		t.Errorf("push beyond the quota: %v", full[0].Err)
	}
	if n := len(blockFiles(t, path)); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
	d.Drop(t.Context(), it[:1])
	d.Push(t.Context(), full)
	if full[0].Err != nil {
		t.Errorf("push into room that was given back: %v", full[0].Err)
	}
	again := restarted(t, d, 2*one)
	more := []fabric.Item{payload(t, "d", 1000)}
	again.Push(t.Context(), more)
	if wire.CodeOf(more[0].Err) != wire.CodeFull {
		t.Errorf("after a restart the files count against the quota: %v", more[0].Err)
	}
}

// Errors of the disk itself, which a test cannot fill, have the same code.
func TestAFullDiskIsFull(t *testing.T) {
	for _, err := range []error{syscall.ENOSPC, syscall.EDQUOT, &os.PathError{Op: "write", Err: syscall.ENOSPC}} {
		d, _ := openDir(t, 1<<20)
		if got := d.failure("write", fmt.Errorf("wrapped: %w", err)); wire.CodeOf(got) != wire.CodeFull || !strings.Contains(findingsOf(d), "directory") {
			t.Errorf("%v is %v, findings %q", err, got, findingsOf(d))
		}
	}
}

func TestADirectoryThatIsGoneIsUnreachableAndSaysSo(t *testing.T) {
	d, path := openDir(t, 1<<20)
	it := pushed(t, d, 100, "a")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if got := pull(t, d, it[0], true); wire.CodeOf(got.Err) != wire.CodeAbsent {
		t.Errorf("pull: %v", got.Err)
	}
	late := []fabric.Item{payload(t, "b", 100)}
	d.Push(t.Context(), late)
	if wire.CodeOf(late[0].Err) != wire.CodeUnreachable {
		t.Errorf("push: %v", late[0].Err)
	}
	if d.used != uint64(recordLen+wire.HeaderLen+100) {
		t.Errorf("%d bytes are taken: a failed push keeps its room", d.used)
	}
	if _, _, err := d.Probe(t.Context(), ""); wire.CodeOf(err) != wire.CodeUnreachable {
		t.Errorf("probe: %v", err)
	}
	if got := findingsOf(d); got != "directory: "+path {
		t.Errorf("findings %q", got)
	}
}

func TestOpenRefusesWhatIsNoDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(t.Context(), "attic", path, 1<<20); err == nil {
		_ = d.Close()
		t.Error("a regular file was opened as a directory")
	}
}

// Two daemons would count each other's files as their own, and remove what the other
// is writing.
func TestADirectoryHasOneDaemon(t *testing.T) {
	d, path := openDir(t, 1<<20)
	if twin, err := Open(t.Context(), "twin", path, 1<<20); err == nil || !strings.Contains(err.Error(), "another fabric has this directory") {
		if err == nil {
			_ = twin.Close()
		}
		t.Errorf("a second one opened it: %v", err)
	}
	pushed(t, d, 100, "a")
	restarted(t, d, 1<<20)
}

// A daemon does not serve what was damaged on the disk: the engine is told, it is
// counted under the fabric's name, and a finding says where.
func TestADaemonServesNoDamagedFile(t *testing.T) {
	h := newHouse(t, true)
	stop, _ := h.start(t)
	e, ns := h.engine(t)
	keys := keysOf("prompt", 6)
	put(t, e, ns, keys, 64<<10, wire.OutputCritical, 0)
	files := blockFiles(t, h.at("cellar"))
	if len(files) != len(keys) {
		t.Fatalf("%d files in the cellar when the store was acknowledged, want %d", len(files), len(keys))
	}
	stop()
	if err := errors.Join(flip(files[0], -1), flip(files[1], recordLen+wire.HeaderLen+7)); err != nil {
		t.Fatal(err)
	}
	_, page := h.start(t)
	e, ns = h.engine(t)
	missing := 0
	for _, k := range keys {
		for _, err := range fetch(t, e, ns, []wire.Key{k}) {
			if err != nil {
				missing++
			}
		}
	}
	if missing != 2 {
		t.Errorf("%d blocks were not served, want the 2 that are damaged", missing)
	}
	if got := series(t, page, `meridian_checksum_failures_total{where="cellar"}`); got == "0" || got == "" {
		t.Errorf("checksum failures of the cellar: %q", got)
	}
	if got := series(t, page, `meridian_checksum_failures_total{where="attic"}`); got != "0" {
		t.Errorf("checksum failures of the attic: %q", got)
	}
}
