//go:build !race

package vectored

import "golang.org/x/sys/unix"

// Readv fills the buffers from the first on with what is there. 0 is the end of what there
// will be.
func (c *Calls) Readv(fd int, bufs [][]byte) (int, error) { return c.call(unix.SYS_READV, fd, bufs) }

func sends(int) {}
