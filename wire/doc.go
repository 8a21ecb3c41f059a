// Package wire is MRDN v1: a 32-byte header and an opaque body.
package wire
