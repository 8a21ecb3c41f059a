package dirfabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"meridian/fabric"
	"meridian/wire"
)

// A file is a record and the payload. The record says whose block it is, and carries
// a checksum of itself: the payload's own covers only the body.
const (
	recordMagic = "MRDNDIR1"
	recordLen   = len(recordMagic) + len(fabric.Handle{}) + len(wire.Namespace{}) + len(wire.Key{}) + 2 + len(wire.Sum{})
)

// entry is what the index knows of a file.
type entry struct {
	h    fabric.Handle
	ns   wire.Namespace
	key  wire.Key
	tier wire.Tier
	att  wire.Attest
	head wire.Header
}

// size is the file's, in bytes.
func (e *entry) size() uint64 { return uint64(recordLen+wire.HeaderLen) + uint64(e.head.BodyLen) }

func (e *entry) record() []byte {
	b := append(make([]byte, 0, recordLen), recordMagic...)
	b = append(b, e.h[:]...)
	b = append(b, e.ns[:]...)
	b = append(b, e.key[:]...)
	b = append(b, byte(e.tier), byte(e.att))
	sum := wire.SumOf(b)
	return append(b, sum[:]...)
}

// errDamaged is a file that does not hold what it was written with.
var errDamaged = errors.New("the file does not hold what was written")

// parse reads a record and the header of its payload.
func parse(b []byte) (*entry, error) {
	var e entry
	rest := b[len(recordMagic):recordLen]
	for _, field := range [][]byte{e.h[:], e.ns[:], e.key[:]} {
		rest = rest[copy(field, rest):]
	}
	e.tier, e.att = wire.Tier(rest[0]), wire.Attest(rest[1])
	if !bytes.Equal(e.record(), b[:recordLen]) || e.tier >= wire.Tiers || e.att > wire.AttestProducer {
		return nil, errDamaged
	}
	var err error
	e.head, err = wire.ParseHeader(b[recordLen:], wire.Strict, wire.MaxBody)
	return &e, err
}

// open opens a regular file of the directory for reading. It follows no link, which
// os.Root would within the directory, and waits for no writer of a pipe.
func open(root *os.Root, name string) (*os.File, int64, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && (!before.Mode().IsRegular() || !os.SameFile(before, info)) {
		err = fmt.Errorf("%s is no regular file but %s", name, before.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// scan reads what a file says that it holds; its body is not looked at.
func scan(root *os.Root, name string) (*entry, error) {
	f, size, err := open(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, recordLen+wire.HeaderLen)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, err
	}
	e, err := parse(b)
	if err == nil && (uint64(size) != e.size() || fileName(e.h) != name) {
		err = errDamaged
	}
	return e, err
}

// load reads the payload of e into m, and hashes the body there.
func load(root *os.Root, e *entry, m []byte) (proof wire.Verified, err error) {
	f, size, err := open(root, fileName(e.h))
	if err != nil {
		return proof, err
	}
	defer func() { _ = f.Close() }()
	if uint64(size) != e.size() {
		return proof, fmt.Errorf("%w: it has %d bytes, not %d", errDamaged, size, e.size())
	}
	b := make([]byte, recordLen)
	m = m[:wire.HeaderLen+int(e.head.BodyLen)]
	for _, part := range [][]byte{b, m} {
		if _, err := io.ReadFull(f, part); err != nil {
			return proof, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	head, err := wire.ParseHeader(m, wire.Strict, wire.MaxBody)
	if err != nil || head != e.head || !bytes.Equal(b, e.record()) {
		return proof, errDamaged
	}
	proof = wire.Hash(m[wire.HeaderLen:])
	return proof, head.Match(proof)
}

// write makes a file under a temporary name, which the caller renames.
func write(root *os.Root, e *entry, payload []byte) (temporary string, err error) {
	temporary = fileName(e.h) + temporarySuffix
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(e.record())
	if err == nil {
		_, err = f.Write(payload)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, root.Remove(temporary))
	}
	return temporary, nil
}

// takeLock takes the directory for this process, or fails at once.
func takeLock(root *os.Root) (*os.File, error) {
	f, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another fabric has this directory: %w", err), f.Close())
	}
	return f, nil
}

// codeOf is the contract's code for what the file system said.
func codeOf(err error) wire.Code {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return wire.CodeFull
	case errors.Is(err, errDamaged), wire.CodeOf(err) == wire.CodeChecksum:
		return wire.CodeChecksum
	case errors.Is(err, fs.ErrNotExist):
		return wire.CodeAbsent
	}
	return wire.CodeUnreachable
}
