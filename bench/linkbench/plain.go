package linkbench

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// plainServer sends memory over TCP without any protocol: a request is a u32
// that says how many blocks, the answer their bytes, by one writev, or with
// inPieces by writes of at most plainPiece. Which is faster depends on the size
// and the machine; what counts as S is the faster one.
type plainServer struct {
	l          net.Listener
	congestion string

	mu     sync.Mutex
	memory [][]byte
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

// inPieces is the bit of a request that asks for small writes.
const inPieces = 1 << 31

// plainPiece is the size of those: that of the link's DATA frames.
const plainPiece = 256 << 10

func newPlainServer(congestion string) (*plainServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &plainServer{l: l, congestion: congestion, conns: map[net.Conn]struct{}{}}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *plainServer) addr() string { return s.l.Addr().String() }

// serve makes connections that come from now on send from memory.
func (s *plainServer) serve(memory [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = memory
}

func (s *plainServer) accept() {
	for n := 0; ; n++ {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		memory := s.memory
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			defer func() { _ = c.Close() }()
			_ = setCongestion(c, s.congestion)
			send(c, memory, n)
		})
	}
}

// send answers requests; connections start at different places of memory.
func send(c net.Conn, memory [][]byte, n int) {
	var req [4]byte
	next := n * len(memory) / 4
	for {
		if _, err := io.ReadFull(c, req[:]); err != nil {
			return
		}
		n := binary.LittleEndian.Uint32(req[:])
		var out net.Buffers
		held := 0
		for i := range n &^ inPieces {
			block := memory[next%len(memory)]
			next++
			for n&inPieces != 0 && len(block) > plainPiece {
				if _, err := c.Write(block[:plainPiece]); err != nil {
					return
				}
				block = block[plainPiece:]
			}
			out, held = append(out, block), held+len(block)
			if last := i == n&^inPieces-1; last || n&inPieces != 0 && held >= plainPiece {
				if _, err := out.WriteTo(c); err != nil {
					return
				}
				out, held = nil, 0
			}
		}
	}
}

func (s *plainServer) close() {
	_ = s.l.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// plainClient reads batches into one buffer, again and again.
type plainClient struct {
	c   net.Conn
	buf []byte
	n   uint32
}

func dialPlain(addr, congestion string, size uint32, batch int) (*plainClient, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &plainClient{c: c, buf: make([]byte, int(size)*batch), n: uint32(batch)}, setCongestion(c, congestion)
}

// read fetches one batch; how is 0 or inPieces.
func (p *plainClient) read(how uint32) error {
	if _, err := p.c.Write(binary.LittleEndian.AppendUint32(nil, p.n|how)); err != nil {
		return err
	}
	_, err := io.ReadFull(p.c, p.buf)
	return err
}

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
