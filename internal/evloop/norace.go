//go:build !race

package evloop

import "golang.org/x/sys/unix"

func (c *Conn) readv(bufs [][]byte) (int, error) { return c.vector(unix.SYS_READV, bufs) }

func sends(int) {}
