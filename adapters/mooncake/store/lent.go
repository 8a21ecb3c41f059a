package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"meridian/wire"
)

// Bounds of the memory that a node lends.
const (
	MinLent = 16 << 20
	MaxLent = 1 << 42

	baseAlign = 1 << 30
	baseSpace = 1 << 62
)

// Lent is the memory that a node lends to the master. It is an engine.Memory: peers
// read and write what lies at its addresses, where the master sent them. Each time it
// is offered it is new memory at new addresses; the old ones are refused from then
// on, and the old memory is freed once the last access to it has ended.
type Lent struct {
	size uint64

	mu      sync.Mutex
	current *mapping // nil: nothing is offered
	former  *mapping // withdrawn, and accesses to it are under way
}

// mapping is memory at addresses.
type mapping struct {
	base   uint64
	memory []byte
	active int // accesses under way
}

// errFormer is why memory cannot be offered anew.
var errFormer = errors.New("an access to its former addresses has not ended")

// NewLent is memory of a size, which is taken when it is offered.
func NewLent(size uint64) (*Lent, error) {
	if size < MinLent || size > MaxLent {
		return nil, fmt.Errorf("mooncake store node: %d bytes of memory, it must be %d to %d", size, MinLent, uint64(MaxLent))
	}
	return &Lent{size: size}, nil
}

// Range is the addresses that are offered now; the size is 0 where none are.
func (l *Lent) Range() (base, size uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return 0, 0
	}
	return l.current.base, l.size
}

// Enter begins an access of a peer.
func (l *Lent) Enter(_ string, addr, n uint64, _ bool) (b []byte, leave func(wrote uint64), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.current
	if m == nil {
		return nil, nil, fmt.Errorf("%d bytes at %#x: the node lends no memory now: %w", n, addr, wire.CodeStale)
	}
	if addr < m.base || n > l.size || addr-m.base > l.size-n {
		return nil, nil, fmt.Errorf("%d bytes at %#x: the node lends %#x to %#x: %w", n, addr, m.base, m.base+l.size, wire.CodeStale)
	}
	m.active++
	at := addr - m.base
	return m.memory[at : at+n : at+n], func(uint64) { l.leave(m) }, nil
}

func (l *Lent) leave(m *mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.active--; m.active == 0 && m == l.former {
		l.former = nil
		_ = unix.Munmap(m.memory)
	}
}

// offer takes memory and opens it at new addresses.
func (l *Lent) offer() (base uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.former != nil {
		return 0, errFormer
	}
	memory, err := unix.Mmap(-1, 0, int(l.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, fmt.Errorf("%d bytes of memory: %w", l.size, err)
	}
	l.current = &mapping{base: newBase(l.size), memory: memory}
	return l.current.base, nil
}

// withdraw refuses the addresses from now on.
func (l *Lent) withdraw() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.current
	if m == nil {
		return nil
	}
	l.current = nil
	if m.active > 0 {
		l.former = m
		return nil
	}
	return unix.Munmap(m.memory)
}

// newBase draws the address where the memory begins: one of 2^32 places, so that no
// address of one offer means anything in another.
func newBase(size uint64) uint64 {
	var b [8]byte
	rand.Read(b[:]) // does not fail
	span := (uint64(baseSpace) - size) / baseAlign
	return (1 + binary.LittleEndian.Uint64(b[:])%(span-1)) * baseAlign
}
