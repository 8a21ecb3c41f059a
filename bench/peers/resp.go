package peers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// respClient is a connection to a Redis server that pipelines GET and SET of a
// batch, in RESP2. It is for measuring: values are read straight into the
// caller's buffers and written from them.
type respClient struct {
	c   net.Conn
	r   *bufio.Reader
	ask []byte
	out net.Buffers
	cut []int // ends of the parts of ask between values
}

func dialRESP(network, addr string) (*respClient, error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return newRESP(c), nil
}

func newRESP(c net.Conn) *respClient {
	return &respClient{c: c, r: bufio.NewReaderSize(c, 64<<10)}
}

var errRESP = errors.New("redis: answer out of protocol")

// line reads one line and checks its first byte.
func (r *respClient) line(kind byte) ([]byte, error) {
	l, err := r.r.ReadSlice('\n')
	switch {
	case err != nil:
		return nil, err
	case len(l) < 3 || l[len(l)-2] != '\r':
		return nil, fmt.Errorf("%w: %q", errRESP, l)
	case l[0] == '-':
		return nil, fmt.Errorf("redis: %s", l[1:len(l)-2])
	case l[0] != kind:
		return nil, fmt.Errorf("%w: %q, want a line of %q", errRESP, l, kind)
	}
	return l[1 : len(l)-2], nil
}

// bulk reads a bulk string of exactly len(into) bytes.
func (r *respClient) bulk(into []byte) error {
	l, err := r.line('$')
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(string(l)); err != nil || n != len(into) {
		return fmt.Errorf("%w: value of %s bytes, want %d", errRESP, l, len(into))
	}
	if _, err := io.ReadFull(r.r, into); err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(r.r, end[:]); err != nil || end != [2]byte{'\r', '\n'} {
		return errors.Join(err, errRESP)
	}
	return nil
}

func appendArg(b, arg []byte) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(arg)), 10)
	b = append(b, "\r\n"...)
	return append(append(b, arg...), "\r\n"...)
}

// get fetches keys[i] into into[i].
func (r *respClient) get(keys, into [][]byte) error {
	r.ask = r.ask[:0]
	for _, k := range keys {
		r.ask = appendArg(append(r.ask, "*2\r\n$3\r\nGET\r\n"...), k)
	}
	if _, err := r.c.Write(r.ask); err != nil {
		return err
	}
	for _, b := range into {
		if err := r.bulk(b); err != nil {
			return err
		}
	}
	return nil
}

// set stores values[i] under keys[i], by one writev.
func (r *respClient) set(keys, values [][]byte) error {
	r.ask, r.cut, r.out = r.ask[:0], r.cut[:0], r.out[:0]
	for i, k := range keys {
		if i > 0 {
			r.ask = append(r.ask, "\r\n"...) // of the value before
		}
		r.ask = appendArg(append(r.ask, "*3\r\n$3\r\nSET\r\n"...), k)
		r.ask = append(strconv.AppendInt(append(r.ask, '$'), int64(len(values[i])), 10), "\r\n"...)
		r.cut = append(r.cut, len(r.ask))
	}
	from := 0
	for i, to := range r.cut {
		r.out = append(r.out, r.ask[from:to], values[i])
		from = to
	}
	r.out = append(r.out, []byte("\r\n"))
	out := r.out // WriteTo consumes it
	if _, err := out.WriteTo(r.c); err != nil {
		return err
	}
	for range keys {
		if err := r.ok(); err != nil {
			return err
		}
	}
	return nil
}

// flush drops everything that the server holds.
func (r *respClient) flush() error {
	if _, err := io.WriteString(r.c, "*1\r\n$8\r\nFLUSHALL\r\n"); err != nil {
		return err
	}
	return r.ok()
}

func (r *respClient) ok() error {
	if l, err := r.line('+'); err != nil || !bytes.Equal(l, []byte("OK")) {
		return errors.Join(err, fmt.Errorf("%w: %q, want OK", errRESP, l))
	}
	return nil
}

// info fetches one field of INFO.
func (r *respClient) info(field string) (string, error) {
	if _, err := io.WriteString(r.c, "*1\r\n$4\r\nINFO\r\n"); err != nil {
		return "", err
	}
	l, err := r.line('$')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(string(l))
	if err != nil || n < 0 || n > 1<<20 {
		return "", fmt.Errorf("%w: INFO of %s bytes", errRESP, l)
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(r.r, text); err != nil {
		return "", err
	}
	for line := range bytes.Lines(text) {
		if name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":")); ok && string(name) == field {
			return string(value), nil
		}
	}
	return "", fmt.Errorf("redis: INFO has no %s", field)
}

func (r *respClient) close() error { return r.c.Close() }
