package store

import "encoding/binary"

// crcPolynomial is ECMA-182's, highest bit first. Mooncake does not reflect it and
// begins and ends with 0, unlike hash/crc64.
const crcPolynomial = 0x42f0e1eba9ea3693

// crcTables advance a checksum by a byte that is followed by 0 to 7 others.
var crcTables = func() (t [8][256]uint64) {
	for i := range t[0] {
		c := uint64(i) << 56
		for range 8 {
			if c>>63 != 0 {
				c = c<<1 ^ crcPolynomial
			} else {
				c <<= 1
			}
		}
		t[0][i] = c
	}
	for k := 1; k < 8; k++ {
		for i := range t[k] {
			c := t[k-1][i]
			t[k][i] = c<<8 ^ t[0][c>>56]
		}
	}
	return t
}()

// Checksum is the CRC-64 of an object as Mooncake makes it.
func Checksum(b []byte) uint64 { return updateChecksum(0, b) }

func updateChecksum(c uint64, b []byte) uint64 {
	t := &crcTables
	for len(b) >= 8 {
		c ^= binary.BigEndian.Uint64(b)
		c = t[7][c>>56] ^ t[6][c>>48&0xff] ^ t[5][c>>40&0xff] ^ t[4][c>>32&0xff] ^
			t[3][c>>24&0xff] ^ t[2][c>>16&0xff] ^ t[1][c>>8&0xff] ^ t[0][c&0xff]
		b = b[8:]
	}
	for _, x := range b {
		c = c<<8 ^ t[0][byte(c>>56)^x]
	}
	return c
}
