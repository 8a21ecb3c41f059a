package link

// The payload of a DATA frame is a u32 offset in the item Frame.Arg and at
// least one body byte. It has no crc32c: the checksum in the MRDN header covers
// the body. Bytes beyond an item's end run on into the following items whose
// status is OK, in table order.

// AppendData appends the header and the offset of a DATA frame with n body
// bytes; the n bytes, 1..MaxChunk, follow on the lane. f.Type and f.Len are
// filled.
func AppendData(b []byte, f Frame, offset uint32, n int) []byte {
	f.Type = TypeData
	f.Len = uint32(DataPrefixLen + n)
	return AppendDataPrefix(f.Append(b), offset)
}

// AppendDataPrefix appends the offset that comes before the body bytes.
func AppendDataPrefix(b []byte, offset uint32) []byte { return le.AppendUint32(b, offset) }
