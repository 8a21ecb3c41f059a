package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ErrFrame is matched by what is wrong with a frame.
var ErrFrame = errors.New("a message of the NIXL helper's socket is wrong")

// coder goes over the fields of a message: to write them, or to read them.
type coder struct {
	b     []byte // written, or still to be read
	reads bool
	err   error
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrFrame}, args...)...)
	}
}

// take is the next n bytes of what is read; zeros where they are not there.
func (c *coder) take(n int) []byte {
	if c.err == nil && len(c.b) < n {
		c.fail("%d bytes are missing", n-len(c.b))
	}
	if c.err != nil {
		return make([]byte, n)
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *coder) u64(v *uint64) {
	if c.reads {
		*v = binary.LittleEndian.Uint64(c.take(8))
	} else {
		c.b = binary.LittleEndian.AppendUint64(c.b, *v)
	}
}

func (c *coder) u32(v *uint32) {
	if c.reads {
		*v = binary.LittleEndian.Uint32(c.take(4))
	} else {
		c.b = binary.LittleEndian.AppendUint32(c.b, *v)
	}
}

func (c *coder) flag(v *bool) {
	if !c.reads {
		var b byte
		if *v {
			b = 1
		}
		c.b = append(c.b, b)
		return
	}
	switch b := c.take(1)[0]; b {
	case 0, 1:
		*v = b == 1
	default:
		c.fail("a flag is %d", b)
	}
}

// length reads or writes a number of bytes or of elements.
func (c *coder) length(n, limit int) int {
	v := uint32(n)
	c.u32(&v)
	if uint64(v) > uint64(limit) {
		c.fail("a length of %d, limit %d", v, limit)
		return 0
	}
	return int(v)
}

func (c *coder) bytes(v *[]byte, limit int) {
	n := c.length(len(*v), limit)
	switch {
	case !c.reads:
		c.b = append(c.b, *v...)
	case c.err == nil && n > 0 && n <= len(c.b): // nothing is made for what is not there
		*v = append([]byte(nil), c.take(n)...)
	case n > 0:
		c.take(n)
	}
}

func (c *coder) text(v *string, limit int) {
	b := []byte(*v)
	c.bytes(&b, limit)
	if c.reads {
		*v = string(b)
	}
}

// name is a text that the library takes as a C string.
func (c *coder) name(v *string) {
	c.text(v, MaxName)
	if c.err == nil && (*v == "" || strings.IndexByte(*v, 0) >= 0) {
		c.fail("the name %q is empty or has a NUL in it", *v)
	}
}

// list goes over elements; it makes no more than come.
func list[T any](c *coder, v *[]T, limit int, field func(*T)) {
	n := c.length(len(*v), limit)
	for i := 0; i < n && c.err == nil; i++ {
		if c.reads {
			var zero T
			*v = append(*v, zero)
		}
		field(&(*v)[i])
	}
}

// Append appends the frame of a message.
func Append(b []byte, m Message) ([]byte, error) {
	at := len(b)
	c := coder{b: append(b, 0, 0, 0, 0, m.kind())}
	m.fields(&c)
	n := len(c.b) - at - 4
	if c.err == nil && n > MaxFrame {
		c.fail("a message of %d bytes, limit %d", n, MaxFrame)
	}
	if c.err != nil {
		return b, c.err
	}
	binary.LittleEndian.PutUint32(c.b[at:], uint32(n))
	return c.b, nil
}

// Parse reads what follows a frame's length.
func Parse(b []byte) (Message, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFrame)
	}
	m := made(b[0])
	if m == nil {
		return nil, fmt.Errorf("%w: no message has the kind %d", ErrFrame, b[0])
	}
	c := coder{b: b[1:], reads: true}
	m.fields(&c)
	if c.err == nil && len(c.b) > 0 {
		c.fail("%d bytes are left over", len(c.b))
	}
	if c.err != nil {
		return nil, c.err
	}
	return m, nil
}
