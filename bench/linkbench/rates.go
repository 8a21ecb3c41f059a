package linkbench

import (
	"net"
	"runtime"
	"time"

	"meridian/wire"
)

// PlainReader reads batches into one buffer, again and again, from all blocks
// that a PlainServer shows, in turn.
type PlainReader struct {
	*PlainClient
	buf  []byte
	all  int // blocks there
	next int
	ask  []uint32
}

// DialPlain connects to a PlainServer that shows that many blocks; the streams
// 0 to 3 start at different ones.
func DialPlain(addr, congestion string, size uint32, batch, blocks, stream int) (*PlainReader, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	p, err := NewPlainClient(c, congestion)
	if err != nil {
		return nil, err
	}
	return &PlainReader{PlainClient: p, buf: make([]byte, int(size)*batch), all: blocks, next: stream * blocks / 4, ask: make([]uint32, batch)}, nil
}

// Buffer is the memory of what was read last.
func (p *PlainReader) Buffer() []byte { return p.buf }

func (p *PlainReader) read(pieces bool) error {
	for i := range p.ask {
		p.ask[i] = uint32(p.next % p.all)
		p.next++
	}
	return p.Read(p.ask, p.buf, pieces)
}

// PlainRate is what the readers get together in GB/s: the better of the two ways
// to send, each for d.
func PlainRate(c []*PlainReader, d time.Duration) (float64, error) {
	best := 0.0
	for _, how := range []bool{false, true} {
		rate, _, err := during(len(c), d, len(c[0].buf), func(w int) error { return c[w].read(how) })
		if err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	return best, nil
}

// HashRate is the hash on one core over blocks of memory just received.
func HashRate(buf []byte, size int, d time.Duration) float64 {
	began := time.Now()
	n := 0
	var sink wire.Sum
	for time.Since(began) < d {
		for at := 0; at+size <= len(buf); at += size {
			sink = wire.SumOf(buf[at : at+size])
			n += size
		}
	}
	runtime.KeepAlive(sink)
	return float64(n) / time.Since(began).Seconds() / 1e9
}
