package wire

import "github.com/zeebo/blake3"

// Sum is BLAKE3-128: the first 16 bytes of BLAKE3-256, in digest order.
type Sum [16]byte

// SumOf hashes body.
func SumOf(body []byte) Sum {
	d := blake3.Sum256(body)
	return Sum(d[:16])
}

// CopySum copies src to dst and returns the checksum of the bytes that are in
// dst. It is the only way from memory that another process can write into a
// segment. dst must hold len(src) bytes.
func CopySum(dst, src []byte) Sum {
	n := copy(dst, src)
	return SumOf(dst[:n])
}
