package linkbench

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// PlainServer moves memory over sockets without any protocol to speak of: a
// request is a u32 that says how many blocks, with two bits for the direction
// and the size of writes, and their numbers. A read is answered by the bytes, by
// one writev, or in pieces of at most plainPiece, of which the faster counts; a
// write brings the bytes, and is answered by one byte once they are in place.
type PlainServer struct {
	congestion string
	listeners  []net.Listener

	mu     sync.Mutex
	memory [][]byte
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

const (
	inPieces = 1 << 31 // of a request: small writes
	toServer = 1 << 30 // of a request: it is a write
	countOf  = toServer - 1

	// plainPiece is the size of small writes: that of the link's DATA frames.
	plainPiece = 256 << 10
	// maxVector is IOV_MAX of Linux.
	maxVector = 1024
)

// ServePlain serves what comes in at any of the listeners, which it closes at
// the end; congestion names the TCP congestion control, empty for the system's.
func ServePlain(congestion string, l ...net.Listener) *PlainServer {
	s := &PlainServer{congestion: congestion, listeners: l, conns: map[net.Conn]struct{}{}}
	for _, l := range l {
		s.wg.Go(func() { s.accept(l) })
	}
	return s
}

// Show makes memory what requests that come from now on are about.
func (s *PlainServer) Show(memory [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = memory
}

func (s *PlainServer) blocks(numbers []uint32, into [][]byte) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	into = into[:0]
	for _, n := range numbers {
		if int(n) >= len(s.memory) {
			return nil, errors.New("plain: no such block")
		}
		into = append(into, s.memory[n])
	}
	return into, nil
}

func (s *PlainServer) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			_ = setCongestion(c, s.congestion)
			_ = s.serve(c)
			_ = c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// serve answers the requests of one connection.
func (s *PlainServer) serve(c net.Conn) error {
	var head [4]byte
	var ask []byte
	var numbers []uint32
	var blocks [][]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		what := binary.LittleEndian.Uint32(head[:])
		ask = slices.Grow(ask[:0], 4*int(what&countOf))[:4*int(what&countOf)]
		if _, err := io.ReadFull(c, ask); err != nil {
			return err
		}
		numbers = numbers[:0]
		for i := 0; i < len(ask); i += 4 {
			numbers = append(numbers, binary.LittleEndian.Uint32(ask[i:]))
		}
		var err error
		if blocks, err = s.blocks(numbers, blocks); err != nil {
			return err
		}
		if what&toServer != 0 {
			if err = readVector(c, blocks); err == nil {
				_, err = c.Write([]byte{1})
			}
		} else {
			err = sendBlocks(c, blocks, what&inPieces != 0)
		}
		if err != nil {
			return err
		}
	}
}

func sendBlocks(c net.Conn, blocks [][]byte, pieces bool) error {
	var out net.Buffers
	held := 0
	for i, block := range blocks {
		for pieces && len(block) > plainPiece {
			if _, err := c.Write(block[:plainPiece]); err != nil {
				return err
			}
			block = block[plainPiece:]
		}
		out, held = append(out, block), held+len(block)
		if i == len(blocks)-1 || pieces && held >= plainPiece {
			if _, err := out.WriteTo(c); err != nil {
				return err
			}
			out, held = nil, 0
		}
	}
	return nil
}

// readVector fills blocks, by readv where c is a socket and not TLS.
func readVector(c net.Conn, blocks [][]byte) error {
	var raw interface {
		Read(func(fd uintptr) bool) error
	}
	var err error
	switch c := c.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	}
	if err != nil {
		return err
	}
	for raw == nil && len(blocks) > 0 {
		if _, err := io.ReadFull(c, blocks[0]); err != nil {
			return err
		}
		blocks = blocks[1:]
	}
	for len(blocks) > 0 {
		var n int
		var inner error
		err := raw.Read(func(fd uintptr) bool {
			for inner = unix.EINTR; inner == unix.EINTR; {
				n, inner = unix.Readv(int(fd), blocks[:min(len(blocks), maxVector)])
			}
			return inner != unix.EAGAIN
		})
		switch {
		case err != nil || inner != nil:
			return errors.Join(err, inner)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		for n > 0 && n >= len(blocks[0]) {
			n -= len(blocks[0])
			blocks = blocks[1:]
		}
		if n > 0 {
			blocks[0] = blocks[0][n:]
		}
	}
	return nil
}

// Close ends every connection and waits for the server's goroutines.
func (s *PlainServer) Close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// PlainClient is one connection to a PlainServer.
type PlainClient struct {
	c   net.Conn
	ask []byte
}

// NewPlainClient takes a connection over.
func NewPlainClient(c net.Conn, congestion string) (*PlainClient, error) {
	return &PlainClient{c: c}, setCongestion(c, congestion)
}

// Read fills buf with the blocks of those numbers.
func (p *PlainClient) Read(numbers []uint32, buf []byte, pieces bool) error {
	if err := p.request(numbers, pieces, 0); err != nil {
		return err
	}
	_, err := io.ReadFull(p.c, buf)
	return err
}

// Write sends buf as the blocks of those numbers, and returns once they are in
// place.
func (p *PlainClient) Write(numbers []uint32, buf []byte, pieces bool) error {
	if err := p.request(numbers, false, toServer); err != nil {
		return err
	}
	if err := sendBlocks(p.c, [][]byte{buf}, pieces); err != nil {
		return err
	}
	var done [1]byte
	_, err := io.ReadFull(p.c, done[:])
	return err
}

func (p *PlainClient) request(numbers []uint32, pieces bool, bits uint32) error {
	if pieces {
		bits |= inPieces
	}
	p.ask = binary.LittleEndian.AppendUint32(p.ask[:0], uint32(len(numbers))|bits)
	for _, n := range numbers {
		p.ask = binary.LittleEndian.AppendUint32(p.ask, n)
	}
	_, err := p.c.Write(p.ask)
	return err
}

// Close ends the connection.
func (p *PlainClient) Close() error { return p.c.Close() }

func setCongestion(c net.Conn, name string) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok || name == "" {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	})
	return errors.Join(err, inner)
}
